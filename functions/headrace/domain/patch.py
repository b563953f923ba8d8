"""One conditional write of a control item, as data.

A control item is a set of fields under a key: ``kind`` and ``name``.  Records, key locks, pools,
rate limits, lines of groups and lease groups are control items.  A ``Patch`` says which conditions
must hold and what the fields become then.  Both stores carry out a patch in one write; what that
write must do is ``Patch.apply``.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeAlias, cast

from msgspec import Struct

from headrace.domain.times import EPOCH

Value: TypeAlias = int | str | frozenset[str]
Fields: TypeAlias = Mapping[str, Value]

EXPIRES: Final = "ttl"
"""The field with the second after which the store may remove an item."""

_SECOND: Final = timedelta(seconds=1)
Comparison: TypeAlias = Literal[
    "=", "<>", "<", "<=", ">", "size <=", "begins with", "does not begin with"
]
_COMPARISONS: Final[Mapping[Comparison, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    "size <=": lambda members, limit: len(members) <= limit,
    "begins with": str.startswith,
    "does not begin with": lambda text, start: not text.startswith(start),
}


class When(Struct, frozen=True):
    """One condition on one field; *value* None stands for a missing field ("=" or "<>").

    A missing field meets any other condition only if ``or_missing``.
    """

    name: str
    comparison: Comparison
    value: Any
    or_missing: bool = False

    def holds(self, stored: object) -> bool:
        """Return whether the *stored* value of the field, None if it is missing, meets it."""
        if self.value is None:
            return (stored is None) == (self.comparison == "=")
        if stored is None:
            return self.or_missing
        return _COMPARISONS[self.comparison](stored, self.value)


@dataclass(frozen=True, slots=True)
class Copy:
    """The value that field ``name`` had before the patch, else ``default``, plus ``plus``."""

    name: str
    default: Value | None = None
    plus: int = 0

    def value(self, fields: Fields) -> Value:
        """Return the value by *fields* as they are before the patch."""
        stored = fields.get(self.name, self.default)
        if stored is None:
            raise KeyError(self.name)
        return cast("int", stored) + self.plus if self.plus else stored


Puts: TypeAlias = Mapping[str, Value | Copy | None]
"""Fields to write; None removes a field."""


@dataclass(frozen=True, slots=True)
class Patch:
    """One conditional write of the control item (``kind``, ``name``).

    If every condition of ``when`` holds, the fields of ``put`` are written (None removes a field),
    numbers of ``add`` are added to numbers (0 where there is none) and sets to sets, and the
    members of ``discard`` leave their sets.  Mode ``replace`` removes every field that is not in
    ``put``; mode ``delete`` removes the item.
    """

    kind: str
    name: str
    when: tuple[When, ...] = ()
    put: Puts = field(default_factory=dict)
    add: Mapping[str, int | frozenset[str]] = field(default_factory=dict)
    discard: Mapping[str, frozenset[str]] = field(default_factory=dict)
    mode: Literal["update", "replace", "delete"] = "update"

    def is_allowed(self, fields: Fields | None) -> bool:
        """Return whether the conditions hold for an item with *fields* (None: there is no item)."""
        return all(one.holds((fields or {}).get(one.name)) for one in self.when)

    def is_applied(self, fields: Fields | None) -> bool:
        """Return whether an item with *fields* is as this patch leaves it.

        So a patch is recognized that is repeated because its answer was lost.  A patch that
        depends on the item before it is never recognized.
        """
        if self.mode == "delete":
            return fields is None
        relative = self.add or self.discard or any(isinstance(v, Copy) for v in self.put.values())
        if fields is None or relative:
            return False
        if self.mode == "replace":
            return fields == self.new_fields()
        return all(fields.get(name) == value for name, value in self.put.items())

    def new_fields(self) -> Fields:
        """Return the fields of an item that is replaced."""
        return self.apply({}) or {}

    def apply(self, fields: Fields | None) -> Fields | None:
        """Return the fields of the item after the patch; None if the item is deleted."""
        if self.mode == "delete":
            return None
        before = fields or {}
        after = {} if self.mode == "replace" else dict(before)
        for name, value in self.put.items():
            after.pop(name, None)
            if value is not None:
                after[name] = value.value(before) if isinstance(value, Copy) else value
        for name, added in self.add.items():
            if isinstance(added, frozenset):
                after[name] = members(before, name) | added
            else:
                after[name] = number(before, name) + added
        for name, removed in self.discard.items():
            after[name] = members(before, name) - removed
            if not after[name]:
                del after[name]
        return after


@dataclass(frozen=True, slots=True)
class Patched:
    """Whether a patch was made, and the fields of the item: as changed, or as they refused it.

    Of an item that the patch deleted, the last fields.  None: there was no item.
    """

    made: bool
    fields: Fields | None


@dataclass(frozen=True, slots=True)
class ControlItem:
    """A control item as stored."""

    kind: str
    name: str
    fields: Fields


def number(fields: Fields, name: str) -> int:
    """Return the number in a field, 0 if it is missing."""
    return cast("int", fields.get(name, 0))


def text(fields: Fields, name: str) -> str:
    """Return the text in a field, empty if it is missing."""
    return cast("str", fields.get(name, ""))


def members(fields: Fields, name: str) -> frozenset[str]:
    """Return the set in a field, empty if it is missing."""
    return cast("frozenset[str]", fields.get(name, frozenset()))


def seconds_of(moment: datetime) -> int:
    """Return *moment* as the value of ``EXPIRES``."""
    return (moment - EPOCH) // _SECOND


def expiry_of(fields: Fields) -> datetime | None:
    """Return after which moment the store may remove an item, or None if it keeps the item."""
    return EPOCH + number(fields, EXPIRES) * _SECOND if EXPIRES in fields else None
