"""The figures of a station's batches, for people, programs and logs."""

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.runtime.metrics import COUNT, SECONDS, Measured

_LOG: Final = logging.getLogger("headrace.station")
_SETTLED: Final = ("moved", "succeeded", "retried", "dead", "released")


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch: numbers of tasks by outcome, and seconds.

    ``dropped`` tasks have no row of the transform; ``cancelled`` ones were cancelled before that;
    ``lost`` ones had another lease by then, or were settled otherwise.  ``poison`` counts
    the ``dead`` tasks that made the transform fail.
    """

    number: int
    seconds: float
    counts: Mapping[str, int]
    reasons: Mapping[str, list[str]] = field(default_factory=dict)
    lost_lease: bool = False

    @property
    def tasks(self) -> int:
        """Return how many tasks were settled."""
        return sum(self.counts.get(outcome, 0) for outcome in (*_SETTLED, "dropped"))

    @property
    def per_second(self) -> float:
        """Return how many tasks a second were settled."""
        return self.tasks / self.seconds if self.seconds else 0.0

    def body(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "batch": self.number,
            "tasks": self.tasks,
            "seconds": round(self.seconds, 3),
            "tasks_per_second": round(self.per_second, 1),
            **dict(sorted(self.counts.items())),
            **({"reasons": dict(self.reasons)} if self.reasons else {}),
            **({"lost_lease": True} if self.lost_lease else {}),
        }

    def line(self) -> str:
        """Return it as a line for people."""
        counts = ", ".join(f"{number:,} {outcome}" for outcome, number in self.counts.items())
        text = f"batch {self.number}: {counts or 'nothing'} in {self.seconds:.1f} s"
        text += f" ({self.per_second:,.0f} tasks/s)"
        reasons = "; ".join(
            f"{outcome}: {samples[0]}" for outcome, samples in self.reasons.items() if samples
        )
        return f"{text}; {reasons}" if reasons else text


@dataclass(slots=True)
class Run:
    """All batches of a run together; ``why`` it ended: drained, until, stopped."""

    batches: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    why: str = ""

    @property
    def tasks(self) -> int:
        """Return how many tasks were settled."""
        return Batch(0, 0.0, self.counts).tasks

    def add(self, batch: Batch) -> None:
        """Add a batch."""
        self.batches += 1
        self.seconds += batch.seconds
        self.counts.update(batch.counts)

    def merge(self, other: "Run") -> None:
        """Add the batches of *other*, a later run; it ended for the reason of *other*."""
        self.batches += other.batches
        self.seconds += other.seconds
        self.counts.update(other.counts)
        self.why = other.why

    def ended(self, why: str) -> "Run":
        """Note why it ended; return it."""
        self.why = why
        return self

    def body(self) -> dict[str, Any]:
        """Return it as plain data."""
        rate = self.tasks / self.seconds if self.seconds else 0.0
        return {
            "ended": self.why,
            "batches": self.batches,
            "tasks": self.tasks,
            "seconds": round(self.seconds, 3),
            "tasks_per_second": round(rate, 1),
            **dict(sorted(self.counts.items())),
        }


def of_batch(batch: Batch) -> Measured:
    """Return the metrics of *batch* for CloudWatch."""
    return {
        "Tasks": (batch.tasks, COUNT),
        "Retried": (batch.counts.get("retried", 0), COUNT),
        "Dead": (batch.counts.get("dead", 0), COUNT),
        "BatchSeconds": (round(batch.seconds, 3), SECONDS),
    }


class PrometheusFigures:
    """Counters of the batches of all stations of this process; needs ``headrace[prometheus]``."""

    def __init__(self) -> None:
        from prometheus_client import Counter as Total  # noqa: PLC0415 (an extra)
        from prometheus_client import Summary  # noqa: PLC0415 (an extra)

        self._tasks = Total(
            "headrace_station_tasks", "Tasks by outcome.", labelnames=("station", "outcome")
        )
        self._seconds = Summary(
            "headrace_station_batch_seconds", "Seconds of a batch.", labelnames=("station",)
        )

    def add(self, station: str, batch: Batch) -> None:
        """Add *batch* of *station*."""
        for outcome, number in batch.counts.items():
            self._tasks.labels(station, outcome).inc(number)
        self._seconds.labels(station).observe(batch.seconds)


def logged(batch: Batch) -> None:
    """Write a batch to the log, as one line."""
    _LOG.info("%s", batch.line(), extra={"headrace": batch.body()})
