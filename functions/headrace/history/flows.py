"""Moves of tasks between queues, and numbers by time slot.

A move is a write that took a task out of one queue and put it into another, by a worker or by an
operator.  It is counted for the queue that the task entered.

Slots keep numbers of the last day small: one number for each five minutes of the last hour, and
one for each earlier hour.  So an edge between two queues takes some hundred bytes, however busy
it is.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from headrace.domain.task import State
from headrace.domain.times import instant_of, micros_of
from headrace.domain.transitions import Transition
from headrace.ops.shared.service_part import ServicePart
from headrace.store.call_scope import visible

SLOT: Final = 300_000_000  # microseconds
HOUR: Final = 12  # slots
DAY: Final = 24 * HOUR
_KEPT: Final = DAY + HOUR
_ROOM: Final = 24  # bytes that an edge takes besides its names and numbers

Slots = dict[int, int]
"""A number for each slot of five minutes since 1970, or for the hour that begins with it."""


def add_slots(slots: Slots, more: Slots) -> None:
    """Add *more* to *slots*."""
    for slot, number in more.items():
        slots[slot] = slots.get(slot, 0) + number


def recent(slots: Slots, now: int) -> Slots:
    """Return *slots* without those over a day old; *now* is in microseconds since 1970.

    An hour that ended an hour ago becomes one number.
    """
    slot_now = now // SLOT
    kept: Slots = {}
    for slot, number in slots.items():
        if slot > slot_now - _KEPT:
            hour = slot - slot % HOUR
            over = hour <= slot_now - 2 * HOUR
            add_slots(kept, {hour if over else slot: number})
    return kept


def last_hour(slots: Slots, now: int) -> int:
    """Return the number of the last 55 to 60 minutes before *now*."""
    return sum(number for slot, number in slots.items() if slot > now // SLOT - HOUR)


def last_day(slots: Slots, now: int) -> int:
    """Return the number of the last 23 to 24 hours before *now*."""
    return sum(number for slot, number in slots.items() if slot > now // SLOT - DAY)


def by_hour(slots: Slots, now: int) -> tuple[int, ...]:
    """Return the numbers of the last 24 hours of the clock, *now* in the last of them."""
    last = now // SLOT // HOUR
    hours = dict.fromkeys(range(last - 23, last + 1), 0)
    for slot, number in slots.items():
        if slot // HOUR in hours:
            hours[slot // HOUR] += number
    return tuple(hours.values())


def _text_of(slots: Slots) -> str:
    return " ".join(f"{slot} {number}" for slot, number in sorted(slots.items()))


def _slots_of(text: str) -> Slots:
    numbers = [int(word) for word in text.split()]
    return dict(zip(numbers[::2], numbers[1::2], strict=True))


@dataclass(slots=True)
class QueueFlows:
    """How often a task went from one queue to another: ``by_target[target][source][slot]``."""

    by_target: dict[str, dict[str, Slots]] = field(default_factory=dict)

    def note(self, transition: Transition) -> None:
        """Count *transition*, if it is a move."""
        left, entered = transition.left, transition.entered
        if left is not None and entered is not None and left[0] != entered[0]:
            self._add(entered[0], left[0], {transition.at // SLOT: 1})

    def merge(self, other: "QueueFlows") -> None:
        """Add the numbers of *other*."""
        for target, source, slots in other.edges():
            self._add(target, source, slots)

    def edges(self) -> Iterator[tuple[str, str, Slots]]:
        """Yield target, source and numbers of each edge."""
        for target, sources in self.by_target.items():
            for source, slots in sources.items():
                yield target, source, slots

    def to(self, target: str) -> "QueueFlows":
        """Return the moves to *target*."""
        sources = self.by_target.get(target)
        return QueueFlows({target: sources} if sources else {})

    def kept(self, now: int, most: int) -> "QueueFlows":
        """Return the busiest edges of the last day that fit into *most* bytes."""
        found = [(target, source, recent(slots, now)) for target, source, slots in self.edges()]
        edges = sorted(found, key=lambda edge: (-sum(edge[2].values()), edge[:2]))
        kept = QueueFlows()
        for target, source, slots in edges:
            most -= len(target) + len(source) + len(_text_of(slots)) + _ROOM
            if most < 0:
                break
            if slots:
                kept._add(target, source, slots)
        return kept

    def body(self) -> dict[str, dict[str, str]]:
        """Return the flows as JSON."""
        return {
            target: {source: _text_of(slots) for source, slots in sources.items()}
            for target, sources in self.by_target.items()
        }

    @classmethod
    def of(cls, body: Mapping[str, Mapping[str, str]]) -> "QueueFlows":
        """Return the flows that body() wrote."""
        return cls(
            {
                target: {source: _slots_of(text) for source, text in sources.items()}
                for target, sources in body.items()
            }
        )

    def _add(self, target: str, source: str, slots: Slots) -> None:
        add_slots(self.by_target.setdefault(target, {}).setdefault(source, {}), slots)


@dataclass(frozen=True, slots=True)
class Flow:
    """The number of tasks that went from one queue to another, in the last hour and day.

    Numbers are kept by five minutes and by hour, so both periods are that inexact.
    """

    source: str
    target: str
    hour: int
    day: int


@dataclass(frozen=True, slots=True)
class FlowMap:
    """Flows, the busiest first, and the number of enqueued tasks of each of their queues.

    ``as_of`` is the time of the latest change counted; None before the first one.
    """

    flows: tuple[Flow, ...]
    enqueued: Mapping[str, int]
    as_of: datetime | None


class Flows(ServicePart):
    """Shows the moves between queues."""

    def last_day(self) -> FlowMap:
        """Return the moves of the last day between the queues of the caller.

        An edge to or from a queue of others is left out: it would disclose their tasks.
        This takes two reads, for any number of queues.
        """
        totals, now = self.service.counters.totals(), micros_of(self.now())
        flows = [
            Flow(source, target, last_hour(slots, now), last_day(slots, now))
            for target, source, slots in totals.flows().edges()
            if visible(source) and visible(target)
        ]
        seen = sorted(
            (flow for flow in flows if flow.day),
            key=lambda flow: (-flow.day, flow.source, flow.target),
        )
        queues = {queue for flow in seen for queue in (flow.source, flow.target)}
        enqueued = {name: totals.number(name, State.ENQUEUED) for name in sorted(queues)}
        counted = totals.as_of
        return FlowMap(tuple(seen), enqueued, None if counted is None else instant_of(counted))
