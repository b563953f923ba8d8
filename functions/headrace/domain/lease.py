"""Group leases: one over many tasks.  Names of leases are in ``ids``.

A group is open until its end.  One write by its holder extends it for all tasks under it.  It ends
once: its holder **closes** it, which releases its unsettled tasks, or the service finds that it has
**lapsed**.  Every change requires that the group is open, so it never opens again.

Each delivery under a group has its own lease id, which begins with the group's id.  So a slot, a
repeated write or a late report of one delivery is never taken for that of another.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from headrace.domain.ids import group_key, leases_of, new_group_id
from headrace.domain.limits import KEEPALIVE_SECONDS
from headrace.domain.patch import (
    EXPIRES,
    Copy,
    Fields,
    Patch,
    Puts,
    When,
    expiry_of,
    members,
    number,
    seconds_of,
    text,
)
from headrace.domain.retry import Seconds
from headrace.domain.times import MICROSECOND, instant_of, micros_of

GRACE: Final = timedelta(days=1)
"""How long an ended group is kept, because the index may still show its tasks."""

_OPEN_FOR: Final = timedelta(seconds=KEEPALIVE_SECONDS[1])  # at the most, unless it is extended

LEASE_GROUPS: Final = "lease"
"""The kind of the control items that are groups."""

_END: Final = "expires_at"


class GroupState(StrEnum):
    """The state of a group."""

    OPEN = "OPEN"
    LAPSED = "LAPSED"
    CLOSED = "CLOSED"


@dataclass(frozen=True, slots=True)
class LeaseGroup:
    """A group as stored.

    ``granted_until`` is its end as first granted and never changes: the index sorts its tasks by
    it.  ``queues`` are the queues that it was used with, ``cancelled`` the ids of the tasks that
    were cancelled under it.  After ``kept_until`` the store may remove it.
    """

    id: str
    name: str | None
    keepalive: timedelta
    granted_until: datetime
    expires_at: datetime
    kept_until: datetime
    state: GroupState = GroupState.OPEN
    queues: frozenset[str] = field(default_factory=frozenset)
    cancelled: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def new(
        cls, name: str | None, *, keepalive: Seconds, now: datetime, group_id: str | None = None
    ) -> "LeaseGroup":
        """Return a new group, open from *now* for *keepalive* seconds."""
        length = timedelta(seconds=keepalive)
        end = now + length
        own = group_id or new_group_id(name, now)
        return cls(own, name, length, end, end, now + _OPEN_FOR + GRACE)

    @classmethod
    def of(cls, fields: Fields) -> "LeaseGroup":
        """Return the group in the *fields* of its control item."""
        kept_until = expiry_of(fields)
        assert kept_until is not None  # noqa: S101  every write sets it
        return cls(
            text(fields, "id"),
            text(fields, "name") or None,
            number(fields, "keepalive") * MICROSECOND,
            instant_of(number(fields, "granted_until")),
            instant_of(number(fields, _END)),
            kept_until,
            GroupState(text(fields, "state")),
            members(fields, "queues"),
            members(fields, "cancelled"),
        )

    def fields(self) -> Puts:
        """Return the fields of the group's control item."""
        return {
            "id": self.id,
            "name": self.name,
            "keepalive": self.keepalive // MICROSECOND,
            "granted_until": micros_of(self.granted_until),
            _END: micros_of(self.expires_at),
            EXPIRES: seconds_of(self.kept_until),
            "state": self.state.value,
            "queues": self.queues or None,
            "cancelled": self.cancelled or None,
        }

    def holds(self, now: datetime) -> bool:
        """Return whether the group is open and not past its end."""
        return self.state is GroupState.OPEN and self.expires_at > now

    def with_delivery(self, lease_id: str) -> str:
        """Return the id of the lease of one delivery under this group; *lease_id* is unique."""
        return leases_of(self.id) + lease_id


def group_item(group_id: str) -> tuple[str, str]:
    """Return the key of the control item in which a group is stored."""
    return LEASE_GROUPS, group_key(group_id)


def open_group(group: LeaseGroup, *, now: datetime) -> Patch:
    """Return the write of a new group, on condition that no kept group has its key at *now*."""
    when = (When(EXPIRES, "<=", seconds_of(now), or_missing=True),)
    return Patch(*group_item(group.id), when, put=group.fields(), mode="replace")


def extend(group_id: str, *, now: datetime) -> Patch:
    """Return the write that extends a group by its keepalive from *now*, if it has not ended."""
    put: Puts = {
        _END: Copy("keepalive", plus=micros_of(now)),
        EXPIRES: _kept_after(now + _OPEN_FOR),
    }
    return Patch(*group_item(group_id), (*_open(group_id), _ends_after(now)), put=put)


def learn(group_id: str, queue: str, *, now: datetime) -> Patch:
    """Return the write that notes that a group is used with *queue*; it precedes the use."""
    when = (*_open(group_id), _ends_after(now))
    return Patch(*group_item(group_id), when, add={"queues": frozenset([queue])})


def note_cancelled(group_id: str, task_id: str) -> Patch:
    """Return the write that adds a task to those that were cancelled under a group."""
    return Patch(*group_item(group_id), _open(group_id), add={"cancelled": frozenset([task_id])})


def lapse(group: LeaseGroup, *, now: datetime) -> Patch:
    """Return the write that marks a group past its end as lapsed, unless it was extended since."""
    same_end = When(_END, "=", micros_of(group.expires_at))
    put: Puts = {"state": GroupState.LAPSED.value, EXPIRES: _kept_after(now)}
    return Patch(*group_item(group.id), (*_open(group.id), same_end), put=put)


def close(group: LeaseGroup, *, now: datetime) -> Patch:
    """Return the write that closes a group."""
    end = micros_of(min(now, group.expires_at))
    put: Puts = {"state": GroupState.CLOSED.value, _END: end, EXPIRES: _kept_after(now)}
    return Patch(*group_item(group.id), _open(group.id), put=put)


def _open(group_id: str) -> tuple[When, ...]:
    return When("id", "=", group_id), When("state", "=", GroupState.OPEN.value)


def _ends_after(now: datetime) -> When:
    return When(_END, ">", micros_of(now))


def _kept_after(end: datetime) -> int:
    return seconds_of(end + GRACE)
