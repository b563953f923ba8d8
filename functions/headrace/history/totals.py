"""The totals of all queues: numbers of tasks, moves, and the last hour's events by minute.

They are kept in buckets, chosen by the queue's name, so that few reads show all queues.  The
minutes have no durations, and those over five minutes old are kept by five minutes.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.domain.task import State
from headrace.domain.times import MINUTE
from headrace.domain.transitions import Event
from headrace.history.flows import QueueFlows
from headrace.history.tally import (
    STATES,
    Activity,
    Counts,
    Minutes,
    Tally,
    add_counts,
    counts_of,
    minutes_body,
    minutes_of,
)
from headrace.store.base import Record

BUCKETS: Final = 64
FLOWS_BYTES: Final = 32 * 1024  # of a bucket
MINUTES_BYTES: Final = 48 * 1024  # of a bucket
SLOT_MINUTES: Final = 5
SLOTS: Final = 12  # an hour
_SHOWN: Final = (Event.ENQUEUED, Event.STARTED, Event.SUCCEEDED, Event.FAILED, Event.MOVED)
_ROOM: Final = 6  # bytes that a queue or a minute takes besides its texts
_FEW: Final = 5  # so few failures are not reported
_LEAST_SHARE: Final = 0.05
_TIMES: Final = 3  # a share so many times as large as usual is reported
_MOST: Final = 0.5  # and so is this share, even if it is usual

Body = Mapping[str, Any]
"""The body of a record of totals, or of a buffer."""

EMPTY: Final[Body] = {"posted": {}, "counts": {}, "minutes": {}, "moves": {}}


def bucket_of(queue: str) -> int:
    """Return the bucket of *queue*, always the same one."""
    return zlib.crc32(queue.encode()) % BUCKETS


def counted(queue: str, body: Body, buffers: Iterable[Record]) -> Counts:
    """Return the counts of *queue* in a bucket's *body* and in the *buffers* not posted to it."""
    counts = counts_of(body["counts"].get(queue, ()))
    for buffer in _unposted(body, buffers):
        add_counts(counts, buffer.body["counts"].get(queue, ()))
    return counts


def with_counts(body: Body, counts: Mapping[str, Counts]) -> dict[str, Any]:
    """Return a bucket's *body* with these *counts*, without queues whose counts are all 0."""
    merged = {**body["counts"], **counts}
    return {**body, "counts": {queue: sums for queue, sums in merged.items() if any(sums)}}


def with_buffer(body: Body, buffer: Record, tally: Tally, now: int) -> Body | None:
    """Return a bucket's *body* with the *tally* of a buffer; None if the body has it already.

    *now* is in microseconds since 1970.
    """
    if not _unposted(body, [buffer]):
        return None
    counts = {queue: counted(queue, body, [buffer]) for queue in tally.counts}
    flows = QueueFlows.of(body["moves"])
    flows.merge(tally.flows)
    return {
        **with_counts(body, counts),
        "posted": {**body["posted"], buffer.name: buffer.version},
        "moves": flows.kept(now, FLOWS_BYTES).body(),
        "minutes": _recent_minutes(body, tally.minutes, now),
    }


def _unposted(body: Body, buffers: Iterable[Record]) -> list[Record]:
    return [one for one in buffers if body["posted"].get(one.name, 0) < one.version]


def _recent_minutes(
    body: Body, minutes: Mapping[str, Minutes], now: int
) -> dict[str, dict[str, str]]:
    """Return the minutes of *body* with more *minutes*; the busiest queues, if not all fit."""
    kept: dict[str, Throughput] = {}
    for queue in body["minutes"].keys() | minutes.keys():
        throughput = Throughput(minutes_of(body, queue))
        throughput.add(minutes.get(queue, {}))
        kept[queue] = throughput.kept(now)
    started = {queue: sum(one.hour(now)) for queue, one in kept.items()}
    fitting: dict[str, dict[str, str]] = {}
    room = MINUTES_BYTES
    for queue in sorted(kept, key=lambda name: (-started[name], name)):
        texts = minutes_body(kept[queue].minutes)
        room -= len(queue) + _ROOM
        room -= sum(len(minute) + len(text) + _ROOM for minute, text in texts.items())
        if room < 0:
            break
        if texts:
            fitting[queue] = texts
    return fitting


@dataclass(frozen=True, slots=True)
class Failing:
    """Too many attempts fail: the number and the share of the last five to ten minutes.

    ``usual`` is the median share of the fifty minutes before, by five minutes; None if nothing was
    started then.
    """

    failed: int
    share: float
    usual: float | None


@dataclass(slots=True)
class Throughput:
    """The events of a queue by minute; a minute over five minutes old may stand for five."""

    minutes: Minutes = field(default_factory=dict)

    def add(self, minutes: Mapping[int, Activity]) -> None:
        """Count the events of *minutes*, without durations."""
        for minute, activity in minutes.items():
            self.minutes.setdefault(minute, Activity()).merge_numbers(activity)

    def kept(self, now: int) -> "Throughput":
        """Return the minutes of the last hour; *now* is in microseconds since 1970."""
        minute, kept = now // MINUTE, Throughput()
        oldest = minute // SLOT_MINUTES - SLOTS
        for at, activity in self.minutes.items():
            if at // SLOT_MINUTES >= oldest:
                single = at > minute - SLOT_MINUTES
                kept.add({at if single else at - at % SLOT_MINUTES: activity})
        return kept

    def hour(self, now: int) -> Sequence[int]:
        """Return the number of starts in each five minutes of the last hour.

        The five minutes of *now* are left out, because they are not over and would look like a
        fall, unless nothing was started before them.
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
        """Return the changes in five minutes: of the waiting tasks, and the number of deaths."""
        recent = self._since(now // MINUTE - SLOT_MINUTES + 1)
        return sum(one.backlog for one in recent), sum(one.number(Event.DEAD) for one in recent)

    def failing(self, now: int) -> Failing | None:
        """Return the share that fails, if it is at least a half or three times the usual share."""
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
        reported = share >= min(_MOST, max(_LEAST_SHARE, _TIMES * (usual or 0)))
        return Failing(failed, share, usual) if reported else None

    def _since(self, first: int) -> list[Activity]:
        return [activity for minute, activity in self.minutes.items() if minute >= first]

    def _by_slot(self, event: Event) -> dict[int, int]:
        """Return how often *event* happened by five minutes; no entry if it did not happen."""
        slots: dict[int, int] = {}
        for minute, activity in self.minutes.items():
            if number := activity.number(event):
                slot = minute // SLOT_MINUTES
                slots[slot] = slots.get(slot, 0) + number
        return slots


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals of all queues, as read at one moment."""

    buffers: Sequence[Record]
    buckets: Mapping[int, Body]

    @property
    def as_of(self) -> int | None:
        """The time of the latest change counted, in microseconds since 1970; None before it."""
        return max((buffer.body["as_of"] for buffer in self.buffers), default=0) or None

    def queues(self) -> set[str]:
        """Return the queues that have had tasks."""
        bodies = [*self.buckets.values(), *(buffer.body for buffer in self.buffers)]
        return {name for body in bodies for name in body["counts"]}

    def counts(self, queue: str) -> Counts:
        """Return the numbers of tasks of *queue*."""
        return counted(queue, self._bucket(queue), self.buffers)

    def number(self, queue: str, state: State) -> int:
        """Return the number of tasks of *queue* in one state."""
        return max(0, self.counts(queue)[STATES.index(state)])

    def dead(self, queue: str) -> int | None:
        """Return the number of dead tasks of *queue*; None before anything was counted."""
        return None if self.as_of is None else self.number(queue, State.DEAD)

    def throughput(self, queue: str) -> Throughput:
        """Return the throughput of *queue*; empty if hundreds of other queues are busier."""
        body = self._bucket(queue)
        throughput = Throughput(minutes_of(body, queue))
        for buffer in _unposted(body, self.buffers):
            throughput.add(minutes_of(buffer.body, queue))
        return throughput

    def flows(self) -> QueueFlows:
        """Return the moves of the last 24 to 25 hours."""
        flows = QueueFlows()
        for body in self.buckets.values():
            flows.merge(QueueFlows.of(body["moves"]))
        for buffer in self.buffers:
            for target, sources in buffer.body["moves"].items():
                if _unposted(self._bucket(target), [buffer]):
                    flows.merge(QueueFlows.of({target: sources}))
        return flows

    def _bucket(self, queue: str) -> Body:
        return self.buckets.get(bucket_of(queue), EMPTY)
