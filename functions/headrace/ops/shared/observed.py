"""The store as the use cases have it: what is written through it is learnt from, whoever writes.

It frees slots, and it knows which overdue leases a dequeue that helps out should look at, for half
a read unit a time.

The index knows the end of a lease as first granted.  Where heartbeats have put it off since, only
the task can tell, and reading tasks would cost a queue of long ones more than all else.  But a
process hears much itself: what its own dequeues lease, the heartbeats that go through it, and what
it has read before.  So a lease that it gave out and heard no more of has very likely lapsed, and is
read at once; so are two or three that it knows nothing of.  Of many strangers it reads one at a
time, in turns with its looks at the index, and more only where that one has lapsed.  The rest is
the reaper's, every minute.

Changes that may take a key lock away with them are committed by ``commit``.
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from headrace.domain.change import Change, Entry, KeyLock
from headrace.domain.ids import group_of
from headrace.domain.lease import LEASE_GROUPS, LeaseGroup
from headrace.domain.patch import Patch, Patched
from headrace.domain.task import Place, State, Task
from headrace.ops.shared.slots import remember
from headrace.ops.shared.strict_order import note_unmade
from headrace.store.base import Done, Noting, Outcome, Store

if TYPE_CHECKING:
    from headrace.runtime.service import Service


def commit(store: Store, changes: Sequence[Change]) -> list[Outcome]:
    """Commit *changes*; what a task cannot give up because it has it no longer, is left alone.

    A task that waited past its expiry may have lost its dedupe key to a newer one.  The places in
    strict orders that were taken for what is not made are noted as empty.
    """
    outcomes = store.commit(changes)
    for place, (change, outcome) in enumerate(zip(changes, outcomes, strict=True)):
        if isinstance(outcome, Done) or not outcome.blocked:
            continue
        lost = [change.also[blocked] for blocked in outcome.blocked]
        if all(isinstance(also, KeyLock) and also.value is None for also in lost):
            kept = tuple(also for also in change.also if also not in lost)
            outcomes[place] = store.commit([replace(change, also=kept)])[0]
    made = zip(changes, outcomes, strict=True)
    note_unmade(store, (change for change, outcome in made if not isinstance(outcome, Done)))
    return outcomes


def commit_proposed(
    store: Store, entries: Sequence[Entry], plan: Callable[[Entry | Task], Change]
) -> list[Outcome]:
    """Commit what *plan* makes of index entries, and of the task itself where that matters.

    It does of one that holds a key, is counted in a batch, or is dropped when it expires.
    """
    outcomes = store.commit([plan(entry) for entry in entries])
    for place, outcome in enumerate(outcomes):
        task = None if isinstance(outcome, Done) else outcome.task
        if task is not None and (task.dedupe_key or task.batches or task.on_expiry):
            outcomes[place] = commit(store, [plan(task)])[0]
    return outcomes


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
    MISSED = auto()  #: it gave the lease out, or last prolonged it, and has heard no more
    NEW = auto()  #: never heard of
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
    """What is left to be read in one partition, and whether the last time was at the index."""

    pending: Sequence[Entry] = ()
    at_index: bool = False


@dataclass(frozen=True, slots=True)
class Suspects:
    """Entries to read: those that have very likely lapsed, and others, ``few`` of them at first."""

    likely: Sequence[Entry] = ()
    others: Sequence[Entry] = ()
    few: int = 1


@dataclass(slots=True)
class LeaseWatch:
    """What this process knows of leases.

    Dequeues add to *given* what they lease, without waiting for anybody; who looks learns of it.
    """

    given: deque[GivenLease] = field(default_factory=partial(deque, maxlen=_REMEMBERED))
    _known: OrderedDict[_Key, _KnownSuspect] = field(default_factory=OrderedDict)
    _groups: OrderedDict[str, datetime] = field(default_factory=OrderedDict)
    _looks: OrderedDict[Place, _Looks] = field(default_factory=OrderedDict)
    _astray: dict[str, datetime] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def written(self, changes: Sequence[Change], outcomes: Sequence[Outcome]) -> None:
        """Learn from heartbeats that went through here."""
        for change, outcome in zip(changes, outcomes, strict=True):
            if change.rule.target is State.INFLIGHT and isinstance(outcome, Done):
                self._learn(outcome.task, outcome.task.lease_expires_at, ours=True)

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
        """Return the entries to read of one partition: at most half a unit is spent on finding out.

        The newest that are overdue come first: of those that have been so for long the reaper has
        seen that they are good.
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
        """Return what is known of a lease, after learning of those given out since."""
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


class Observed:
    """Passes everything on to *store*.

    It frees the slots of what is ended, and lets *groups* know of ends and *watch* of heartbeats.
    """

    def __init__(self, service: "Service", store: Store) -> None:
        self._service = service
        self._store = store

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  whatever the store has
        return getattr(self._store, name)

    def commit(
        self,
        changes: Sequence[Change],
        *,
        partly: bool = False,
        noting: Noting | None = None,
    ) -> list[Outcome]:
        """Make *changes* as the store does."""
        outcomes = self._store.commit(changes, partly=partly, noting=noting)
        if any(change.rule.source is State.INFLIGHT for change in changes):
            self._service.slots.ended(changes, outcomes)
            self._service.group_limits.ended(changes, outcomes)
            self._service.leases.watch.written(changes, outcomes)
        return outcomes

    def patch(self, patch: Patch, *, lazy: bool = False) -> Patched:
        """Make *patch* as the store does."""
        patched = self._store.patch(patch, lazy=lazy)
        if patch.kind == LEASE_GROUPS and patched.made and patched.fields:
            self._service.leases.watch.extended(LeaseGroup.of(patched.fields))
        return patched

    @property
    def store(self) -> Store:
        """The same, for those who ask for a store."""
        return cast("Store", self)
