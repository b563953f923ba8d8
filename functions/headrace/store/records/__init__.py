"""Records of the control table, one kind a module: what is kept of each, and back."""

from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def body_of(thing: "DataclassInstance", *without: str) -> dict[str, Any]:
    """Return the fields of *thing* as a record keeps them; none that is *without*."""
    return {
        one.name: _kept(getattr(thing, one.name))
        for one in fields(thing)
        if one.name not in without
    }


def _kept(value: object) -> object:
    match value:
        case datetime():
            return value.isoformat()
        case frozenset():
            return sorted(value)
        case tuple():
            return [_kept(part) for part in value]
    if is_dataclass(value) and not isinstance(value, type):
        return body_of(value)
    return value
