"""Records of the control table: one module per kind, with functions to write and read it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args, get_type_hints

from msgspec import Struct

from headrace.domain.filters import NewerRecord
from headrace.domain.values import convert
from headrace.safe_logging import safe_logger
from headrace.store.base import Record

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def body_of(thing: "DataclassInstance | Struct", *without: str) -> dict[str, Any]:
    """Return the fields of *thing* as a record keeps them; none that is *without*."""
    if isinstance(thing, Struct):
        names: Iterable[str] = thing.__struct_fields__
    else:
        names = [one.name for one in fields(thing)]
    return {name: _kept(getattr(thing, name)) for name in names if name not in without}


_T = TypeVar("_T")
_log: Final = safe_logger(__name__)


def read_body(body: Mapping[str, Any], shape: type[_T], **named: object) -> _T:
    """Return *body* and *named* as *shape*, a dataclass or a struct.

    Raises NewerRecord for a field that *shape* or a class in it does not have.
    """
    kept = {name: value for name, value in body.items() if name not in named}
    refuse_unknown_fields(kept, shape)
    return convert({**kept, **named}, shape, from_attributes=True)


def refuse_unknown_fields(body: Mapping[str, Any], shape: type, path: str = "") -> None:
    """Raise NewerRecord for a field of *body*, at any depth, that *shape* does not have."""
    known = _shapes_of(shape)
    for name, value in body.items():
        if name not in known:
            raise NewerRecord.of(f"{path}{name}")
        inner = known[name]
        if inner is not None and isinstance(value, Mapping):
            refuse_unknown_fields(value, inner, f"{path}{name}.")


def readable(records: Iterable[Record], read: Callable[[Record], _T]) -> Iterator[_T]:
    """Yield what *read* makes of *records*; log and skip those of a newer version."""
    for record in records:
        try:
            yield read(record)
        except NewerRecord as error:
            _log.warning("Skipped %s %s: %s", record.kind, record.name, error)


@cache
def _shapes_of(shape: type) -> Mapping[str, type | None]:
    """Return the fields of *shape*, each with the dataclass or struct that it holds, if any."""
    found: dict[str, type | None] = {}
    for name, hint in get_type_hints(shape).items():
        inner = [one for one in (hint, *get_args(hint)) if isinstance(one, type)]
        found[name] = next(filter(_has_fields, inner), None)
    return found


def _has_fields(kind: type) -> bool:
    return is_dataclass(kind) or issubclass(kind, Struct)


def _kept(value: object) -> object:
    match value:
        case datetime():
            return value.isoformat()
        case frozenset():
            return sorted(value)
        case tuple():
            return [_kept(part) for part in value]
    if isinstance(value, Struct) or (is_dataclass(value) and not isinstance(value, type)):
        return body_of(value)
    return value
