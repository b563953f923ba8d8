"""Group leases: one over many tasks.  What a lease is called is with the ``ids``.

A group is open until its end, which its holder puts off with one write however many tasks are
under it.  It ends once: **closed** by its holder, who gives back what is unsettled, or found
**lapsed** by the service.  Every change asks that it is open still, so none ever opens it again.

Each delivery under a group has a lease of its own, the group's id and a mark of the delivery, so
that a slot, a repeated write or a late report of one delivery is never taken for another's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from headrace.domain.ids import group_key, leases_of, new_group_id
from headrace.domain.limits import KEEPALIVE_SECONDS
from headrace.domain.retry import Seconds

GRACE: Final = timedelta(days=1)
"""How long a group that has ended is kept: the index may show its tasks for a while."""

_OPEN_FOR: Final = timedelta(seconds=KEEPALIVE_SECONDS[1])  # at the most, if nobody extends it


class GroupState(StrEnum):
    """How a group stands."""

    OPEN = "OPEN"
    LAPSED = "LAPSED"
    CLOSED = "CLOSED"


@dataclass(frozen=True, slots=True)
class LeaseGroup:
    """A group as stored.

    ``granted_until`` is its end as first granted and never changes: the index keeps its tasks
    there.  ``queues`` are those it was used with, ``cancelled`` the ids of the tasks that were
    cancelled under it.  After ``kept_until`` it may be forgotten.
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
    def opened(
        cls, name: str | None, *, keepalive: Seconds, now: datetime, group_id: str | None = None
    ) -> "LeaseGroup":
        """Return a new group, open from *now* for *keepalive* seconds."""
        length = timedelta(seconds=keepalive)
        end = now + length
        own = group_id or new_group_id(name, now)
        return cls(own, name, length, end, end, now + _OPEN_FOR + GRACE)

    @property
    def key(self) -> str:
        """Where the group is kept."""
        return group_key(self.id)

    def holds(self, now: datetime) -> bool:
        """Tell whether the group is open and not past its end."""
        return self.state is GroupState.OPEN and self.expires_at > now

    def has_lapsed(self, now: datetime) -> bool:
        """Tell whether the group came to its end without being closed, found lapsed yet or not."""
        return self.state is not GroupState.CLOSED and not self.holds(now)

    def new_lease(self, token: str) -> str:
        """Return the lease of one delivery under this group; *token* makes it unique."""
        return leases_of(self.id) + token


@dataclass(frozen=True, slots=True)
class GroupChange:
    """One conditional write of a group that is open.

    Made if its end is after ``after`` and is ``ends_at``, as far as they are given.  The end
    becomes ``renewed_at`` plus the group's own keepalive, if that is given; the fields of ``put``
    are written, ``queue`` is added to its queues, and the task ``cancelled`` to those.
    """

    id: str
    after: datetime | None = None
    ends_at: datetime | None = None
    renewed_at: datetime | None = None
    put: Mapping[str, Any] = field(default_factory=dict)
    queue: str | None = None
    cancelled: str | None = None

    def allowed(self, group: LeaseGroup | None) -> bool:
        """Tell whether the stored *group* (None: there is none) lets this change happen."""
        return (
            group is not None
            and group.id == self.id
            and group.state is GroupState.OPEN
            and (self.after is None or group.expires_at > self.after)
            and (self.ends_at is None or group.expires_at == self.ends_at)
        )

    def apply(self, group: LeaseGroup) -> LeaseGroup:
        """Return *group* as changed."""
        changed = replace(group, **self.put)
        if self.renewed_at is not None:
            changed = replace(changed, expires_at=self.renewed_at + group.keepalive)
        if self.queue is not None:
            changed = replace(changed, queues=group.queues | {self.queue})
        if self.cancelled is not None:
            changed = replace(changed, cancelled=group.cancelled | {self.cancelled})
        return changed


def extend(group_id: str, *, now: datetime) -> GroupChange:
    """Plan the same length again, counted from *now*; not for a group that is past its end."""
    kept = {"kept_until": now + _OPEN_FOR + GRACE}
    return GroupChange(group_id, after=now, renewed_at=now, put=kept)


def learn(group_id: str, queue: str, *, now: datetime) -> GroupChange:
    """Plan to note that a group is used with *queue*, before it is."""
    return GroupChange(group_id, after=now, queue=queue)


def note_cancelled(group_id: str, task_id: str) -> GroupChange:
    """Plan to let the holder of a group know that a task under it was cancelled."""
    return GroupChange(group_id, cancelled=task_id)


def lapse(group: LeaseGroup, *, now: datetime) -> GroupChange:
    """Plan the end of a group past its end, unless that was put off since it was read."""
    put = {"state": GroupState.LAPSED, "kept_until": now + GRACE}
    return GroupChange(group.id, ends_at=group.expires_at, put=put)


def close(group: LeaseGroup, *, now: datetime) -> GroupChange:
    """Plan the end of a group at the wish of its holder."""
    end = min(now, group.expires_at)
    put = {"state": GroupState.CLOSED, "expires_at": end, "kept_until": now + GRACE}
    return GroupChange(group.id, put=put)
