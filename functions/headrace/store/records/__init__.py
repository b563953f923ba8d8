"""Records of the control table, one kind a module: what is kept of each, and back."""

from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any


def body_of(thing: Any, *without: str) -> dict[str, Any]:  # noqa: ANN401  any dataclass
    """Return the fields of *thing*, a dataclass, as a record keeps them; none that is *without*."""
    return {
        one.name: _kept(getattr(thing, one.name))
        for one in fields(thing)
        if one.name not in without
    }


def _kept(value: Any) -> Any:  # noqa: ANN401  of any field
    match value:
        case datetime():
            return value.isoformat()
        case frozenset():
            return sorted(value)
        case tuple():
            return [_kept(part) for part in value]
    return body_of(value) if is_dataclass(value) else value
