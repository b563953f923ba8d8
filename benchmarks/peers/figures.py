"""From stamps to figures: the same arithmetic for every peer, and no clock or file in it."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.peers.cpu import CpuReading
from benchmarks.peers.stamp import RECORD
from benchmarks.results import median, percentile

_NANOSECONDS: Final = 1_000_000_000
# The rate is taken between these shares of the tasks, so that one who has nothing left to do does
# not count; and not before all workers have begun, unless one takes too long for that.
FROM: Final = 0.1
LATEST_FROM: Final = 0.5
TO: Final = 0.9


@dataclass(frozen=True, slots=True)
class Stamp:
    """A task that ran: its number, when (nanoseconds of the machine's clock), in which worker."""

    number: int
    at: int
    worker: int


@dataclass(frozen=True, slots=True)
class Drain:
    """One queue that two workers have emptied.

    The least share of the tasks is that of the idler worker; CPU is in seconds per 1,000 tasks, NaN
    where it cannot be read.
    """

    tasks: int
    per_second: float
    seconds: float
    repeated: int
    least_share: float
    workers_cpu: float = math.nan
    broker_cpu: float = math.nan


def stamps_in(content: bytes) -> list[Stamp]:
    """Return the stamps of a file in the order of their time; a half written last one is none."""
    whole = len(content) - len(content) % RECORD.size
    stamps = [Stamp(*record) for record in RECORD.iter_unpack(content[:whole])]
    return sorted(stamps, key=lambda stamp: stamp.at)


def drained(stamps: Sequence[Stamp], workers: int, readings: Sequence[CpuReading] = ()) -> Drain:
    """The figures of a drain of at least ten tasks; CPU from its first and last reading.

    Raises:
        ValueError: fewer than ten tasks have run.

    """
    first: dict[int, Stamp] = {}
    for stamp in stamps:
        first.setdefault(stamp.number, stamp)
    tasks = list(first.values())
    if len(tasks) < 10:
        raise ValueError(f"A rate needs at least 10 tasks: there are {len(tasks)}.")
    high = int(TO * len(tasks))
    low = max(int(FROM * len(tasks)), min(_all_begun(tasks), int(LATEST_FROM * len(tasks))))
    counts = [sum(stamp.worker == worker for stamp in tasks) for worker in range(workers)]
    return Drain(
        tasks=len(tasks),
        per_second=(high - low) * _NANOSECONDS / max(tasks[high].at - tasks[low].at, 1),
        seconds=(tasks[-1].at - tasks[0].at) / _NANOSECONDS,
        repeated=len(stamps) - len(tasks),
        least_share=min(counts) / len(tasks),
        workers_cpu=_per_thousand(readings, lambda reading: reading.workers),
        broker_cpu=_per_thousand(readings, lambda reading: reading.broker),
    )


def probe_waits(sent: Mapping[int, int], stamps: Sequence[Stamp]) -> list[float]:
    """The milliseconds until tasks started that were *sent* at these nanoseconds, by number."""
    return [(stamp.at - sent[stamp.number]) / 1e6 for stamp in stamps if stamp.number in sent]


def summary(drains: Sequence[Drain], waits: Sequence[float]) -> dict[str, Any]:
    """Return a peer's figures over all rounds, for the JSON file and the table."""
    rates = [drain.per_second for drain in drains]
    return {
        "per_second": statistics.median(rates),
        "per_second_by_round": rates,
        "per_second_least": min(rates),
        "per_second_most": max(rates),
        "drain_seconds": statistics.median(drain.seconds for drain in drains),
        "workers_cpu_per_1000": median([drain.workers_cpu for drain in drains]),
        "broker_cpu_per_1000": median([drain.broker_cpu for drain in drains]),
        "cpu_per_1000": median([drain.workers_cpu + drain.broker_cpu for drain in drains]),
        "tasks": drains[0].tasks,
        "rounds": len(drains),
        "repeated": sum(drain.repeated for drain in drains),
        "least_share": min(drain.least_share for drain in drains),
        "idle_p50_ms": median(waits) if waits else None,
        "idle_p95_ms": percentile(waits, 95) if waits else None,
        "idle_tasks": len(waits),
    }


def ratio(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> float:
    """Return the median over the rounds of our rate : theirs, both taken within minutes."""
    rounds = zip(ours["per_second_by_round"], theirs["per_second_by_round"], strict=True)
    return median([one / other for one, other in rounds])


def _all_begun(tasks: Sequence[Stamp]) -> int:
    """The number of tasks that had run, in their order, when the last of their workers began."""
    begun = {stamp.worker: place for place, stamp in reversed(list(enumerate(tasks)))}
    return max(begun.values())


def _per_thousand(readings: Sequence[CpuReading], of: Callable[[CpuReading], float]) -> float:
    if not readings or readings[-1].tasks == readings[0].tasks:
        return math.nan
    first, last = readings[0], readings[-1]
    return 1000 * (of(last) - of(first)) / (last.tasks - first.tasks)
