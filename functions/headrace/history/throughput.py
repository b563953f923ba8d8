"""How busy a queue is, by its minutes of the last hour.

Totals keep these minutes without durations, and those over five minutes old by five minutes, so
that one read is enough for many queues.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.domain.instants import MINUTE
from headrace.domain.transitions import Event
from headrace.history.tally import Activity, minutes_of

SLOT_MINUTES: Final = 5
SLOTS: Final = 12  # an hour
_SHOWN: Final = (Event.ENQUEUED, Event.STARTED, Event.SUCCEEDED, Event.FAILED, Event.MOVED)
_ROOM: Final = 6  # bytes that a queue or a minute takes besides its texts
_FEW: Final = 5  # failures say nothing yet
_LEAST_SHARE: Final = 0.05
_TIMES: Final = 3  # as large as usual is worth a word
_MOST: Final = 0.5  # and this whatever is usual: a failure that lasts is none that is usual


@dataclass(frozen=True, slots=True)
class Failing:
    """Too many attempts fail: how many of the last five to ten minutes, what share.

    ``usual`` is the median share of the fifty minutes before, by five; None where nothing was
    started then.
    """

    failed: int
    share: float
    usual: float | None


@dataclass(slots=True)
class Throughput:
    """The minutes of a queue since 1970; one that is over five minutes old may stand for five."""

    minutes: dict[int, Activity] = field(default_factory=dict)

    def add(self, minutes: Mapping[int, Activity]) -> None:
        """Count what happened in *minutes*, except for durations."""
        for minute, activity in minutes.items():
            self.minutes.setdefault(minute, Activity()).merge_numbers(activity)

    def kept(self, now: int) -> "Throughput":
        """Return the part still of use at *now*, in microseconds since 1970."""
        minute, kept = now // MINUTE, Throughput()
        oldest = minute // SLOT_MINUTES - SLOTS
        for at, activity in self.minutes.items():
            if at // SLOT_MINUTES >= oldest:
                single = at > minute - SLOT_MINUTES
                kept.add({at if single else at - at % SLOT_MINUTES: activity})
        return kept

    def hour(self, now: int) -> Sequence[int]:
        """Return how many began in each five minutes of the last hour.

        The five minutes that *now* is in are left out: they are not over, and would look like a
        fall.  Where nothing began before them they are shown as they are.
        """
        started, slot_now = self._by_slot(Event.STARTED), now // MINUTE // SLOT_MINUTES
        last = slot_now - 1 if any(slot < slot_now for slot in started) else slot_now
        return [started.get(slot, 0) for slot in range(last - SLOTS + 1, last + 1)]

    def rates(self, now: int) -> Iterator[float]:
        """Yield events per second, from the beginning of the last full minute up to *now*."""
        first = now // MINUTE - 1
        seconds = (now - first * MINUTE) / 1_000_000
        for event in _SHOWN:
            yield sum(one.number(event) for one in self._since(first)) / seconds

    def step(self, now: int) -> tuple[int, int]:
        """Return by how many more tasks wait than five minutes ago, and how many died since."""
        recent = self._since(now // MINUTE - SLOT_MINUTES + 1)
        return sum(one.backlog for one in recent), sum(one.number(Event.DEAD) for one in recent)

    def failing(self, now: int) -> Failing | None:
        """Return what share fails, where that is half, or three times the usual one, at least."""
        last = now // MINUTE // SLOT_MINUTES - 1
        failures, starts = self._by_slot(Event.FAILED), self._by_slot(Event.STARTED)
        failed = sum(number for slot, number in failures.items() if slot >= last)
        if failed < _FEW:
            return None
        started = sum(number for slot, number in starts.items() if slot >= last)
        share = failed / max(failed, started)
        shares = sorted(
            min(1.0, failures.get(slot, 0) / starts[slot])
            for slot in range(last - SLOTS + 2, last)
            if slot in starts
        )
        usual = shares[len(shares) // 2] if shares else None
        worth = share >= min(_MOST, max(_LEAST_SHARE, _TIMES * (usual or 0)))
        return Failing(failed, share, usual) if worth else None

    def _since(self, first: int) -> list[Activity]:
        return [activity for minute, activity in self.minutes.items() if minute >= first]

    def _by_slot(self, event: Event) -> dict[int, int]:
        """Return how often *event* happened by five minutes, without those in which it did not."""
        slots: dict[int, int] = {}
        for minute, activity in self.minutes.items():
            if number := activity.number(event):
                slot = minute // SLOT_MINUTES
                slots[slot] = slots.get(slot, 0) + number
        return slots


def recent_minutes(
    totals: Mapping[str, Any],
    minutes: Mapping[str, Mapping[int, Activity]],
    now: int,
    most: int,
) -> dict[str, dict[str, str]]:
    """Return the minutes of a body of *totals* with more *minutes*, as JSON.

    Of more queues than fit into *most* bytes the busiest stay.
    """
    kept: dict[str, Throughput] = {}
    for queue in totals["minutes"].keys() | minutes.keys():
        throughput = Throughput(minutes_of(totals, queue))
        throughput.add(minutes.get(queue, {}))
        kept[queue] = throughput.kept(now)
    started = {queue: sum(one.hour(now)) for queue, one in kept.items()}
    fitting: dict[str, dict[str, str]] = {}
    for queue in sorted(kept, key=lambda name: (-started[name], name)):
        texts = {str(minute): one.text() for minute, one in kept[queue].minutes.items()}
        most -= len(queue) + _ROOM
        most -= sum(len(minute) + len(text) + _ROOM for minute, text in texts.items())
        if most < 0:
            break
        if texts:
            fitting[queue] = texts
    return fitting
