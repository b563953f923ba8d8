"""What the recorder adds up: tasks by queue and state, events by minute, flows, faults.

Tallies are sums, so they may be merged in any order.

A flow is made of moves: writes that took a task out of one queue and put it into another, whoever
asked for it.  It is filed under the queue it came to.  Numbers are kept by five minutes for an hour
and by the hour for a day, so that an edge stays some hundred bytes however busy it is.

Durations are counted in buckets that grow by 5 %: small, mergeable, good for percentiles.  Bucket
``n`` holds what is more than 1.05^(n-1) and at most 1.05^n microseconds, bucket -1 what took no
time at all.  A percentile is given as the middle of its bucket, so it is at most 2.5 % off, however
many histograms were merged and in whatever order.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.domain.instants import MINUTE
from headrace.domain.task import SHOWN_STATES, State
from headrace.domain.transitions import Event, Happening, Transition
from headrace.domain.write import Spot
from headrace.history.faults import FaultChanges, FaultCount
from headrace.history.recent import SLOT, Slots, add_slots, recent, slots_of, text_of

RATIO: Final = 1.05
_PER_NATURAL: Final = 1 / math.log(RATIO)
_MIDDLE: Final = 2 / (RATIO + 1)  # of a bucket, as a share of its upper end: equally far from both
_NO_TIME: Final = -1
_MICROS: Final = 1_000_000


def bucket_of(micros: int) -> int:
    """Return the bucket of a duration; one that a wrong clock made negative counts as none."""
    return math.ceil(math.log(micros) * _PER_NATURAL) if micros > 0 else _NO_TIME


@dataclass(slots=True)
class Histogram:
    """How many durations fell into each bucket."""

    buckets: dict[int, int] = field(default_factory=dict)

    def add(self, micros: int) -> None:
        """Count one duration, in microseconds."""
        bucket = bucket_of(micros)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1

    def merge(self, other: "Histogram") -> None:
        """Count everything that *other* has counted."""
        for bucket, number in other.buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + number

    @property
    def count(self) -> int:
        """How many durations were counted."""
        return sum(self.buckets.values())

    def percentile(self, share: float) -> float | None:
        """Return the duration, in seconds, that *share* (0 to 1) of all do not exceed.

        None when nothing was counted.
        """
        rank = max(1, math.ceil(share * self.count))
        for bucket in sorted(self.buckets):
            rank -= self.buckets[bucket]
            if rank <= 0:
                return 0.0 if bucket == _NO_TIME else RATIO**bucket * _MIDDLE / _MICROS
        return None

    def packed(self) -> list[int]:
        """Return it as a short list: for each bucket its distance to the one before, its number."""
        numbers: list[int] = []
        before = 0
        for bucket in sorted(self.buckets):
            numbers += (bucket - before, self.buckets[bucket])
            before = bucket
        return numbers

    @classmethod
    def unpacked(cls, numbers: Sequence[int]) -> "Histogram":
        """Return the histogram that packed() wrote."""
        buckets = {}
        bucket = 0
        for distance, number in _pairs(numbers):
            bucket += distance
            buckets[bucket] = number
        return cls(buckets)


def _pairs(numbers: Sequence[int]) -> Iterable[tuple[int, int]]:
    return zip(numbers[::2], numbers[1::2], strict=True)


_ROOM: Final = 24  # bytes that an edge takes besides its names and numbers


@dataclass(slots=True)
class QueueFlows:
    """How often a task went to a queue from another: ``by_target[to][source][slot]``."""

    by_target: dict[str, dict[str, Slots]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.by_target)

    def note(self, transition: Transition) -> None:
        """Count *transition*, if it is a move."""
        left, entered = transition.left, transition.entered
        if left is not None and entered is not None and left[0] != entered[0]:
            self._add(entered[0], left[0], {transition.at // SLOT: 1})

    def merge(self, other: "QueueFlows") -> None:
        """Count everything that *other* has counted."""
        for target, source, slots in other.edges():
            self._add(target, source, slots)

    def edges(self) -> Iterator[tuple[str, str, Slots]]:
        """Yield target, source and numbers of each edge."""
        for target, sources in self.by_target.items():
            for source, slots in sources.items():
                yield target, source, slots

    def to(self, target: str) -> "QueueFlows":
        """Return the moves that came to *target*."""
        sources = self.by_target.get(target)
        return QueueFlows({target: sources} if sources else {})

    def kept(self, now: int, most: int) -> "QueueFlows":
        """Return the flows worth keeping at *now*, in microseconds since 1970.

        Hours that ended an hour ago are kept as one number, what is over a day ago is left out.
        Of more edges than fit into *most* bytes the busiest stay.
        """
        kept = QueueFlows()
        for target, source, slots in self.edges():
            if worth := recent(slots, now):
                kept.by_target.setdefault(target, {})[source] = worth
        edges = sorted(kept.edges(), key=lambda edge: (-sum(edge[2].values()), edge[:2]))
        room = most
        fitting = QueueFlows()
        for target, source, slots in edges:
            room -= len(target) + len(source) + len(text_of(slots)) + _ROOM
            if room < 0:
                break
            fitting.by_target.setdefault(target, {})[source] = slots
        return fitting

    def body(self) -> dict[str, dict[str, str]]:
        """Return it as JSON."""
        return {
            target: {source: text_of(slots) for source, slots in sources.items()}
            for target, sources in self.by_target.items()
        }

    @classmethod
    def of(cls, body: Mapping[str, Mapping[str, str]]) -> "QueueFlows":
        """Return the flows that body() wrote."""
        return cls(
            {
                target: {source: slots_of(text) for source, text in sources.items()}
                for target, sources in body.items()
            }
        )

    def _add(self, target: str, source: str, slots: Slots) -> None:
        add_slots(self.by_target.setdefault(target, {}).setdefault(source, {}), slots)


STATES: Final = SHOWN_STATES
_PLACE: Final = {state: place for place, state in enumerate(STATES)}
COUNTED: Final = (
    Event.ENQUEUED,
    Event.STARTED,
    Event.SUCCEEDED,
    Event.FAILED,
    Event.DEAD,
    Event.CANCELLED,
)
_COLUMN: Final = {event: column for column, event in enumerate(COUNTED)}

CANCELLED: Final = len(STATES)
"""The place in Counts of how many of the dead were cancelled."""

Counts = list[int]
"""Numbers of tasks, in the order of STATES, then how many of the dead were cancelled.

In a tally, by how much they changed.
"""


def counts_of(numbers: Iterable[int] = ()) -> Counts:
    """Return counts of *numbers* as stored; what was not counted yet is 0."""
    counts = [0] * (len(STATES) + 1)
    add_counts(counts, numbers)
    return counts


def by_state(counts: Sequence[int]) -> dict[State, int]:
    """Return the numbers of *counts* by state."""
    return dict(zip(STATES, counts[: len(STATES)], strict=True))


def cancelled_of(counts: Sequence[int], dead: int) -> int:
    """Return how many of so many *dead* were cancelled by *counts*, which may lag behind.

    Rather too few: whoever is dead no more may have been cancelled, and no failure is hidden.
    """
    gone = max(0, counts[_PLACE[State.DEAD]] - dead)
    return min(dead, max(0, counts[CANCELLED] - gone))


@dataclass(slots=True)
class Activity:
    """The events of one queue in some time; ``numbers`` are in the order of COUNTED.

    ``backlog`` is by how many tasks those that are ENQUEUED became more, or less; ``moved`` how
    many a worker moved on to another queue, which no series tells.
    """

    numbers: list[int] = field(default_factory=lambda: [0] * len(COUNTED))
    wait: Histogram = field(default_factory=Histogram)
    run: Histogram = field(default_factory=Histogram)
    backlog: int = 0
    moved: int = 0

    def add(self, happening: Happening) -> None:
        """Count one event, and how long it took."""
        event = happening.event
        if event is Event.MOVED:
            self.moved += 1
        else:
            self.numbers[_COLUMN[event]] += 1
        if happening.micros is not None:
            (self.wait if event is Event.STARTED else self.run).add(happening.micros)

    def number(self, event: Event) -> int:
        """Return how often *event* happened."""
        return self.moved if event is Event.MOVED else self.numbers[_COLUMN[event]]

    def merge(self, other: "Activity") -> None:
        """Count everything that *other* has counted."""
        self.merge_numbers(other)
        self.wait.merge(other.wait)
        self.run.merge(other.run)

    def merge_numbers(self, other: "Activity") -> None:
        """Count the events that *other* has counted, without durations."""
        self.numbers = [mine + its for mine, its in zip(self.numbers, other.numbers, strict=True)]
        self.backlog += other.backlog
        self.moved += other.moved

    def text(self) -> str:
        """Return it as a short text: numbers, wait, run, backlog and moved."""
        parts = (self.numbers, self.wait.packed(), self.run.packed(), (self.backlog, self.moved))
        return "|".join(" ".join(map(str, part)) for part in parts)

    @classmethod
    def of(cls, text: str) -> "Activity":
        """Return the activity that text() wrote."""
        numbers, wait, run, (backlog, moved) = (
            [int(word) for word in part.split()] for part in text.split("|")
        )
        return cls(numbers, Histogram.unpacked(wait), Histogram.unpacked(run), backlog, moved)


@dataclass(slots=True)
class Tally:
    """How the counts of queues changed, what happened in them minute by minute, and the flows."""

    counts: dict[str, Counts] = field(default_factory=dict)
    minutes: dict[str, dict[int, Activity]] = field(default_factory=dict)
    flows: QueueFlows = field(default_factory=QueueFlows)
    faults: FaultChanges = field(default_factory=FaultChanges)

    def add(self, transition: Transition) -> None:
        """Count one write of a task."""
        left, entered = transition.left, transition.entered
        if left != entered:
            if left is not None:
                self._step(left, transition.at, -1, cancelled=transition.was_cancelled)
            if entered is not None:
                self._step(entered, transition.at, 1, cancelled=transition.is_cancelled)
            self.flows.note(transition)
        if transition.old_fault or transition.new_fault:
            self.faults.note(transition)
        self.add_happenings(transition.happenings)

    def _step(self, spot: Spot, at: int, step: int, *, cancelled: bool) -> None:
        queue, state = spot
        counts = self._counts(queue)
        counts[_PLACE[state]] += step
        if cancelled:
            counts[CANCELLED] += step
        if state is State.ENQUEUED:
            self._activity(queue, at // MINUTE).backlog += step

    def add_happenings(self, happenings: Iterable[Happening]) -> None:
        """Count events."""
        for happening in happenings:
            self._activity(happening.queue, happening.at // MINUTE).add(happening)

    def take_standing(self, other: "Tally", queue: str) -> None:
        """Move the numbers of tasks of *queue*, by state and by fault, from *other* to here."""
        add_counts(self._counts(queue), other.counts.pop(queue, ()))
        for fingerprint, kind in other.faults.by_queue.get(queue, {}).items():
            standing = FaultCount(dead=kind.dead, retried=kind.retried)
            self.faults.count(queue, fingerprint).merge(standing)
            kind.dead = kind.retried = 0

    def merge(self, other: "Tally") -> None:
        """Count everything that *other* has counted."""
        for queue, counts in other.counts.items():
            add_counts(self._counts(queue), counts)
        for queue, minutes in other.minutes.items():
            for minute, activity in minutes.items():
                self._activity(queue, minute).merge(activity)
        self.flows.merge(other.flows)
        self.faults.merge(other.faults)

    def body(self) -> dict[str, Any]:
        """Return it as JSON."""
        minutes = {
            queue: {str(minute): activity.text() for minute, activity in minutes.items()}
            for queue, minutes in self.minutes.items()
        }
        counts = {queue: list(counts) for queue, counts in self.counts.items() if any(counts)}
        faults = {"faults": self.faults.body()} if self.faults else {}
        return {"counts": counts, "minutes": minutes, "moves": self.flows.body(), **faults}

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> "Tally":
        """Return the tally that body() wrote."""
        counts = {queue: counts_of(counts) for queue, counts in body["counts"].items()}
        minutes = {queue: minutes_of(body, queue) for queue in body["minutes"]}
        flows, faults = (
            QueueFlows.of(body.get("moves", {})),
            FaultChanges.of(body.get("faults", {})),
        )
        return cls(counts, minutes, flows, faults)

    def _counts(self, queue: str) -> Counts:
        found = self.counts.get(queue)
        if found is None:
            found = self.counts[queue] = counts_of()
        return found

    def _activity(self, queue: str, minute: int) -> Activity:
        minutes = self.minutes.get(queue)
        if minutes is None:
            minutes = self.minutes[queue] = {}
        found = minutes.get(minute)
        if found is None:
            found = minutes[minute] = Activity()
        return found


def minutes_of(body: Mapping[str, Any], queue: str) -> dict[int, Activity]:
    """Return the minutes of one queue from a tally's *body*."""
    found = body["minutes"].get(queue, {})
    return {int(minute): Activity.of(text) for minute, text in found.items()}


def add_counts(counts: Counts, more: Iterable[int]) -> None:
    """Add *more* to *counts*."""
    for place, number in enumerate(more):
        counts[place] += number
