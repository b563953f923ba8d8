"""The numbers that the recorder adds up: tasks by queue and state, events by minute, moves, faults.

Tallies are sums, so they may be merged in any order.

Durations are counted in buckets that grow by 5 %: small, mergeable, good for percentiles.  Bucket
``n`` holds the durations over 1.05^(n-1) and up to 1.05^n microseconds, bucket -1 those of zero.
A percentile is given as the middle of its bucket, so its error is at most 2.5 %, however many
histograms were merged.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.domain.task import SHOWN_STATES, State
from headrace.domain.times import MINUTE
from headrace.domain.transitions import Event, Happening, Spot, Transition
from headrace.history.faults import QueueKinds, count_faults, count_of, kinds_body, kinds_of
from headrace.history.flows import QueueFlows

RATIO: Final = 1.05
_PER_NATURAL: Final = 1 / math.log(RATIO)
_MIDDLE: Final = 2 / (RATIO + 1)  # of a bucket, as a share of its upper end
_NO_TIME: Final = -1
_MICROS: Final = 1_000_000


def bucket_of(micros: int) -> int:
    """Return the bucket of a duration; a negative one, by a wrong clock, counts as zero."""
    return math.ceil(math.log(micros) * _PER_NATURAL) if micros > 0 else _NO_TIME


def _seconds(bucket: int) -> float:
    return 0.0 if bucket == _NO_TIME else RATIO**bucket * _MIDDLE / _MICROS


@dataclass(slots=True)
class Histogram:
    """The number of durations in each bucket."""

    buckets: dict[int, int] = field(default_factory=dict)

    def add(self, micros: int) -> None:
        """Count one duration, in microseconds."""
        bucket = bucket_of(micros)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1

    def merge(self, other: "Histogram") -> None:
        """Add the numbers of *other*."""
        for bucket, number in other.buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + number

    @property
    def count(self) -> int:
        """The number of durations."""
        return sum(self.buckets.values())

    def percentile(self, share: float) -> float | None:
        """Return the duration, in seconds, that a *share* (0 to 1) of all do not exceed.

        None if there are no durations.
        """
        rank = max(1, math.ceil(share * self.count))
        for bucket in sorted(self.buckets):
            rank -= self.buckets[bucket]
            if rank <= 0:
                return _seconds(bucket)
        return None

    def durations(self) -> Iterator[tuple[float, int]]:
        """Yield each duration, in seconds, with its number."""
        return ((_seconds(bucket), number) for bucket, number in self.buckets.items())

    def packed(self) -> list[int]:
        """Return a short list: for each bucket its distance to the previous one, its number."""
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
        for distance, number in zip(numbers[::2], numbers[1::2], strict=True):
            bucket += distance
            buckets[bucket] = number
        return cls(buckets)


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
"""The place in Counts of the number of dead tasks that were cancelled."""

Counts = list[int]
"""Numbers of tasks, or their changes: by state in the order of STATES, then CANCELLED."""


def counts_of(numbers: Iterable[int] = ()) -> Counts:
    """Return counts of *numbers* as stored; missing ones are 0."""
    counts = [0] * (len(STATES) + 1)
    add_counts(counts, numbers)
    return counts


def add_counts(counts: Counts, more: Iterable[int]) -> None:
    """Add *more* to *counts*."""
    for place, number in enumerate(more):
        counts[place] += number


def by_state(counts: Sequence[int]) -> dict[State, int]:
    """Return the numbers of *counts* by state."""
    return dict(zip(STATES, counts[: len(STATES)], strict=True))


def cancelled_of(counts: Sequence[int], dead: int) -> int:
    """Return how many of *dead* tasks were cancelled according to *counts*, which may lag behind.

    The number is rather too small than too large, so that no failure is hidden: tasks that are no
    longer dead may have been cancelled.
    """
    lagging = max(0, counts[_PLACE[State.DEAD]] - dead)
    return min(dead, max(0, counts[CANCELLED] - lagging))


@dataclass(slots=True)
class Activity:
    """The events of one queue in some time; ``numbers`` are in the order of COUNTED.

    ``backlog`` is the change of the number of ENQUEUED tasks.  ``moved`` is the number of tasks
    that workers moved to other queues; no series shows it.
    """

    numbers: list[int] = field(default_factory=lambda: [0] * len(COUNTED))
    wait: Histogram = field(default_factory=Histogram)
    run: Histogram = field(default_factory=Histogram)
    backlog: int = 0
    moved: int = 0

    def add(self, happening: Happening) -> None:
        """Count one event and its duration."""
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
        """Add the numbers and durations of *other*."""
        self.merge_numbers(other)
        self.wait.merge(other.wait)
        self.run.merge(other.run)

    def merge_numbers(self, other: "Activity") -> None:
        """Add the numbers of *other*, without durations."""
        self.numbers = [mine + its for mine, its in zip(self.numbers, other.numbers, strict=True)]
        self.backlog += other.backlog
        self.moved += other.moved

    def text(self) -> str:
        """Return a short text: numbers, wait, run, backlog and moved."""
        parts = (self.numbers, self.wait.packed(), self.run.packed(), (self.backlog, self.moved))
        return "|".join(" ".join(map(str, part)) for part in parts)

    @classmethod
    def of(cls, text: str) -> "Activity":
        """Return the activity that text() wrote."""
        numbers, wait, run, (backlog, moved) = (
            [int(word) for word in part.split()] for part in text.split("|")
        )
        return cls(numbers, Histogram.unpacked(wait), Histogram.unpacked(run), backlog, moved)


Minutes = dict[int, Activity]
"""Activity by minute since 1970."""


@dataclass(slots=True)
class Tally:
    """Changes of the counts of queues, their events by minute, moves between them, and faults."""

    counts: dict[str, Counts] = field(default_factory=dict)
    minutes: dict[str, Minutes] = field(default_factory=dict)
    flows: QueueFlows = field(default_factory=QueueFlows)
    faults: QueueKinds = field(default_factory=dict)

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
            count_faults(self.faults, transition)
        for happening in transition.happenings:
            self._activity(happening.queue, happening.at // MINUTE).add(happening)

    def _step(self, spot: Spot, at: int, step: int, *, cancelled: bool) -> None:
        queue, state = spot
        counts = self._counts(queue)
        counts[_PLACE[state]] += step
        if cancelled:
            counts[CANCELLED] += step
        if state is State.ENQUEUED:
            self._activity(queue, at // MINUTE).backlog += step

    def drop_numbers(self, queue: str) -> None:
        """Forget the numbers of tasks of *queue*, by state and by fault, but not its events."""
        self.counts.pop(queue, None)
        for kind in self.faults.get(queue, {}).values():
            kind.dead = kind.retried = 0

    def merge(self, other: "Tally") -> None:
        """Add the numbers of *other*."""
        for queue, counts in other.counts.items():
            add_counts(self._counts(queue), counts)
        for queue, minutes in other.minutes.items():
            for minute, activity in minutes.items():
                self._activity(queue, minute).merge(activity)
        self.flows.merge(other.flows)
        for queue, kinds in other.faults.items():
            for fingerprint, more in kinds.items():
                count_of(self.faults, queue, fingerprint).merge(more)

    def body(self) -> dict[str, Any]:
        """Return the tally as JSON."""
        return {
            "counts": {queue: list(counts) for queue, counts in self.counts.items() if any(counts)},
            "minutes": {queue: minutes_body(minutes) for queue, minutes in self.minutes.items()},
            "moves": self.flows.body(),
            "faults": kinds_body(self.faults),
        }

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> "Tally":
        """Return the tally that body() wrote."""
        counts = {queue: counts_of(counts) for queue, counts in body["counts"].items()}
        minutes = {queue: minutes_of(body, queue) for queue in body["minutes"]}
        faults = {queue: kinds_of(kinds) for queue, kinds in body["faults"].items()}
        return cls(counts, minutes, QueueFlows.of(body["moves"]), faults)

    def _counts(self, queue: str) -> Counts:
        found = self.counts.get(queue)
        if found is None:
            found = self.counts[queue] = counts_of()
        return found

    def _activity(self, queue: str, minute: int) -> Activity:
        minutes = self.minutes.setdefault(queue, {})
        found = minutes.get(minute)
        if found is None:
            found = minutes[minute] = Activity()
        return found


def minutes_body(minutes: Mapping[int, Activity]) -> dict[str, str]:
    """Return the *minutes* of one queue as JSON."""
    return {str(minute): activity.text() for minute, activity in minutes.items()}


def minutes_of(body: Mapping[str, Any], queue: str) -> Minutes:
    """Return the minutes of one queue from a tally's *body*."""
    found = body["minutes"].get(queue, {})
    return {int(minute): Activity.of(text) for minute, text in found.items()}
