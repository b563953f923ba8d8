"""Tasks that went from one queue to another, added up: who feeds whom, and how much.

A move is a write that took a task out of one queue and put it into another, whoever asked for it.
It is filed under the queue it came to.  Numbers are kept by five minutes for an hour and by the
hour for a day, so that an edge stays some hundred bytes however busy it is.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace.history.transitions import Transition

SLOT: Final = 300_000_000  # in microseconds
_HOUR: Final = 12  # slots
_DAY: Final = 24 * _HOUR
_KEPT: Final = _DAY + _HOUR
_ROOM: Final = 24  # bytes that an edge takes besides its names and numbers

Slots = dict[int, int]
"""How many moves in each slot of five minutes since 1970, or in the hour that begins with it."""


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
            self._add(entered[0], left[0], transition.at // SLOT, 1)

    def merge(self, other: "QueueFlows") -> None:
        """Count everything that *other* has counted."""
        for target, source, slots in other.edges():
            for slot, number in slots.items():
                self._add(target, source, slot, number)

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
        slot_now = now // SLOT
        kept = QueueFlows()
        for target, source, slots in self.edges():
            for slot, number in slots.items():
                if slot > slot_now - _KEPT:
                    hour = slot - slot % _HOUR
                    over = hour <= slot_now - 2 * _HOUR
                    kept._add(target, source, hour if over else slot, number)
        edges = sorted(kept.edges(), key=lambda edge: (-sum(edge[2].values()), edge[:2]))
        room = most
        fitting = QueueFlows()
        for target, source, slots in edges:
            room -= len(target) + len(source) + len(_text(slots)) + _ROOM
            if room < 0:
                break
            fitting.by_target.setdefault(target, {})[source] = slots
        return fitting

    def body(self) -> dict[str, dict[str, str]]:
        """Return it as JSON."""
        return {
            target: {source: _text(slots) for source, slots in sources.items()}
            for target, sources in self.by_target.items()
        }

    @classmethod
    def of(cls, body: Mapping[str, Mapping[str, str]]) -> "QueueFlows":
        """Return the flows that body() wrote."""
        return cls(
            {
                target: {source: _slots(text) for source, text in sources.items()}
                for target, sources in body.items()
            }
        )

    def _add(self, target: str, source: str, slot: int, number: int) -> None:
        slots = self.by_target.setdefault(target, {}).setdefault(source, {})
        slots[slot] = slots.get(slot, 0) + number


def last_hour(slots: Slots, now: int) -> int:
    """Return how many moves there were in the last 55 to 60 minutes before *now*."""
    return sum(number for slot, number in slots.items() if slot > now // SLOT - _HOUR)


def last_day(slots: Slots, now: int) -> int:
    """Return how many moves there were in the last 23 to 24 hours before *now*."""
    return sum(number for slot, number in slots.items() if slot > now // SLOT - _DAY)


def _text(slots: Slots) -> str:
    return " ".join(f"{slot} {number}" for slot, number in sorted(slots.items()))


def _slots(text: str) -> Slots:
    numbers = [int(word) for word in text.split()]
    return dict(zip(numbers[::2], numbers[1::2], strict=True))
