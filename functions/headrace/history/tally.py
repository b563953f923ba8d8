"""What the recorder adds up: tasks by queue and state, events by minute, flows between queues.

Tallies are sums, so they may be merged in any order.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.domain.task import State
from headrace.history.histogram import Histogram
from headrace.history.queue_flows import QueueFlows
from headrace.history.transitions import Event, Happening, Transition

MINUTE: Final = 60_000_000  # in microseconds
STATES: Final = tuple(State)
_PLACE: Final = {state: place for place, state in enumerate(STATES)}
COUNTED: Final = (Event.ENQUEUED, Event.STARTED, Event.SUCCEEDED, Event.FAILED, Event.DEAD)
_COLUMN: Final = {event: column for column, event in enumerate(COUNTED)}

Counts = list[int]
"""Numbers of tasks, in the order of STATES; in a tally, by how much they changed."""


@dataclass(slots=True)
class Activity:
    """The events of one queue in some time; ``numbers`` are in the order of COUNTED.

    ``backlog`` is by how many tasks those that are ENQUEUED became more, or less.
    """

    numbers: list[int] = field(default_factory=lambda: [0] * len(COUNTED))
    wait: Histogram = field(default_factory=Histogram)
    run: Histogram = field(default_factory=Histogram)
    backlog: int = 0

    def add(self, happening: Happening) -> None:
        """Count one event, and how long it took."""
        event = happening.event
        if event is not Event.MOVED:
            self.numbers[_COLUMN[event]] += 1
        if happening.micros is not None:
            (self.wait if event is Event.STARTED else self.run).add(happening.micros)

    def number(self, event: Event) -> int:
        """Return how often *event* happened."""
        return self.numbers[_COLUMN[event]]

    def merge(self, other: "Activity") -> None:
        """Count everything that *other* has counted."""
        self.numbers = [mine + its for mine, its in zip(self.numbers, other.numbers, strict=True)]
        self.wait.merge(other.wait)
        self.run.merge(other.run)
        self.backlog += other.backlog

    def text(self) -> str:
        """Return it as a short text: numbers, wait, run, backlog."""
        parts = (self.numbers, self.wait.packed(), self.run.packed(), [self.backlog])
        return "|".join(" ".join(map(str, part)) for part in parts)

    @classmethod
    def of(cls, text: str) -> "Activity":
        """Return the activity that text() wrote."""
        numbers, wait, run, *more = (
            [int(word) for word in part.split()] for part in text.split("|")
        )
        backlog = more[0][0] if more else 0  # written before there was one
        return cls(numbers, Histogram.unpacked(wait), Histogram.unpacked(run), backlog)


@dataclass(slots=True)
class Tally:
    """How the counts of queues changed, what happened in them minute by minute, and the flows."""

    counts: dict[str, Counts] = field(default_factory=dict)
    minutes: dict[str, dict[int, Activity]] = field(default_factory=dict)
    flows: QueueFlows = field(default_factory=QueueFlows)

    def add(self, transition: Transition) -> None:
        """Count one write of a task."""
        if transition.left != transition.entered:
            for spot, step in ((transition.left, -1), (transition.entered, 1)):
                if spot is not None:
                    queue, state = spot
                    self._counts(queue)[_PLACE[state]] += step
                    if state is State.ENQUEUED:
                        self._activity(queue, transition.at // MINUTE).backlog += step
            self.flows.note(transition)
        self.add_happenings(transition.happenings)

    def add_happenings(self, happenings: Iterable[Happening]) -> None:
        """Count events."""
        for happening in happenings:
            self._activity(happening.queue, happening.at // MINUTE).add(happening)

    def add_count(self, queue: str, place: int, step: int) -> None:
        """Change by *step* how many tasks of *queue* are in the state at *place* of STATES."""
        self._counts(queue)[place] += step

    def merge(self, other: "Tally") -> None:
        """Count everything that *other* has counted."""
        for queue, counts in other.counts.items():
            add_counts(self._counts(queue), counts)
        for queue, minutes in other.minutes.items():
            for minute, activity in minutes.items():
                self._activity(queue, minute).merge(activity)
        self.flows.merge(other.flows)

    def body(self) -> dict[str, Any]:
        """Return it as JSON."""
        minutes = {
            queue: {str(minute): activity.text() for minute, activity in minutes.items()}
            for queue, minutes in self.minutes.items()
        }
        counts = {queue: list(counts) for queue, counts in self.counts.items() if any(counts)}
        return {"counts": counts, "minutes": minutes, "moves": self.flows.body()}

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> "Tally":
        """Return the tally that body() wrote."""
        counts = {queue: list(counts) for queue, counts in body["counts"].items()}
        minutes = {queue: minutes_of(body, queue) for queue in body["minutes"]}
        return cls(counts, minutes, QueueFlows.of(body.get("moves", {})))

    def _counts(self, queue: str) -> Counts:
        found = self.counts.get(queue)
        if found is None:
            found = self.counts[queue] = [0] * len(STATES)
        return found

    def _activity(self, queue: str, minute: int) -> Activity:
        minutes = self.minutes.setdefault(queue, {})
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
