"""The Spark jobs of a station: lease, transform, settle; each may be run again.

They are the formats' own functions, without the planning that a format costs for every batch.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headrace.spark.sources.leasing import SCHEMA, Intake, leased, named
from headrace.spark.sources.rows import rows_of
from headrace.spark.sources.settling import Outlet, SettleSummary, settle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Transform = Callable[["DataFrame"], "DataFrame"]

_OUTCOMES: Final = "outcome string, number long, reasons string"
_OUTCOMES_ARROW: Final = pa.schema(
    [("outcome", pa.string()), ("number", pa.int64()), ("reasons", pa.string())]
)


def leasing(spark: "SparkSession", intake: Intake, shards: int) -> "DataFrame":
    """Return the frame of what *intake* leases: one partition a shard, leased when it is read."""
    numbers = spark.range(0, shards, 1, shards)
    return numbers.mapInArrow(partial(_leased, intake), SCHEMA)


def ids(leased: "DataFrame") -> list[str]:
    """Run the job that leases the rows of *leased*; return their ids."""
    return [row[0] for row in leased.select("id").collect()]


def only(
    spark: "SparkSession", outlet: Outlet, group_id: str, ids: Sequence[str], partitions: int
) -> "DataFrame":
    """Return the frame of those tasks of *ids* that a group still holds."""
    parts = [list(ids[place::partitions]) for place in range(min(partitions, len(ids)))]
    numbers = spark.range(0, len(parts), 1, len(parts))
    return numbers.mapInArrow(partial(_named, outlet, group_id, parts), SCHEMA)


def settled(frame: "DataFrame", outlet: Outlet) -> SettleSummary:
    """Run the job: settle every row of *frame*; return what became of them."""
    outcomes = frame.mapInArrow(partial(_settled, outlet), _OUTCOMES).collect()
    summary = SettleSummary()
    for row in outcomes:
        reasons = json.loads(row["reasons"])
        part = SettleSummary(reasons={row["outcome"]: reasons} if reasons else {})
        part.counts[row["outcome"]] = row["number"]
        summary.merge(part)
    return summary


def _leased(intake: Intake, numbers: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for shard in batch.column(0).to_pylist():
            yield from leased(intake, shard)


def _named(
    outlet: Outlet, group_id: str, parts: Sequence[Sequence[str]], numbers: Iterable[Any]
) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for part in batch.column(0).to_pylist():
            yield from named(outlet.connection, outlet.queue, group_id, parts[part])


def _settled(outlet: Outlet, batches: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    summary = settle(outlet, rows_of(batches, outlet.default))
    yield pa.RecordBatch.from_pylist(
        [
            {
                "outcome": outcome,
                "number": number,
                "reasons": json.dumps(summary.reasons.get(outcome, [])),
            }
            for outcome, number in summary.counts.items()
        ],
        schema=_OUTCOMES_ARROW,
    )
