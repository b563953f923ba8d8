"""The Spark jobs of a station: lease, transform, settle; and the meaning of their errors.

Each may be run again.  They call the functions of the formats, without the planning that a format
costs for every batch.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from enum import Enum
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headrace.domain.errors import HeadraceError, LeaseLost, Unavailable
from headrace.ops.delivery.reports import WorkerError
from headrace.spark.sources.connect import StoreConnection
from headrace.spark.sources.leasing import SCHEMA, leased, named, replayed
from headrace.spark.sources.reading import QueuePartition
from headrace.spark.sources.rows import fitted, rows_of
from headrace.spark.sources.settle_target import SettleTarget
from headrace.spark.sources.settling import SettleSummary, settle

_LAST_LINE: Final = re.compile(r"^([A-Za-z_][\w.]*): ?(.*)$")
_PY4J: Final = "An error occurred while calling "
_AWAY, _OVER = (f"{kind.__module__}.{kind.__qualname__}: " for kind in (Unavailable, LeaseLost))


def leasing(spark: SparkSession, shares: Sequence[QueuePartition]) -> DataFrame:
    """Return the frame of what *shares* lease: one partition for each, leased when it is read."""
    return _numbered(spark, len(shares), partial(_leased, shares))


def replaying(
    spark: SparkSession, shares: Sequence[QueuePartition], ids: Collection[str]
) -> DataFrame:
    """Return the frame of those tasks of *ids* that *shares* have leased, as they were then."""
    return _numbered(spark, len(shares), partial(_replayed, shares, frozenset(ids)))


def divided(ids: Sequence[str], most: int) -> list[list[str]]:
    """Divide *ids* into as many even parts as there are ids, *most* at the most."""
    return [list(ids[place::most]) for place in range(min(most, len(ids)))]


def of_parts(
    spark: SparkSession,
    connection: StoreConnection,
    group_id: str,
    parts: Sequence[Sequence[str]],
) -> DataFrame:
    """Return the frame of the tasks of *parts* that a group still holds, a partition for each."""
    return _numbered(spark, len(parts), partial(_named, connection, group_id, parts))


def settled(frame: DataFrame, target: SettleTarget) -> SettleSummary:
    """Run the job: settle every row of *frame*; return the outcomes."""
    return _merged(_settling(frame, target).collect())


def _settling(frame: DataFrame, target: SettleTarget) -> DataFrame:
    return frame.mapInArrow(partial(_settled, target), "summary string")


def _merged(rows: Iterable[Sequence[str]]) -> SettleSummary:
    summary = SettleSummary()
    for (text,) in rows:
        counts, reasons = json.loads(text)
        summary.merge(SettleSummary(Counter(counts), reasons))
    return summary


class PartitionJobs:
    """A settling frame that is planned once, of which some partitions at a time are run.

    Such a job takes milliseconds, where to plan the frame again takes seconds.
    """

    def __init__(self, frame: DataFrame, target: SettleTarget) -> None:
        self._context = frame.sparkSession.sparkContext
        self._rows = _settling(frame, target).rdd

    @property
    def partitions(self) -> int:
        """How many partitions the plan has."""
        return self._rows.getNumPartitions()

    def run(self, partitions: Sequence[int]) -> SettleSummary:
        """Run one job: settle every row of these *partitions*; return the outcomes."""
        return _merged(self._context.runJob(self._rows, list, list(partitions)))


def _numbered(
    spark: SparkSession, partitions: int, rows: Callable[[int], Iterator[pa.RecordBatch]]
) -> DataFrame:
    """Return the frame of the *rows* of each partition, made from its number when it is read."""
    numbers = spark.range(0, partitions, 1, partitions)
    return numbers.mapInArrow(partial(_rows, rows), SCHEMA)


def _rows(
    rows: Callable[[int], Iterator[pa.RecordBatch]], numbers: Iterable[Any]
) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from rows(number)


def _leased(shares: Sequence[QueuePartition], share: int) -> Iterator[pa.RecordBatch]:
    return leased(shares[share].request, shares[share].shard)


def _replayed(
    shares: Sequence[QueuePartition], ids: Collection[str], share: int
) -> Iterator[pa.RecordBatch]:
    return replayed(shares[share].request, shares[share].shard, ids)


def _named(
    connection: StoreConnection, group_id: str, parts: Sequence[Sequence[str]], part: int
) -> Iterator[pa.RecordBatch]:
    return named(connection, group_id, parts[part])


def _settled(target: SettleTarget, batches: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    summary = settle(target, rows_of(batches, target.default, queues=target.queue is None))
    text = json.dumps([summary.counts, summary.reasons])
    yield pa.RecordBatch.from_pydict({"summary": [text]})


class StationFailed(HeadraceError):
    """The transform fails for too many tasks; the held tasks were released."""

    code = "station_failed"
    title = "Station failed"


class JobError(Enum):
    """Why a job failed."""

    AWAY = "the tables were throttled or away for too long"
    OVER = "the group of the batch is over"
    CRASHED = "a process died; it may have been a task's doing, or not"
    RAISED = "the transform raised an error, which it will again"


def job_error(error: BaseException) -> JobError:
    """Why the job failed that ended with *error*."""
    text = str(error)
    if _AWAY in text:
        return JobError.AWAY
    if _OVER in text:
        return JobError.OVER
    if "Traceback (most recent call last)" in text or "Error: [" in text:
        return JobError.RAISED
    return JobError.CRASHED


def worker_error(error: BaseException) -> WorkerError:
    """The error that a dead task keeps: its type and message, without Spark's own words."""
    text = str(error)
    if job_error(error) is JobError.CRASHED:
        return WorkerError("WorkerCrashed", _line(text))
    _, _, trace = text.rpartition("Traceback (most recent call last):")
    for line in trace.splitlines():
        last = _LAST_LINE.match(line)
        if last:
            return WorkerError(last[1].rpartition(".")[2], fitted(last[2]))
    return WorkerError("TransformFailed", _line(text))


def _line(text: str) -> str:
    """The first line with content; those of py4j only name the call."""
    lines = (line.strip(" :\t") for line in text.splitlines())
    useful = (line for line in lines if line and not line.startswith(_PY4J))
    return fitted(next(useful, "no reason was given"))
