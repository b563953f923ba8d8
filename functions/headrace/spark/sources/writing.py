"""Settling leased tasks by the rows of a frame: the writing half of the format ``headrace``.

Each write is a compare-and-set on the lease that its row names, so Spark may run any of it again.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import Row as SparkRow
from pyspark.sql import datasource as api
from pyspark.sql.types import StructType

from headrace.domain.errors import FieldError, InvalidRequest, NotFound
from headrace.spark.sources import QUEUE, connect
from headrace.spark.sources.connect import StoreConnection, opened
from headrace.spark.sources.options import SourceOption, parsed, queue_name
from headrace.spark.sources.rows import COLUMNS, SettlingRow, rows_of
from headrace.spark.sources.settling import Outlet, RowRuns, SettleSummary, apart, settle

_LOG: Final = logging.getLogger(__name__)
_SAMPLES: Final = 3
_SAID: Final = 300  # characters of a reason in the log
WRITING: Final = (
    SourceOption("queue", queue_name, "the queue that the rows were leased from", required=True),
    SourceOption("to", queue_name, "where a row is moved that names no `to_queue`"),
    *connect.OPTIONS,
)


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

    def commit(self, messages: list[api.WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 (Spark's)
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
        problems = "; ".join(f"column {one.field} {one.message}" for one in wrong)
        raise InvalidRequest(f"{QUEUE}: {problems}", errors=wrong)
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
