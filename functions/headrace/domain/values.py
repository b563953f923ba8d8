"""Values made from JSON, in one thread at a time.

Where a class is first converted to, or a decoder is made for it, msgspec 0.22 puts what it knows of
the class in place before it is whole, and goes on to the classes in it, for which it runs Python: a
second thread that comes to the class then reads what is not there, and the process ends with a
segmentation fault.  Everything that is not decoded by a decoder made at import goes through
``convert`` and ``decoder``.
"""

from contextlib import suppress
from threading import RLock
from typing import Any, Final, TypeVar, overload

import msgspec

T = TypeVar("T")


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
