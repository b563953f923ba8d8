"""Errors of tasks, counted by queue and by the fingerprint of the error.

A fault *stands* while a task is dead of it or is retried after it.  The number of such tasks is a
sum of changes, like the numbers by state.  The times when a fault was *seen* are counted by five
minutes and by hour.

Each queue has one record in the control table, with room for KINDS faults.  Further faults are
counted together as REST, and while a fault of REST stands, so is every new one.  So the numbers of
a fault that is listed by name are always right.  This record is apart from the minute records: a
fault stands as long as its tasks, and minutes are forgotten after a week.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final, Self

import msgspec

from headrace.domain.times import instant_of
from headrace.domain.transitions import Event, TaskFault, Transition
from headrace.history.flows import SLOT, Slots, add_slots, recent
from headrace.store.base import Record, Store

FAULTS: Final = "faults"
REST: Final = ""
KINDS: Final = 100
"""The number of faults listed by name; the record of a queue then has at most 150 KB."""

KEPT: Final = timedelta(days=7)
"""How long a fault is known that does not stand."""

FAULT_BYTES: Final = 1_250
"""The most bytes that one change of a fault takes in a buffer, without the queue's name."""

_MESSAGE_BYTES: Final = 480
_TYPE_BYTES: Final = 200
_WORKER_BYTES: Final = 80
_DIED: Final = "!"  # behind the id of a sample
_LATEST: Final = 3  # workers and samples
_SEEN: Final = frozenset({Event.FAILED, Event.DEAD})


class FaultCount(msgspec.Struct, array_like=True):
    """The tasks with the same fault: the number of dead and of retried ones, and the times.

    ``first`` and ``last`` are microseconds since 1970, 0 for never.  ``type`` and ``message`` are
    those of the last time; ``samples`` (tasks) and ``workers`` had it lately, the latest first.
    Tasks that died of it, with a ``!`` behind their ids, come before those that were retried.
    """

    dead: int = 0
    retried: int = 0
    first: int = 0
    last: int = 0
    slots: Slots = {}
    type: str = ""
    message: str = ""
    samples: list[str] = []
    workers: list[str] = []

    @property
    def tasks(self) -> tuple[str, ...]:
        """The ids of the samples."""
        return tuple(dict.fromkeys(sample.rstrip(_DIED) for sample in self.samples))

    @property
    def stands(self) -> bool:
        """Whether a task has this fault now."""
        return bool(self.dead or self.retried)

    def step(self, fault: TaskFault, step: int) -> None:
        """Add *step* tasks."""
        if fault.dead:
            self.dead += step
        else:
            self.retried += step

    def see(self, fault: TaskFault, at: int, *, times: int = 1) -> None:
        """Note that *fault* occurred at an instant."""
        workers = [fault.worker] if 0 < len(json.dumps(fault.worker)) <= _WORKER_BYTES else []
        kind, message = _cut(fault.type, _TYPE_BYTES), _cut(fault.message, _MESSAGE_BYTES)
        slots = {at // SLOT: times} if times else {}
        samples = [f"{fault.task_id}{_DIED if fault.dead else ''}"]
        self.merge(FaultCount(0, 0, at, at, slots, kind, message, samples, workers))

    def merge(self, other: "FaultCount") -> None:
        """Add the numbers of *other*."""
        self.dead += other.dead
        self.retried += other.retried
        add_slots(self.slots, other.slots)
        if not other.last:
            return
        newest, oldest = (other, self) if other.last >= self.last else (self, other)
        workers = dict.fromkeys([*newest.workers, *oldest.workers])
        samples = dict.fromkeys([*newest.samples, *oldest.samples])
        ranked = sorted(samples, key=lambda sample: not sample.endswith(_DIED))
        self.type, self.message = newest.type, newest.message
        self.workers, self.samples = list(workers)[:_LATEST], ranked[:_LATEST]
        self.first = min(self.first or other.first, other.first)
        self.last = newest.last


Kinds = dict[str, FaultCount]
"""Faults by fingerprint."""

QueueKinds = dict[str, Kinds]
"""Faults by queue and fingerprint."""


def kinds_body(kinds: Kinds | QueueKinds) -> Any:  # noqa: ANN401  JSON
    """Return *kinds* as JSON."""
    return msgspec.to_builtins(kinds, str_keys=True)


def kinds_of(body: Mapping[str, Any]) -> Kinds:
    """Return the faults of one queue from the JSON that kinds_body() wrote."""
    return msgspec.convert(body, Kinds, str_keys=True)


def count_of(faults: QueueKinds, queue: str, fingerprint: str) -> FaultCount:
    """Return the count of one fault of *queue* in *faults*, to be changed."""
    return faults.setdefault(queue, {}).setdefault(fingerprint, FaultCount())


def count_faults(faults: QueueKinds, transition: Transition) -> None:
    """Count the change of a task's fault by *transition*."""
    old, new = transition.old_fault, transition.new_fault
    left, entered = transition.left, transition.entered
    was, now = (left and left[0], old and old[:2]), (entered and entered[0], new and new[:2])
    if was != now:  # otherwise the task was only delivered again
        if old is not None and left is not None:
            count_of(faults, left[0], old.fingerprint).step(old, -1)
        if new is not None and entered is not None:
            count_of(faults, entered[0], new.fingerprint).step(new, 1)
    seen = any(happening.event in _SEEN for happening in transition.happenings)
    if seen and new is not None and entered is not None:
        count_of(faults, entered[0], new.fingerprint).see(new, transition.at)


class QueueFaults(msgspec.Struct):
    """The faults of one queue; ``posted`` is for each buffer the version that is counted here."""

    posted: dict[str, int] = {}
    kinds: Kinds = {}

    @property
    def dead(self) -> int:
        """The number of tasks that are dead of a fault."""
        return sum(kind.dead for kind in self.kinds.values())

    def merge(self, more: Mapping[str, FaultCount], now: int) -> None:
        """Add *more* at an instant in microseconds since 1970, by name or to REST."""
        self._forget(now)
        for fingerprint, added in more.items():
            known = self.kinds.get(fingerprint)
            if known is None and REST not in self.kinds and self._make_room():
                known = self.kinds[fingerprint] = FaultCount()
            (self.kinds.setdefault(REST, FaultCount()) if known is None else known).merge(added)
        if REST in self.kinds and not self.kinds[REST].stands:
            del self.kinds[REST]

    def merge_buffers(self, queue: str, buffers: Iterable[Record], now: int) -> None:
        """Add the numbers of *buffers*, read before this record, that are not in it yet."""
        for buffer in buffers:
            kinds = buffer.body["faults"].get(queue)
            if kinds and self.posted.get(buffer.name, 0) < buffer.version:
                self.merge(kinds_of(kinds), now)

    def set_numbers(self, found: Mapping[str, FaultCount], now: int) -> None:
        """Replace the numbers of tasks by those *found*; the times stay."""
        known = {name: kind for name, kind in self.kinds.items() if name}
        for kind in known.values():
            kind.dead = kind.retried = 0
        # Faults with numbers come first: if there is no room for all, the others are dropped.
        self.kinds = {name: known[name] for name in known.keys() & found.keys()}
        self.merge(found, now)
        quiet = {name: kind for name, kind in known.items() if name not in self.kinds}
        if REST not in self.kinds:
            self.merge(quiet, now)

    def _make_room(self) -> bool:
        """Return whether a new fault has room; drop an old one that does not stand if needed."""
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

    @classmethod
    def of(cls, record: Record | None) -> Self:
        """Return the faults of a record; none without one."""
        return cls() if record is None else msgspec.convert(record.body, cls, str_keys=True)


def change_faults(
    store: Store, queue: str, change: Callable[[QueueFaults], bool], now: int
) -> bool:
    """Apply *change* to the faults of a queue; it returns False if it changes nothing.

    Return False if another process wrote them at the same time.
    """
    record = store.record(FAULTS, queue)
    faults = QueueFaults.of(record)
    if not change(faults):
        return True
    version = record.version if record else 0
    until = None if any(kind.stands for kind in faults.kinds.values()) else instant_of(now) + KEPT
    body = msgspec.to_builtins(faults, str_keys=True)
    changed = Record(FAULTS, queue, body, version + 1, until)
    return store.put_record(changed, replaces=version or None)


def _cut(text: str, most: int) -> str:
    """Return the beginning of *text* that takes at most *most* bytes as JSON."""
    text = text[:most]
    while len(json.dumps(text)) > most:
        text = text[: len(text) * 3 // 4]
    return text
