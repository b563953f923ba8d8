"""Dataclasses that a batch makes hundreds of: quick to make, and quick to copy.

`quick` makes such a class, and `altered` does what `dataclasses.replace` does, in a fraction of its
time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def quick(kind: type[T]) -> type[T]:
    """Make a dataclass of *kind*, with slots, that is frozen to the type checker only.

    One that is frozen when it runs takes five times as long to make, by `object.__setattr__`.
    """
    return dataclass(slots=True, unsafe_hash=True)(kind)


def altered(one: T, /, **changes: Any) -> T:  # noqa: ANN401  as of dataclasses.replace
    """Return a copy of *one* with these *changes*.

    Raises TypeError for what is no field.
    """
    kind = type(one)
    places, values_of = _known(kind)  # type: ignore[arg-type]  # a class can be hashed
    values = list(values_of(one))
    try:
        for name, value in changes.items():
            values[places[name]] = value
    except KeyError:
        none = sorted(changes.keys() - places.keys())
        raise TypeError(f"no fields of {kind.__name__}: {none}") from None
    return kind(*values)


def maker(kind: type[T], given: Sequence[str]) -> Callable[[Sequence[Any]], T]:
    """Return what makes a *kind* of the values of all its fields, in the order *given*.

    Of a dataclass with slots, without `__post_init__` and without a base.  Raises TypeError for
    another class, and for other fields than it has.  A twin has the same slots and sets them in the
    order *given*; when all are set it becomes the real one.
    """
    if set(given) != _known(kind)[0].keys():  # type: ignore[arg-type]  # likewise
        raise TypeError(f"other fields than those of {kind.__name__}: {list(given)}")
    twin = _twin(kind, given)

    def make(values: Sequence[Any]) -> T:
        made: T = twin(*values)
        made.__class__ = kind
        return made

    return make


@cache
def _known(kind: type[Any]) -> tuple[dict[str, int], Callable[[Any], tuple[Any, ...]]]:
    names = tuple(field.name for field in fields(kind))
    return {name: place for place, name in enumerate(names)}, attrgetter(*names)


def _twin(kind: type[Any], names: Sequence[str]) -> type[Any]:
    """Return a class with the slots of *kind* and nothing else, made of its *names* in order."""
    if hasattr(kind, "__post_init__"):
        raise TypeError(f"{kind.__name__} has a __post_init__, which a twin would leave out")
    if kind.__bases__ != (object,):
        raise TypeError(f"{kind.__name__} has a base, whose slots a twin would not have")
    return make_dataclass(
        f"{kind.__name__}Twin",
        names,
        namespace={"__doc__": "Becomes the real one."},  # else one is made of the signature
        eq=False,
        repr=False,
        slots=True,
    )
