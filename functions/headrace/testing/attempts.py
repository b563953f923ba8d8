"""The attempts of a run, and their outcomes."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.client.sending import Report
from headrace.wire.tasks import LeasedTask


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt: the delivered task, the report, and the outcome of the report.

    ``report`` and ``outcome`` are None if the handler noticed that its lease was lost.  A report
    with an outcome other than ``OK`` had no effect; ``cancelled`` is True if the reason is a
    cancel.
    """

    task: LeasedTask
    report: Report | None
    outcome: str | None
    cancelled: bool = False

    @property
    def counted(self) -> bool:
        """Whether the report took effect."""
        return self.outcome == "OK"

    def __repr__(self) -> str:
        lost = "cancelled" if self.cancelled else "lost"
        result = lost if self.report is None else self.report.status
        error = None if self.report is None else self.report.error
        why = "" if error is None else f": {error.type}: {error.message}"
        late = "" if self.outcome in (None, "OK") else f" ({self.outcome})"
        return (
            f"<{self.task.queue} {self.task.id} attempt {self.task.attempts} {result}{late}{why}>"
        )


@dataclass(frozen=True, slots=True)
class Ran:
    """The attempts of a run, in their order."""

    attempts: tuple[Attempt, ...] = ()

    @property
    def succeeded(self) -> int:
        """How many attempts ended SUCCEEDED."""
        return self._count["SUCCEEDED"]

    @property
    def failed(self) -> int:
        """How many attempts ended FAILED, with or without a retry."""
        return self._count["FAILED"]

    @property
    def moved(self) -> int:
        """How many attempts moved their task on."""
        return self._count["MOVED"]

    @property
    def released(self) -> int:
        """How many attempts released their task, which uses no attempt."""
        return self._count["RELEASED"]

    @property
    def lost(self) -> int:
        """How many attempts had no effect, because their lease was lost without a cancel."""
        return sum(not (attempt.counted or attempt.cancelled) for attempt in self.attempts)

    @property
    def cancelled(self) -> int:
        """How many attempts had no effect, because their task was cancelled."""
        return sum(attempt.cancelled for attempt in self.attempts)

    @property
    def _count(self) -> Counter[str]:
        reports = (attempt.report for attempt in self.attempts if attempt.counted)
        return Counter(report.status for report in reports if report is not None)

    def __len__(self) -> int:
        """Return how many attempts there were."""
        return len(self.attempts)

    def __iter__(self) -> Iterator[Attempt]:
        """Return an iterator over the attempts."""
        return iter(self.attempts)

    def __add__(self, other: "Ran") -> "Ran":
        """Return both runs as one."""
        return Ran(self.attempts + other.attempts)
