"""Rows as reports: each task is settled by the ``action`` of its row, in one conditional write.

Every write asks for the lease that the row names, so whoever sends a row again, or late, changes
nothing.  A row that cannot be carried out is no reason to fail its whole batch: its task is dead,
with the reason.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import Final

from headrace.domain.task import State
from headrace.ops.delivery.reports import (
    ReportOutcome,
    ReportResult,
    Reports,
    ReportStatus,
    TaskReport,
    WorkerError,
)
from headrace.spark.sources.connect import LANES, StoreConnection, opened
from headrace.spark.sources.rows import SPAWN, BadRow, SettlingRow, fitted, report_of

_AT_A_TIME: Final = 500
_SAMPLES: Final = 3
_BAD: Final = "BadRow"


@dataclass(frozen=True, slots=True)
class Outlet:
    """Where rows are settled: tasks of *queue*; *to* is where a row goes that names no queue."""

    connection: StoreConnection
    queue: str
    to: str | None = None

    @property
    def default(self) -> str:
        """Return the action of a row that names none."""
        return "move" if self.to else "succeed"


@dataclass(slots=True)
class SettleSummary:
    """The outcome of rows: numbers of tasks by outcome, and a few reasons of each bad one.

    ``amiss`` are those of ``counts`` that were not settled as their rows say, by outcome too: of
    those that were retried or are dead the ones whose rows could not be carried out, and all that
    were lost.  ``why`` is the first reason of each outcome among them.
    """

    counts: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, list[str]] = field(default_factory=dict)
    amiss: Counter[str] = field(default_factory=Counter)
    why: dict[str, str] = field(default_factory=dict)

    def note(self, outcome: str, reason: str | None = None, *, amiss: bool = False) -> None:
        """Count one task."""
        self.counts[outcome] += 1
        if amiss:
            self.amiss[outcome] += 1
            self.why.setdefault(outcome, reason or "")
        samples = self.reasons.setdefault(outcome, []) if reason else []
        if reason and len(samples) < _SAMPLES:
            samples.append(reason)

    def merge(self, other: "SettleSummary") -> None:
        """Add what another has counted."""
        self.counts += other.counts
        self.amiss += other.amiss
        self.why = {**other.why, **self.why}
        for outcome, samples in other.reasons.items():
            mine = self.reasons.setdefault(outcome, [])
            mine += samples[: _SAMPLES - len(mine)]


@dataclass(slots=True)
class RowRuns:
    """How the rows of one partition stand: the task of each run of rows, and which tasks spawn."""

    ids: list[str] = field(default_factory=list)
    spawning: set[str] = field(default_factory=set)

    def watched(self, rows: Iterable[SettlingRow]) -> Iterator[SettlingRow]:
        """Yield *rows*, and note how they stand."""
        for row in rows:
            if not self.ids or self.ids[-1] != row.id:
                self.ids.append(row.id)
            if row.action == SPAWN:
                self.spawning.add(row.id)
            yield row


def apart(parts: Sequence[RowRuns]) -> list[str]:
    """Return the tasks that spawn and whose rows stand apart, in one of *parts* or in several.

    The first run of rows has settled such a task, without the children that the others tell of.
    """
    runs = Counter(id_ for part in parts for id_ in part.ids)
    return sorted(id_ for id_ in set().union(*(part.spawning for part in parts)) if runs[id_] > 1)


def settle(outlet: Outlet, rows: Iterable[SettlingRow]) -> SettleSummary:
    """Settle the tasks of *rows*, in which all rows of a task stand together; return the outcomes.

    Raises Unavailable when the table stays throttled: then it may be called again.
    """
    summary = SettleSummary()
    waiting: list[TaskReport] = []
    births: list[TaskReport] = []
    for _, of_task in groupby(rows, key=attrgetter("id")):
        report = _checked(outlet, list(of_task))
        (births if report.spawn else waiting).append(report)
        if len(waiting) + len(births) >= _AT_A_TIME:
            _send(outlet, waiting, births, summary)
            waiting, births = [], []
    _send(outlet, waiting, births, summary)
    return summary


def _checked(outlet: Outlet, rows: Sequence[SettlingRow]) -> TaskReport:
    try:
        return report_of(rows, to=outlet.to)
    except BadRow as wrong:
        error = WorkerError(_BAD, fitted(str(wrong)))
        first = rows[0]
        return TaskReport(first.id, first.lease, ReportStatus.FAILED, error=error, retryable=False)


def _send(
    outlet: Outlet,
    reports: Sequence[TaskReport],
    births: Sequence[TaskReport],
    summary: SettleSummary,
) -> None:
    """Send *reports* in batches, and each of *births* in a transaction of its own."""
    use_case = opened(outlet.connection).reports
    results = use_case.report(outlet.queue, reports) if reports else []
    for report, result in zip(reports, results, strict=True):
        _note(outlet, use_case, report, result, summary)
    if not births:
        return
    singles = _pool().map(lambda report: use_case.report(outlet.queue, [report])[0], births)
    for report, result in zip(births, singles, strict=True):
        _note(outlet, use_case, report, result, summary)
        if result.outcome is ReportOutcome.OK:
            summary.counts["spawned"] += len(report.spawn)


def _note(
    outlet: Outlet,
    use_case: Reports,
    report: TaskReport,
    result: ReportResult,
    summary: SettleSummary,
) -> None:
    if result.outcome is ReportOutcome.INVALID:  # such as a queue that is not there: it may come
        error = WorkerError(_BAD, result.detail or "")
        report = TaskReport(report.task_id, report.lease_id, ReportStatus.FAILED, error=error)
        result = use_case.report(outlet.queue, [report])[0]
    if result.outcome is not ReportOutcome.OK:
        summary.note("lost", result.detail, amiss=True)
        return
    failed = report.status is ReportStatus.FAILED
    bad = failed and report.error.type == _BAD
    summary.note(_outcome(report, result), report.error.message if failed else None, amiss=bad)


def _outcome(report: TaskReport, result: ReportResult) -> str:
    match report.status:
        case ReportStatus.MOVED:
            return "moved"
        case ReportStatus.SUCCEEDED:
            return "succeeded"
        case ReportStatus.RELEASED:
            return "released"
        case _:
            waits = result.task is not None and result.task.state is State.ENQUEUED
            return "retried" if waits else "dead"


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(LANES, "spawn")
