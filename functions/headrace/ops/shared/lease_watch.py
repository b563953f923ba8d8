"""The leases that this process knows, to find lapsed ones at little cost.

A dequeue that helps the reaper spends half a read unit on overdue leases.  The index has the end of
a lease as first granted; only the task has the end after heartbeats, and reading all tasks would be
the largest cost of a queue with long tasks.  But a process knows the leases of its own dequeues,
the heartbeats that it handled, and the tasks that it has read.  It reads an overdue lease
immediately if it granted or renewed the lease itself, or if only two or three unknown leases are
overdue.  If many are unknown, it reads one at a time, in turns with pages of the index, and more
only if that one has lapsed.  The reaper finds the rest, every minute.
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum, auto
from functools import partial
from typing import Final, NamedTuple

from headrace.domain.change import Entry
from headrace.domain.ids import group_of
from headrace.domain.lease import LeaseGroup
from headrace.domain.task import Place, Task
from headrace.ops.shared.slots import remember
from headrace.store.base import Store

_Key = tuple[str, datetime]

_HALF_A_UNIT: Final = 4096  # bytes of the index
_ENTRY: Final = 155  # bytes of an entry with a long id, besides the name of its queue
_FEW: Final = 3  # strangers that are read at once
_TRUST_FOR: Final = timedelta(seconds=60)
_ASTRAY_FOR: Final = timedelta(minutes=5)
_REMEMBERED: Final = 20_000
_PLACES: Final = 1_000


class SuspectStanding(StrEnum):
    """What this process makes of an overdue entry."""

    GOOD = auto()  #: the lease goes on, as it heard or read
    MISSED = auto()  #: this process granted or renewed the lease last
    NEW = auto()  #: unknown
    OLD = auto()  #: read before, and found good then


@dataclass(frozen=True, slots=True)
class _KnownSuspect:
    """The end of a lease, or the group that has it; whether this process gave it out itself."""

    until: datetime
    group: str | None
    ours: bool


class GivenLease(NamedTuple):
    """A lease that a dequeue of this process gave out."""

    key: _Key
    until: datetime | None
    lease_id: str | None


@dataclass(slots=True)
class _Looks:
    """The entries still to be read in one partition, and whether the last read was of the index."""

    pending: Sequence[Entry] = ()
    at_index: bool = False


@dataclass(frozen=True, slots=True)
class Suspects:
    """Entries to read: ``likely`` lapsed ones, and ``others``, at first ``few`` of them."""

    likely: Sequence[Entry] = ()
    others: Sequence[Entry] = ()
    few: int = 1


@dataclass(slots=True)
class LeaseWatch:
    """The leases that this process knows.

    Dequeues append their leases to *given* without a lock; the next lookup adds them.
    """

    given: deque[GivenLease] = field(default_factory=partial(deque, maxlen=_REMEMBERED))
    _known: OrderedDict[_Key, _KnownSuspect] = field(default_factory=OrderedDict)
    _groups: OrderedDict[str, datetime] = field(default_factory=OrderedDict)
    _looks: OrderedDict[Place, _Looks] = field(default_factory=OrderedDict)
    _astray: dict[str, datetime] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def renewed(self, task: Task) -> None:
        """Learn from a heartbeat that went through here, after which *task* is as given."""
        self._learn(task, task.lease_expires_at, ours=True)

    def read(self, task: Task, until: datetime, *, now: datetime) -> None:
        """Learn from a task that was read, whose lease is good *until* then."""
        with self._lock:
            known = self._heard_of(_key(task))
            if known is not None and known.ours and known.group is None:
                self._astray[task.queue] = now + _ASTRAY_FOR  # its heartbeats go through others
        self._learn(task, min(until, now + _TRUST_FOR), ours=False)

    def extended(self, group: LeaseGroup) -> None:
        """Learn the end of a group, wherever it comes from."""
        with self._lock:
            remember(self._groups, group.id, group.expires_at, most=_PLACES)

    def standing(self, entry: Entry, now: datetime) -> SuspectStanding:
        """Return the standing of an overdue *entry*."""
        with self._lock:
            known = self._heard_of((entry.task_id, entry.scheduled_at))
            if known is None:
                return SuspectStanding.NEW
            until = known.until
            if known.group is not None:
                until = max(until, self._groups.get(known.group, until))
            if until > now:
                return SuspectStanding.GOOD
            astray = self._astray.get(entry.place.queue, now) > now
            return SuspectStanding.MISSED if known.ours and not astray else SuspectStanding.OLD

    def suspects(self, store: Store, place: Place, now: datetime) -> Suspects:
        """Return the entries of one partition to read; finding them costs at most half a unit.

        The newest overdue entries come first: the reaper has seen that the older ones are valid.
        """
        with self._lock:
            looks = self._looks.get(place) or _Looks()
            remember(self._looks, place, looks, most=_PLACES)
        if looks.pending and looks.at_index:
            looks.at_index = False
            left, looks.pending = looks.pending, ()
            others = [one for one in left if self.standing(one, now) is not SuspectStanding.GOOD]
            return Suspects(others=others)
        looks.at_index = True
        limit = _HALF_A_UNIT // (_ENTRY + len(place.queue))
        page = store.entries(place, until=now, descending=True, limit=limit)
        found: dict[SuspectStanding, list[Entry]] = {standing: [] for standing in SuspectStanding}
        for entry in page.entries:
            found[self.standing(entry, now)].append(entry)
        likely, new, old = (
            found[one] for one in (SuspectStanding.MISSED, SuspectStanding.NEW, SuspectStanding.OLD)
        )
        if len(new) <= _FEW:
            looks.pending = old
            return Suspects(likely, new, _FEW)
        looks.pending = [*new, *old]
        return Suspects(likely)

    def put_off(self, place: Place, rest: Sequence[Entry]) -> None:
        """Keep *rest* of the suspects for the next times."""
        with self._lock:
            looks = self._looks.get(place)
            if looks is not None and rest:
                looks.pending = [*rest, *(one for one in looks.pending if one not in rest)]

    def _heard_of(self, key: _Key) -> _KnownSuspect | None:
        """Return the known state of a lease, after adding the recently given ones."""
        while self.given:
            given = self.given.popleft()
            if given.key not in self._known:  # else that is newer
                self._note(given.key, given.until, given.lease_id, ours=True)
        return self._known.get(key)

    def _learn(self, task: Task, until: datetime | None, *, ours: bool) -> None:
        with self._lock:
            self._note(_key(task), until, task.lease_id, ours=ours)

    def _note(self, key: _Key, until: datetime | None, lease_id: str | None, *, ours: bool) -> None:
        if until is not None:
            known = _KnownSuspect(until, group_of(lease_id), ours)
            remember(self._known, key, known, most=_REMEMBERED)


def _key(task: Task) -> _Key:
    """A delivery is known by the task and the end of its lease as first granted."""
    return (task.id, task.scheduled_at)
