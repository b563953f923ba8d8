"""What tasks fail of, counted at write time: by queue and by the fingerprint of the error.

A fault *stands* as long as a task has ended of it or is being tried again after it.  How many there
are of each is a sum of steps, as counts of states are; how often it was *seen* is by five minutes
and by the hour.

A queue has one record of the control table, with room for KINDS of them.  Further kinds are
counted together as REST, and so is every new kind while any of REST stands: each number that a kind
has to itself is right.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final, Self

from headrace.domain.instants import instant_of
from headrace.domain.transitions import Event, TaskFault, Transition
from headrace.history.recent import SLOT, Slots, add_slots, recent
from headrace.store.base import Record, Store

FAULTS: Final = "faults"
REST: Final = ""
KINDS: Final = 100
"""How many kinds a queue has by themselves: as a record at most 110 KB, usually 30 KB."""

KEPT: Final = timedelta(days=7)
"""How long a kind is known of which nothing stands any more."""

FAULT_BYTES: Final = 1_100
"""What a kind takes in a buffer besides the queue's name, at most."""

_MESSAGE_BYTES: Final = 480
_TYPE_BYTES: Final = 200
_WORKER_BYTES: Final = 80
_WORKERS: Final = 3
_SEEN: Final = frozenset({Event.FAILED, Event.DEAD})


@dataclass(slots=True)
class FaultCount:
    """Tasks that fail alike: how many are dead, how many are tried again, when it was seen.

    ``first`` and ``last`` are microseconds since 1970, 0 for never.  Of the last that was seen are
    ``type``, ``message`` and ``sample``, a task; ``workers`` had it lately, the last one first.
    """

    dead: int = 0
    retried: int = 0
    first: int = 0
    last: int = 0
    slots: Slots = field(default_factory=dict)
    type: str = ""
    message: str = ""
    sample: str = ""
    workers: list[str] = field(default_factory=list)

    @property
    def stands(self) -> bool:
        """Tell whether any of it is left."""
        return bool(self.dead or self.retried)

    def step(self, fault: TaskFault, step: int) -> None:
        """Count *step* tasks more, or less."""
        if fault.dead:
            self.dead += step
        else:
            self.retried += step

    def see(self, fault: TaskFault, at: int, *, times: int = 1) -> None:
        """Note that *fault* came at an instant."""
        workers = [fault.worker] if 0 < len(json.dumps(fault.worker)) <= _WORKER_BYTES else []
        kind, message = cut(fault.type, _TYPE_BYTES), cut(fault.message, _MESSAGE_BYTES)
        slots = {at // SLOT: times} if times else {}
        self.merge(FaultCount(0, 0, at, at, slots, kind, message, fault.task_id, workers))

    def merge(self, other: "FaultCount") -> None:
        """Count everything that *other* has counted."""
        self.dead += other.dead
        self.retried += other.retried
        add_slots(self.slots, other.slots)
        if not other.last:
            return
        newest, oldest = (other, self) if other.last >= self.last else (self, other)
        workers = dict.fromkeys([*newest.workers, *oldest.workers])
        self.type, self.message, self.sample = newest.type, newest.message, newest.sample
        self.workers = list(workers)[:_WORKERS]
        self.first = min(self.first or other.first, other.first)
        self.last = newest.last

    def body(self) -> list[Any]:
        """Return it as JSON."""
        first = min(self.slots, default=0)
        slots = [first, *(part for slot in sorted(self.slots) for part in self._slot(slot, first))]
        texts = (self.type, self.message, self.sample, self.workers)
        return [self.dead, self.retried, self.first, self.last, slots, *texts]

    def _slot(self, slot: int, first: int) -> tuple[int, int]:
        return slot - first, self.slots[slot]

    @classmethod
    def of(cls, body: Sequence[Any]) -> Self:
        """Return the count that body() wrote."""
        dead, retried, first_at, last_at, (first, *parts), kind, message, sample, workers = body
        slots = {
            first + later: number for later, number in zip(parts[::2], parts[1::2], strict=True)
        }
        seen = (first_at, last_at, slots)
        return cls(dead, retried, *seen, kind, message, sample, list(workers))


Kinds = dict[str, FaultCount]
"""By fingerprint."""


@dataclass(slots=True)
class FaultChanges:
    """How the faults of queues changed: ``by_queue[queue][fingerprint]``."""

    by_queue: dict[str, Kinds] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.by_queue)

    def note(self, transition: Transition) -> None:
        """Count what *transition* did to the fault of its task."""
        old, new = transition.old_fault, transition.new_fault
        left, entered = transition.left, transition.entered
        was, now = (left and left[0], old and old[:2]), (entered and entered[0], new and new[:2])
        if was != now:  # else it is just delivered again
            if old is not None and left is not None:
                self.count(left[0], old.fingerprint).step(old, -1)
            if new is not None and entered is not None:
                self.count(entered[0], new.fingerprint).step(new, 1)
        if new is not None and entered is not None and seen_in(transition):
            self.count(entered[0], new.fingerprint).see(new, transition.at)

    def count(self, queue: str, fingerprint: str) -> FaultCount:
        """Return the count of one kind, to be added to."""
        return self.by_queue.setdefault(queue, {}).setdefault(fingerprint, FaultCount())

    def merge(self, other: "FaultChanges") -> None:
        """Count everything that *other* has counted."""
        for queue, kinds in other.by_queue.items():
            for fingerprint, more in kinds.items():
                self.count(queue, fingerprint).merge(more)

    def body(self) -> dict[str, dict[str, list[Any]]]:
        """Return it as JSON."""
        return {queue: body_of(kinds) for queue, kinds in self.by_queue.items()}

    @classmethod
    def of(cls, body: Mapping[str, Mapping[str, Sequence[Any]]]) -> Self:
        """Return the faults that body() wrote."""
        return cls({queue: kinds_of(kinds) for queue, kinds in body.items()})


def seen_in(transition: Transition) -> bool:
    """Tell whether a task has just failed."""
    return any(happening.event in _SEEN for happening in transition.happenings)


@dataclass(slots=True)
class QueueFaults:
    """The faults of one queue.

    ``posted`` says for each buffer which version of it is in here.  ``recounted`` is the time of
    the last recount, in microseconds since 1970, 0 for none.
    """

    posted: dict[str, int] = field(default_factory=dict)
    kinds: Kinds = field(default_factory=dict)
    recounted: int = 0

    @property
    def dead(self) -> int:
        """How many tasks are dead of a fault."""
        return sum(kind.dead for kind in self.kinds.values())

    def merge(self, more: Mapping[str, FaultCount], now: int) -> None:
        """Count *more* at an instant in microseconds since 1970, as far as there is room for it."""
        self._forget(now)
        for fingerprint, added in more.items():
            known = self.kinds.get(fingerprint)
            if known is None and REST not in self.kinds and self._make_room():
                known = self.kinds[fingerprint] = FaultCount()
            (self.kinds.setdefault(REST, FaultCount()) if known is None else known).merge(added)
        if REST in self.kinds and not self.kinds[REST].stands:
            del self.kinds[REST]

    def set_numbers(
        self, found: Mapping[str, FaultCount], pending: Mapping[str, FaultCount], now: int
    ) -> None:
        """Replace the numbers of tasks by those *found*, less those *pending*, to be added later.

        When each kind was seen stays known.
        """
        found = {name: replace(kind) for name, kind in found.items()}
        for name, kind in pending.items():
            found.setdefault(name, FaultCount()).merge(FaultCount(-kind.dead, -kind.retried))
        known = {name: kind for name, kind in self.kinds.items() if name}
        for kind in known.values():
            kind.dead = kind.retried = 0
        # Kinds with numbers come first: if there is no room for all, those without are dropped.
        self.kinds = {name: known[name] for name in known.keys() & found.keys()}
        self.merge(found, now)
        quiet = {name: kind for name, kind in known.items() if name not in self.kinds}
        if REST not in self.kinds:
            self.merge(quiet, now)

    def _make_room(self) -> bool:
        """Return whether there is room for a new kind, after dropping an old one if need be."""
        if len(self.kinds) < KINDS:
            return True
        quiet = [name for name, kind in self.kinds.items() if name and not kind.stands]
        if quiet:
            del self.kinds[min(quiet, key=lambda name: self.kinds[name].last)]
        return bool(quiet)

    def _forget(self, now: int) -> None:
        before = now - KEPT.total_seconds() * 1e6
        for name, kind in list(self.kinds.items()):
            kind.slots = recent(kind.slots, now)
            if not kind.stands and kind.last < before:
                del self.kinds[name]

    def body(self) -> dict[str, Any]:
        """Return it as JSON."""
        kinds = body_of(self.kinds)
        return {"posted": self.posted, "kinds": kinds, "recounted": self.recounted}

    @classmethod
    def of(cls, record: Record | None) -> Self:
        """Return what a record has; nothing where there is none."""
        if record is None:
            return cls()
        body = record.body
        return cls(dict(body["posted"]), kinds_of(body["kinds"]), body["recounted"])


def change_faults(
    store: Store, queue: str, change: Callable[[QueueFaults], bool], now: int
) -> bool:
    """Make *change* to what a queue has, unless it says that there is none to make.

    Return whether nobody else made one at once.
    """
    record = store.record(FAULTS, queue)
    faults = QueueFaults.of(record)
    if not change(faults):
        return True
    version = record.version if record else 0
    until = None if any(kind.stands for kind in faults.kinds.values()) else instant_of(now) + KEPT
    changed = Record(FAULTS, queue, faults.body(), version + 1, until)
    return store.put_record(changed, replaces=version or None)


def cut(text: str, most: int) -> str:
    """Return the beginning of *text* that takes so many bytes as JSON at most."""
    text = text[:most]
    while len(json.dumps(text)) > most:
        text = text[: len(text) * 3 // 4]
    return text


def body_of(kinds: Mapping[str, FaultCount]) -> dict[str, list[Any]]:
    """Return *kinds* as JSON."""
    return {fingerprint: kind.body() for fingerprint, kind in kinds.items()}


def kinds_of(body: Mapping[str, Sequence[Any]]) -> Kinds:
    """Return the kinds that body_of() wrote."""
    return {fingerprint: FaultCount.of(kind) for fingerprint, kind in body.items()}


def newest_first(kinds: Iterable[FaultCount]) -> Iterator[FaultCount]:
    """Yield *kinds*, the one that was seen last first."""
    yield from sorted(kinds, key=lambda kind: kind.last, reverse=True)
