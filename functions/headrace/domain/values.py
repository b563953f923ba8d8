"""Classes of values: quick to make and to copy, and made from JSON in one thread at a time.

Where a class is first converted to, or a decoder is made for it, msgspec 0.22 puts what it knows of
the class in place before it is whole, and goes on to the classes in it, for which it runs Python: a
second thread that comes to the class then reads what is not there, and the process ends with a
segmentation fault.  Everything that is not decoded by a decoder made at import goes through
``convert`` and ``decoder``.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cache
from operator import attrgetter
from threading import RLock
from typing import Any, Final, TypeVar, dataclass_transform, overload

import msgspec

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def quick(kind: type[T]) -> type[T]:
    """Make a dataclass of *kind*, with slots, that is frozen to the type checker only.

    One that is frozen when it runs takes five times as long to make, by `object.__setattr__`.
    """
    return dataclass(slots=True, unsafe_hash=True)(kind)


def with_changes(one: T, /, **changes: Any) -> T:  # noqa: ANN401  as of dataclasses.replace
    """Return a copy of *one* with these *changes*, faster than `dataclasses.replace`.

    Raises TypeError for a name that is not a field.
    """
    kind = type(one)
    places, values_of = _layout(kind)  # type: ignore[arg-type]  # a class can be hashed
    values = list(values_of(one))
    try:
        for name, value in changes.items():
            values[places[name]] = value
    except KeyError:
        none = sorted(changes.keys() - places.keys())
        raise TypeError(f"no fields of {kind.__name__}: {none}") from None
    return kind(*values)


@cache
def _layout(kind: type[Any]) -> tuple[dict[str, int], Callable[[Any], tuple[Any, ...]]]:
    names = tuple(field.name for field in fields(kind))
    return {name: place for place, name in enumerate(names)}, attrgetter(*names)


_learning: Final = RLock()
_known: Final[set[Any]] = set()


@overload
def convert(
    value: object, shape: type[T], *, from_attributes: bool = False, str_keys: bool = False
) -> T: ...


@overload
def convert(
    value: object,
    shape: Any,  # noqa: ANN401 (what is more than a class: a union, an argument's type)
    *,
    from_attributes: bool = False,
    str_keys: bool = False,
) -> Any: ...  # noqa: ANN401


def convert(
    value: object, shape: Any, *, from_attributes: bool = False, str_keys: bool = False
) -> Any:
    """Return *value*, of what JSON has, as *shape* wants it: a class, or another type's expression.

    Raises msgspec.ValidationError, as msgspec.convert does.
    """
    try:
        known = shape in _known
    except TypeError:  # what stands beside a type in Annotated need not be hashable
        with _learning:
            return msgspec.convert(value, shape, from_attributes=from_attributes, str_keys=str_keys)
    if not known:
        with _learning, suppress(msgspec.ValidationError):
            msgspec.convert(value, shape, from_attributes=from_attributes, str_keys=str_keys)
        _known.add(shape)
    return msgspec.convert(value, shape, from_attributes=from_attributes, str_keys=str_keys)


def decoder(shape: type[T]) -> msgspec.json.Decoder[T]:
    """Return a decoder of JSON for *shape*.  Raises TypeError for what has no decoder."""
    with _learning:
        return msgspec.json.Decoder(shape)
