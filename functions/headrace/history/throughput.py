"""How busy a queue is, in a few hundred bytes: what began and failed in an hour, what happens now.

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
STEP_MINUTES: Final = 5  # that changes of waiting and dead are told of
_SHOWN: Final = (Event.ENQUEUED, Event.STARTED, Event.SUCCEEDED, Event.FAILED, Event.MOVED)
_PLAIN: Final = 4  # numbers of a minute in which no task was moved on
_ROOM: Final = 24  # bytes besides name and numbers
_PARTS: Final = 5  # of its text
_ALWAYS: Final = 2  # of them
_FEW: Final = 5  # failures say nothing yet
_LEAST_SHARE: Final = 0.05
_TIMES: Final = 3  # as large as usual is worth a word
_MOST: Final = 0.5  # and this whatever is usual: a failure that lasts is none that is usual


@dataclass(frozen=True, slots=True)
class Failing:
    """Too many attempts fail: how many of the last five to ten minutes, what share.

    ``usual`` is the share in the middle of the fifty minutes before, by five; None where nothing
    was started then.
    """

    failed: int
    share: float
    usual: float | None


@dataclass(slots=True)
class Throughput:
    """``started`` and ``failed`` count by slots of five minutes since 1970, the rest by minute.

    The numbers of a ``recent`` minute are enqueued, started, succeeded, failed, moved on; those of
    ``steps`` are by how many more tasks wait, and how many died.
    """

    started: dict[int, int] = field(default_factory=dict)
    recent: dict[int, list[int]] = field(default_factory=dict)
    failed: dict[int, int] = field(default_factory=dict)
    steps: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, minute: int, activity: Activity) -> None:
        """Count what happened in a minute."""
        numbers = [activity.number(event) for event in _SHOWN]
        slot = minute // SLOT_MINUTES
        for event, slots in ((Event.STARTED, self.started), (Event.FAILED, self.failed)):
            if number := activity.number(event):
                slots[slot] = slots.get(slot, 0) + number
        if (step := (activity.backlog, activity.number(Event.DEAD))) != (0, 0):
            waiting, dead = self.steps.get(minute, (0, 0))
            self.steps[minute] = (waiting + step[0], dead + step[1])
        before = self.recent.get(minute, [0] * len(_SHOWN))
        self.recent[minute] = [mine + its for mine, its in zip(before, numbers, strict=True)]

    def kept(self, now: int) -> "Throughput | None":
        """Return the part still of use at *now*, in microseconds since 1970; None for nothing."""
        minute = now // MINUTE
        oldest = minute // SLOT_MINUTES - SLOTS
        started = {slot: number for slot, number in self.started.items() if slot >= oldest}
        recent = {at: numbers for at, numbers in self.recent.items() if at > minute - _RECENT}
        failed = {slot: number for slot, number in self.failed.items() if slot >= oldest}
        steps = {at: step for at, step in self.steps.items() if at > minute - STEP_MINUTES}
        kept = Throughput(started, recent, failed, steps)
        return kept if started or recent or failed or steps else None

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

    def step(self, now: int) -> tuple[int, int]:
        """Return by how many more tasks wait than five minutes ago, and how many died since."""
        since = now // MINUTE - STEP_MINUTES
        steps = [step for minute, step in self.steps.items() if minute > since]
        return sum(step[0] for step in steps), sum(step[1] for step in steps)

    def failing(self, now: int) -> Failing | None:
        """Return what share fails, where that is half, or three times the usual one, at least."""
        last = now // MINUTE // SLOT_MINUTES - 1
        failed = sum(number for slot, number in self.failed.items() if slot >= last)
        if failed < _FEW:
            return None
        started = sum(number for slot, number in self.started.items() if slot >= last)
        share = failed / max(failed, started)
        shares = sorted(
            min(1.0, self.failed.get(slot, 0) / self.started[slot])
            for slot in range(last - SLOTS + 2, last)
            if self.started.get(slot)
        )
        usual = shares[len(shares) // 2] if shares else None
        worth = share >= min(_MOST, max(_LEAST_SHARE, _TIMES * (usual or 0)))
        return Failing(failed, share, usual) if worth else None

    def text(self) -> str:
        """Return it as a short text; parts at the end that say nothing are left out."""
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
        failed = (f"{slot} {number}" for slot, number in sorted(self.failed.items()))
        steps = (f"{minute} {step[0]} {step[1]}" for minute, step in sorted(self.steps.items()))
        parts = [" ".join(part) for part in (started, recent, moved, failed, steps)]
        while len(parts) > _ALWAYS and not parts[-1]:
            parts.pop()
        return "|".join(parts)

    @classmethod
    def of(cls, text: str) -> "Throughput":
        """Return the throughput that text() wrote."""
        parts = ([int(word) for word in part.split()] for part in text.split("|"))
        started, recent, moves, failed, steps = (*parts, *([],) * _PARTS)[:_PARTS]
        moved = _by_time(moves)
        width = 1 + _PLAIN
        return cls(
            _by_time(started),
            {
                recent[at]: [*recent[at + 1 : at + width], moved.get(recent[at], 0)]
                for at in range(0, len(recent), width)
            },
            _by_time(failed),
            {steps[at]: (steps[at + 1], steps[at + 2]) for at in range(0, len(steps), 3)},
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
