"""Leased tasks settled by the ``action`` of their rows: the writing half of ``headrace``.

Each task is settled in one conditional write that asks for the lease of its row, so whoever sends
a row again, or late, changes nothing.  A row that cannot be carried out is no reason to fail its
whole batch: its task is dead, with the reason.
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

from pyspark.sql import Row as SparkRow
from pyspark.sql import datasource as api
from pyspark.sql.types import StructType
from typing_extensions import override

from headrace.domain.errors import FieldError, InvalidRequest, NotFound
from headrace.domain.task import State
from headrace.ops.delivery.reports import (
    ReportOutcome,
    ReportResult,
    Reports,
    ReportStatus,
    TaskReport,
    WorkerError,
)
from headrace.spark.sources import QUEUE, connect
from headrace.spark.sources.connect import LANES, StoreConnection, opened
from headrace.spark.sources.options import SourceOption, parsed, queue_name, refused
from headrace.spark.sources.rows import (
    COLUMNS,
    SPAWN,
    BadRow,
    SettlingRow,
    fitted,
    report_of,
    rows_of,
)

WRITING: Final = (
    SourceOption("queue", queue_name, "the queue that the rows were leased from", required=True),
    SourceOption("to", queue_name, "where a row is moved that names no `to_queue`"),
    *connect.OPTIONS,
)
_LOG: Final = logging.getLogger(__name__)
_SAID: Final = 300  # characters of a reason in the log
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
    """Settles the tasks of the rows, whoever sends them how often."""

    def __init__(self, outlet: Outlet) -> None:
        self.outlet = outlet

    def write(self, iterator: Iterator[Any]) -> Settled:
        """Settle the rows of one partition."""
        return _settled(self.outlet, rows_of(iterator, self.outlet.default))

    def commit(self, messages: list[api.WriterCommitMessage | None]) -> None:
        """Look at the summaries.  Raises InvalidRequest where children may be missing."""
        _looked_at(self.outlet, messages)


class QueueStreamWriter(api.DataSourceStreamWriter):
    """Settles the tasks of the rows, whoever sends them how often."""

    def __init__(self, outlet: Outlet) -> None:
        self.outlet = outlet

    def write(self, iterator: Iterator[SparkRow]) -> Settled:
        """Settle the rows of one partition."""
        return _settled(self.outlet, (_row(row, self.outlet.default) for row in iterator))

    @override
    def commit(self, messages: list[api.WriterCommitMessage | None], batchId: int) -> None:
        """Look at the summaries.  Raises InvalidRequest where children may be missing."""
        _looked_at(self.outlet, messages)


def _settled(outlet: Outlet, rows: Iterator[SettlingRow]) -> Settled:
    runs = RowRuns()
    return Settled(settle(outlet, runs.watched(rows)), runs)


def _looked_at(outlet: Outlet, messages: Sequence[api.WriterCommitMessage | None]) -> None:
    """Warn of tasks that their rows did not settle as they say.

    Raises InvalidRequest when rows of a task that spawns stood apart.
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
            "%s: of the tasks of queue %s, about so many were not settled as their rows say: %s",
            QUEUE,
            outlet.queue,
            problems,
        )
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


def outlet_of(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> Outlet:
    """Return where rows of *schema* are settled, as the options *given* say.

    Raises InvalidRequest for wrong options or columns, NotFound for a queue that is missing.
    """
    values = parsed(WRITING, given, of=QUEUE)
    if overwrite:
        message = (
            f'{QUEUE}: say .mode("append"): tasks are settled, and there is nothing to replace'
        )
        raise InvalidRequest(message)
    types = {column.name: column.dataType.simpleString() for column in schema}
    wrong = [
        FieldError(name, f"must be a {wanted}, not {types.get(name, 'missing')}")
        for name, wanted in COLUMNS.items()
        if types.get(name, wanted if name not in ("id", "lease") else None) != wanted
    ]
    if wrong:
        raise refused([], of=QUEUE, columns=wrong)
    outlet = Outlet(StoreConnection.of(values), values["queue"], values["to"])
    _check_queues(outlet)
    return outlet


def _check_queues(outlet: Outlet) -> None:
    """Look the queues up, once, where the write is planned.  Raises NotFound naming the option."""
    queues = opened(outlet.connection).queues
    wrong = []
    for option, queue in (("queue", outlet.queue), ("to", outlet.to)):
        try:
            if queue is not None:
                queues.get(queue)
        except NotFound as missing:
            wrong.append(FieldError(option, missing.detail))
    if wrong:
        problems = "; ".join(f"option {one.field}: {one.message}" for one in wrong)
        raise NotFound(f"{QUEUE}: {problems}", errors=wrong)


def _row(row: SparkRow, default: str) -> SettlingRow:
    given = {name: row[name] for name in COLUMNS if name in row}
    return SettlingRow(**{**given, "action": given.get("action") or default})
