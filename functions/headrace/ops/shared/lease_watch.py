"""The leases that this process knows, to find lapsed ones at little cost.

A dequeue that helps the reaper spends half a read unit on overdue leases.  The index has the end of
a lease as first granted; only the task has the end after heartbeats, and reading all tasks would be
the largest cost of a queue with long tasks.  But a process knows the leases of its own dequeues,
the heartbeats that it handled, and the tasks that it has read.  It skips the leases that it knows
to last.  It reads up to three others immediately.  If there are more, it reads one at a time, in
turns with pages of the index, and more only if that lease has lapsed.  The reaper finds the rest,
every minute.
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
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
FEW: Final = 3
"""Unknown leases that are read immediately."""

_TRUST_FOR: Final = timedelta(seconds=60)
_REMEMBERED: Final = 20_000
_PLACES: Final = 1_000


class KnownLease(NamedTuple):
    """A lease by its task and its end as first granted; its end as known, and its id."""

    key: _Key
    until: datetime | None
    lease_id: str | None


@dataclass(slots=True)
class LeaseWatch:
    """The leases that this process knows.

    Dequeues append their leases to *given* without a lock; the next lookup adds them.
    """

    given: deque[KnownLease] = field(default_factory=partial(deque, maxlen=_REMEMBERED))
    _known: OrderedDict[_Key, KnownLease] = field(default_factory=OrderedDict)
    _groups: OrderedDict[str, datetime] = field(default_factory=OrderedDict)
    _unread: OrderedDict[Place, Sequence[Entry]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def renewed(self, task: Task) -> None:
        """Learn from a heartbeat that went through here, after which *task* is as given."""
        self._learn(task, task.lease_expires_at)

    def read(self, task: Task, until: datetime, *, now: datetime) -> None:
        """Learn from a task that was read, whose lease is good *until* then."""
        self._learn(task, min(until, now + _TRUST_FOR))

    def extended(self, group: LeaseGroup) -> None:
        """Learn the end of a group, wherever it comes from."""
        with self._lock:
            remember(self._groups, group.id, group.expires_at, most=_PLACES)

    def suspects(self, store: Store, place: Place, now: datetime) -> Sequence[Entry]:
        """Return overdue entries of one partition to read; finding them costs at most half a unit.

        If they are more than a few, the next call returns them and does not read the index.  The
        newest overdue entries come first: the reaper has seen that the older ones are valid.
        """
        with self._lock:
            unread = self._unread.pop(place, ())
        if suspects := self._not_good(unread, now):
            return suspects
        limit = _HALF_A_UNIT // (_ENTRY + len(place.queue))
        page = store.entries(place, until=now, descending=True, limit=limit)
        suspects = self._not_good(page.entries, now)
        if len(suspects) <= FEW:
            return suspects
        with self._lock:
            remember(self._unread, place, suspects, most=_PLACES)
        return ()

    def _not_good(self, entries: Sequence[Entry], now: datetime) -> list[Entry]:
        """Return those of *entries* whose leases are not known to go on."""
        with self._lock:
            while self.given:
                given = self.given.popleft()
                if given.key not in self._known:  # else that is newer
                    remember(self._known, given.key, given, most=_REMEMBERED)
            return [
                entry
                for entry in entries
                if (until := self._end((entry.task_id, entry.scheduled_at))) is None or until <= now
            ]

    def _end(self, key: _Key) -> datetime | None:
        known = self._known.get(key)
        if known is None or known.until is None:
            return None
        group_end = self._groups.get(group_of(known.lease_id) or "", known.until)
        return max(known.until, group_end)

    def _learn(self, task: Task, until: datetime | None) -> None:
        key = (task.id, task.scheduled_at)
        with self._lock:
            remember(self._known, key, KnownLease(key, until, task.lease_id), most=_REMEMBERED)
