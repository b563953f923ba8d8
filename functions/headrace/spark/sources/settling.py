"""The writing half of ``headrace``: settle leased tasks by the ``action`` of their rows.

Each task is settled in one conditional write that requires the lease of its row, so a row that is
sent again, or late, changes nothing.  A row that cannot be carried out does not fail its batch: its
task is dead, with the reason.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from msgspec import structs
from pyspark.sql import Row as SparkRow
from pyspark.sql import datasource as api
from typing_extensions import override

from headrace.domain.errors import InvalidRequest, NotFound
from headrace.domain.plan import TaskSpec
from headrace.domain.task import State
from headrace.ops.delivery.report_calls import Reports
from headrace.ops.delivery.reports import (
    ReportOutcome,
    ReportResult,
    ReportStatus,
    TaskReport,
    WorkerError,
)
from headrace.spark.sources import QUEUE
from headrace.spark.sources.arrow import ArrowSink
from headrace.spark.sources.connect import LANES, opened
from headrace.spark.sources.options import plain_errors
from headrace.spark.sources.rows import (
    COLUMNS,
    QUEUE_COLUMN,
    SPAWN,
    BadRow,
    SettlingRow,
    fitted,
    report_of,
    rows_of,
)
from headrace.spark.sources.settle_target import SettleTarget

_LOG: Final = logging.getLogger(__name__)
_SAID: Final = 300  # characters of a reason in the log
_AT_A_TIME: Final = 500
_SAMPLES: Final = 3
_BAD: Final = "BadRow"
_LEFT: Final = "left"


@dataclass(slots=True)
class SettleSummary:
    """The outcome of rows: numbers of tasks by outcome, and a few reasons of each bad outcome.

    ``amiss`` counts, by outcome, the tasks that were not settled as their rows say: retried or dead
    because the row could not be carried out, and lost.  ``why`` has the first reason of each.
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


def settle(target: SettleTarget, rows: Iterable[SettlingRow]) -> SettleSummary:
    """Settle the tasks of *rows*, in which all rows of a task stand together; return the outcomes.

    Raises Unavailable when the table stays throttled: then it may be called again.
    """
    summary = SettleSummary()
    waiting: dict[str, list[TaskReport]] = {}
    number = 0
    for _, of_task in groupby(rows, key=attrgetter("id")):
        some = list(of_task)
        report = _checked(target, some, summary)
        if report is None:
            continue
        queue = target.queue or some[0].queue
        if queue is None:
            summary.note("lost", "its row names no queue", amiss=True)
            continue
        waiting.setdefault(queue, []).append(report)
        number += 1
        if number % _AT_A_TIME == 0:
            _send_all(target, waiting, summary)
            waiting = {}
    _send_all(target, waiting, summary)
    return summary


def _send_all(
    target: SettleTarget, waiting: Mapping[str, Sequence[TaskReport]], summary: SettleSummary
) -> None:
    """Send the reports of each queue."""
    for queue, reports in waiting.items():
        births = [one for one in reports if one.spawn]
        _send(target, queue, [one for one in reports if not one.spawn], births, summary)


def _checked(
    target: SettleTarget, rows: Sequence[SettlingRow], summary: SettleSummary
) -> TaskReport | None:
    """Return the report that *rows* make, or about bad rows; None for no report."""
    try:
        return _with_children_as_taken(target, report_of(rows, to=target.to))
    except BadRow as wrong:
        reason, first, policy = fitted(str(wrong)), rows[0], target.bad_rows
        if policy is not None and policy.fails:
            summary.note(_LEFT, f"{first.id}: {reason}", amiss=True)
            return None
        if policy is not None and policy.queue is not None:
            summary.note("set aside", reason, amiss=True)
            return TaskReport(first.id, first.lease, ReportStatus.MOVED, to_queue=policy.queue)
        error = WorkerError(_BAD, reason)
        return TaskReport(
            first.id, first.lease, ReportStatus.FAILED, error=error, retryable=policy is not None
        )


def _with_children_as_taken(target: SettleTarget, report: TaskReport) -> TaskReport:
    """Return *report*, its children without a priority or a group where their queue has none.

    A transform that passes its columns on says both of each child, wherever that goes: so a child
    is taken as a task that is moved.
    """
    if all(new.priority is None and new.group_key is None for _, new in report.spawn):
        return report
    queues = opened(target.connection).queues

    def taken(name: str, new: TaskSpec) -> TaskSpec:
        try:
            settings = queues.cached(name).settings
        except NotFound:  # as the report will be told
            return new
        return structs.replace(
            new,
            priority=None if settings.priority is None else new.priority,
            group_key=None if settings.groups is None else new.group_key,
        )

    return structs.replace(
        report, spawn=tuple((name, taken(name, new)) for name, new in report.spawn)
    )


def _send(
    target: SettleTarget,
    queue: str,
    reports: Sequence[TaskReport],
    births: Sequence[TaskReport],
    summary: SettleSummary,
) -> None:
    """Send *reports* in batches, and each of *births* in one transaction."""
    use_case = opened(target.connection).reports
    results = use_case.report(queue, reports) if reports else []
    for report, result in zip(reports, results, strict=True):
        _note(queue, use_case, report, result, summary)
    if not births:
        return
    singles = _pool().map(lambda report: use_case.report(queue, [report])[0], births)
    for report, result in zip(births, singles, strict=True):
        _note(queue, use_case, report, result, summary)
        if result.outcome is ReportOutcome.OK:
            summary.counts["spawned"] += len(report.spawn)


def _note(
    queue: str,
    use_case: Reports,
    report: TaskReport,
    result: ReportResult,
    summary: SettleSummary,
) -> None:
    if result.outcome is ReportOutcome.INVALID:  # such as a queue that is not there: it may come
        error = WorkerError(_BAD, result.detail or "")
        report = TaskReport(report.task_id, report.lease_id, ReportStatus.FAILED, error=error)
        result = use_case.report(queue, [report])[0]
    if result.outcome is not ReportOutcome.OK and result.task is not None and result.task.cancelled:
        summary.note("cancelled")
        return
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


@dataclass
class Settled(api.WriterCommitMessage):
    """The outcome of the rows of one partition, and their order there.

    Of a partition that Spark ran twice it tells the second time.
    """

    summary: SettleSummary = field(default_factory=SettleSummary)
    runs: RowRuns = field(default_factory=RowRuns)


class QueueWriter(api.DataSourceArrowWriter):
    """Settles the tasks of the rows once, however often they are written."""

    def __init__(self, target: SettleTarget) -> None:
        self.target = target

    @plain_errors()
    def write(self, iterator: Iterator[Any]) -> Settled:
        """Settle the rows of one partition."""
        target = self.target
        return _settled(target, rows_of(iterator, target.default, queues=target.queue is None))

    @plain_errors()
    def commit(self, messages: list[api.WriterCommitMessage | None]) -> None:
        """Look at the summaries.  Raises InvalidRequest where children may be missing."""
        _looked_at(self.target, messages)


class QueueStreamWriter(ArrowSink):
    """Settles the tasks of the rows once, however often they are written."""

    def __init__(self, target: SettleTarget) -> None:
        self.target = target

    @plain_errors()
    def write(self, iterator: Iterator[Any]) -> Settled:
        """Settle the rows of one partition."""
        return _settled(self.target, _rows(self.target, iterator))

    @override
    @plain_errors()
    def commit(self, messages: list[api.WriterCommitMessage | None], batchId: int) -> None:
        """Look at the summaries.  Raises InvalidRequest where children may be missing."""
        _looked_at(self.target, messages)


def _settled(target: SettleTarget, rows: Iterator[SettlingRow]) -> Settled:
    runs = RowRuns()
    return Settled(settle(target, runs.watched(rows)), runs)


def _looked_at(target: SettleTarget, messages: Sequence[api.WriterCommitMessage | None]) -> None:
    """Warn of tasks that their rows did not settle as they say.

    Raises InvalidRequest when rows of a task that spawns stood apart, and when bad rows are to fail
    the write.
    """
    settled = [one for one in messages if isinstance(one, Settled)]
    summary = SettleSummary()
    for one in settled:
        summary.merge(one.summary)
    if summary.amiss:
        problems = "; ".join(
            f"{number:,} {outcome}{_because(summary.why.get(outcome))}"
            for outcome, number in sorted(summary.amiss.items())
        )
        _LOG.warning(
            "%s: %s: some tasks were not settled as their rows say, about: %s",
            QUEUE,
            f"queue {target.queue}" if target.queue else "several queues",
            problems,
        )
    if left := summary.counts[_LEFT]:
        message = (
            f"{QUEUE}: {left:,} rows cannot be carried out, the others are settled: "
            + "; ".join(summary.reasons.get(_LEFT, ()))
        )
        raise InvalidRequest(message)
    found = apart([one.runs for one in settled])
    if found:
        message = (
            f"{QUEUE}: the rows of {len(found):,} tasks that spawn stand apart, so their children"
            ' may be missing: say .repartition("id").sortWithinPartitions("id") before writing;'
            f" such as task {', '.join(found[:_SAMPLES])}"
        )
        raise InvalidRequest(message)


def _because(reason: str | None) -> str:
    return f" (such as: {reason:.{_SAID}})" if reason else ""


def _rows(target: SettleTarget, given: Iterable[Any]) -> Iterator[SettlingRow]:
    """Yield the rows that a stream's sink is *given*, in Arrow batches or one by one."""
    for one in given:
        if isinstance(one, SparkRow):
            yield _row(one, target)
        else:
            yield from rows_of([one], target.default, queues=target.queue is None)


def _row(row: SparkRow, target: SettleTarget) -> SettlingRow:
    columns = {name.lower(): value for name, value in row.asDict().items()}
    wanted = [*COLUMNS, QUEUE_COLUMN] if target.queue is None else COLUMNS
    given = {name: columns[name] for name in wanted if name in columns}
    return SettlingRow(**{**given, "action": given.get("action") or target.default})
