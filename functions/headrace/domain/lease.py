"""Leases: a group lease, one over many tasks; and how a lease is shown to the worker that holds it.

A group is open until its end, which its holder puts off with one write however many tasks are
under it.  It ends once: **closed** by its holder, who gives back what is unsettled, or found
**lapsed** by the service.  Every change asks that it is open still, so none ever opens it again.

Each delivery under a group has a lease of its own, the group's id and a mark of the delivery, so
that a slot, a repeated write or a late report of one delivery is never taken for another's.

A lease's name is its secret and a few facts about the delivery: the attempt, the task's priority
if it has one, the worker, and when it began.  They save a read when the worker reports: the write
checks that they are true, so a name that was tampered with is refused like any other foreign lease.

A lease under a group goes by the group's id alone, as long as that can mean one delivery only.  A
task that came back to wait since the group was opened may have been under it before, and whoever
had it then knows it by that id: so the next delivery is shown with its whole name, and by the
group's id nothing happens to it.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

from headrace.domain.copies import quick
from headrace.domain.ids import group_opened_at, new_group_id
from headrace.domain.instants import EPOCH, MICROSECOND, instant_of
from headrace.domain.limits import GROUP_ID_RE, KEEPALIVE_SECONDS
from headrace.domain.retry import Seconds
from headrace.domain.task import Priority, Task

GRACE: Final = timedelta(days=1)
"""How long a group that has ended is kept: the index may show its tasks for a while."""

_OPEN_FOR: Final = timedelta(seconds=KEEPALIVE_SECONDS[1])  # at the most, if nobody extends it
_MARK: Final = ":"  # between the group and the delivery
_KEY_LENGTH: Final = 16
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


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

    def new_lease(self, token: str) -> str:
        """Return the lease of one delivery under this group; *token* makes it unique."""
        return f"{self.id}{_MARK}{token}"


def is_group_id(text: str) -> bool:
    """Tell whether *text* has the form of a group's id."""
    return GROUP_ID_RE.fullmatch(text) is not None


def group_key(group_id: str) -> str:
    """Return where a group is kept: the same place for groups of one name."""
    return group_id[-_KEY_LENGTH:]


def group_of(lease_id: str | None) -> str | None:
    """Return the group that a delivery's lease is under, if it is under one."""
    if lease_id is None or _MARK not in lease_id:
        return None
    return lease_id.partition(_MARK)[0]


def token_of(lease_id: str) -> str:
    """Return the token of a delivery's lease, unique whether it is under a group or not."""
    return lease_id.rpartition(_MARK)[2]


def leases_of(group_id: str) -> str:
    """Return the prefix of the leases of all deliveries under a group."""
    return group_id + _MARK


def opened_at(group_id: str) -> datetime:
    """Return when a group was opened; long ago for what is no group's id."""
    return group_opened_at(group_id) if is_group_id(group_id) else _LONG_AGO


def settled_under(group_id: str, settled_lease_id: str | None) -> bool:
    """Tell whether a task was last settled under this group, by whichever name of its lease."""
    return settled_lease_id is not None and settled_lease_id.startswith(group_id)


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


_WORKERS: Final = 1_000  # whose names are remembered as leases have them
_ATTEMPT: Final = re.compile(r"([0-9]{1,9})([hnl]?)", re.ASCII)
_BEGAN: Final = re.compile(r"[0-9a-f]{1,15}", re.ASCII)
_LAST: Final = (datetime(9999, 1, 1, tzinfo=UTC) - EPOCH) // MICROSECOND
_LETTERS: Final = {"h": Priority.HIGH, "n": Priority.NORMAL, "l": Priority.LOW, "": None}


@lru_cache(_WORKERS)
def _written(worker: str) -> str:
    return base64.urlsafe_b64encode(worker.encode()).decode().rstrip("=")


@lru_cache(_WORKERS)
def _read(text: str) -> str | None:
    """Return the worker's name that *text* is for; None for one that we did not write."""
    try:
        padded = text + "=" * (-len(text) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        return None


def _instant(text: str) -> datetime | None:
    """Return when a delivery began, as its lease says; None for what is no instant."""
    micros = int(text, 16)
    return instant_of(micros) if micros <= _LAST else None


@quick
class LeaseName:
    """A lease as its worker names it."""

    secret: str
    attempt: int
    worker: str | None = None
    priority: Priority | None = None
    started_at: datetime | None = None

    def __str__(self) -> str:
        worker = _written(self.worker or "")
        letter = "" if self.priority is None else self.priority[0]
        began = "" if self.started_at is None else f".{(self.started_at - EPOCH) // MICROSECOND:x}"
        return f"{self.secret}.{self.attempt}{letter}.{worker}{began}"

    @classmethod
    def of(cls, task: Task) -> "LeaseName":
        """Return the name of the lease *task* is under."""
        return cls(task.lease_id or "", task.attempts, task.worker, task.priority, task.started_at)

    @classmethod
    def parse(cls, name: str) -> "LeaseName | None":
        """Return *name* as parsed; None when we did not write it."""
        secret, _, rest = name.partition(".")
        attempt, _, rest = rest.partition(".")
        worker, has_began, began = rest.partition(".")
        known = _ATTEMPT.fullmatch(attempt)
        if known is None or not secret or (has_began and not _BEGAN.fullmatch(began)):
            return None
        text = _read(worker)
        if text is None:
            return None
        started_at = _instant(began) if has_began else None
        parsed = cls(secret, int(known[1]), text or None, _LETTERS[known[2]], started_at)
        return parsed if str(parsed) == name else None  # one lease has one name


def shown_lease(task: Task) -> str:
    """Return the name of its lease that the worker of *task* is given."""
    group = group_of(task.lease_id)
    return str(LeaseName.of(task)) if group is None or _was_under(group, task) else group


def _was_under(group: str, task: Task) -> bool:
    """Tell whether *task* may have been delivered under *group* before the present delivery."""
    returned = task.returned_at is not None and task.returned_at > opened_at(group)
    return returned or settled_under(group, task.settled_lease_id)


def names_lease(name: str, task: Task) -> bool:
    """Tell whether *name* means the lease that *task* is under; a whole name always may."""
    whole = LeaseName.of(task)
    # Names that were given out before they said when the delivery began hold to their end.
    return name in (shown_lease(task), str(whole), str(replace(whole, started_at=None)))
