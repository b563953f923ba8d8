"""How busy a queue is, in a hundred bytes: what began in the last hour, what happens now.

It says less than the series does, so that one read is enough for many queues.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.history.tally import MINUTE, Activity
from headrace.history.transitions import Event

SLOT_MINUTES: Final = 5
SLOTS: Final = 12  # an hour
_RECENT: Final = 3  # minutes
_SHOWN: Final = (Event.ENQUEUED, Event.STARTED, Event.SUCCEEDED, Event.FAILED, Event.MOVED)
_PLAIN: Final = 4  # numbers of a minute in which no task was moved on
_ROOM: Final = 24  # bytes besides name and numbers


@dataclass(slots=True)
class Throughput:
    """``started`` counts by slots of five minutes since 1970, ``recent`` all events by minute.

    The numbers of a minute are enqueued, started, succeeded, failed, moved on.
    """

    started: dict[int, int] = field(default_factory=dict)
    recent: dict[int, list[int]] = field(default_factory=dict)

    def add(self, minute: int, activity: Activity) -> None:
        """Count what happened in a minute."""
        numbers = [activity.number(event) for event in _SHOWN]
        if number := activity.number(Event.STARTED):
            slot = minute // SLOT_MINUTES
            self.started[slot] = self.started.get(slot, 0) + number
        before = self.recent.get(minute, [0] * len(_SHOWN))
        self.recent[minute] = [mine + its for mine, its in zip(before, numbers, strict=True)]

    def kept(self, now: int) -> "Throughput | None":
        """Return the part still of use at *now*, in microseconds since 1970; None for nothing."""
        minute = now // MINUTE
        oldest = minute // SLOT_MINUTES - SLOTS
        started = {slot: number for slot, number in self.started.items() if slot >= oldest}
        recent = {at: numbers for at, numbers in self.recent.items() if at > minute - _RECENT}
        return Throughput(started, recent) if started or recent else None

    def hour(self, now: int) -> Sequence[int]:
        """Return how many began in each five minutes of the last hour.

        The five minutes that *now* is in are left out: they are not over, and would look like a
        fall.  Where nothing began before them they are shown as they are.
        """
        slot_now = now // MINUTE // SLOT_MINUTES
        last = slot_now - 1 if any(slot < slot_now for slot in self.started) else slot_now
        return [self.started.get(slot, 0) for slot in range(last - SLOTS + 1, last + 1)]

    def rates(self, now: int) -> Iterator[float]:
        """Yield events per second, from the beginning of the last full minute up to *now*."""
        first = now // MINUTE - 1
        seconds = (now - first * MINUTE) / 1_000_000
        minutes = [numbers for minute, numbers in self.recent.items() if minute >= first]
        for place in range(len(_SHOWN)):
            yield sum(numbers[place] for numbers in minutes) / seconds

    def text(self) -> str:
        """Return it as a short text; of moves only where there are some, in a part of their own."""
        started = (f"{slot} {number}" for slot, number in sorted(self.started.items()))
        recent = (
            " ".join(map(str, (minute, *numbers[:_PLAIN])))
            for minute, numbers in sorted(self.recent.items())
        )
        moved = (
            f"{minute} {numbers[_PLAIN]}"
            for minute, numbers in sorted(self.recent.items())
            if numbers[_PLAIN]
        )
        parts = (" ".join(started), " ".join(recent), " ".join(moved))
        return "|".join(parts if parts[2] else parts[:2])

    @classmethod
    def of(cls, text: str) -> "Throughput":
        """Return the throughput that text() wrote."""
        parts = ([int(word) for word in part.split()] for part in text.split("|"))
        started, recent, *rest = parts
        moved = _by_time(rest[0]) if rest else {}
        width = 1 + _PLAIN
        return cls(
            _by_time(started),
            {
                recent[at]: [*recent[at + 1 : at + width], moved.get(recent[at], 0)]
                for at in range(0, len(recent), width)
            },
        )


def _by_time(pairs: Sequence[int]) -> dict[int, int]:
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


def grown(
    body: Mapping[str, str], minutes: Mapping[str, Mapping[int, Activity]], now: int, most: int
) -> dict[str, str]:
    """The throughputs of *body* with *minutes* added, as JSON; the busiest, in *most* bytes."""
    throughputs = {queue: Throughput.of(text) for queue, text in body.items()}
    for queue, happened in minutes.items():
        throughput = throughputs.setdefault(queue, Throughput())
        for minute, activity in happened.items():
            throughput.add(minute, activity)
    kept = {
        queue: still for queue, throughput in throughputs.items() if (still := throughput.kept(now))
    }
    fitting: dict[str, str] = {}
    for queue in sorted(kept, key=lambda name: (-sum(kept[name].started.values()), name)):
        text = kept[queue].text()
        most -= len(queue) + len(text) + _ROOM
        if most < 0:
            break
        fitting[queue] = text
    return fitting


def throughput_of(body: Mapping[str, Any], queue: str) -> Throughput:
    """Return the throughput of a queue from the *body* that grown() made."""
    text = body.get(queue)
    return Throughput.of(text) if text else Throughput()
