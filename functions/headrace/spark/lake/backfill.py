"""Backfill: add to a lake the changes that it lacks, from an export of the table.

It is for a lake that began on a table with tasks in it, or has a gap.  The known facts of a task
are written as raw lines, as the recorder writes them, under the export's name; then their days are
rolled up.  The same export makes the same lines again, in the same files.

Changes that the recorder has written are not written again.
"""

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from itertools import groupby
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from headrace.domain.access import covers
from headrace.domain.texts import amount
from headrace.history.changelog import FILLED, FORMAT, RAW
from headrace.spark.lake.frames import LakeFrames
from headrace.spark.lake.reconstruct import GIVEN, SIDES, reconstructed
from headrace.spark.lake.rollup import rollup
from headrace.spark.lake.schemas import CHANGES, DAY
from headrace.spark.sources import EXPORT, register
from headrace.spark.sources.columns import TASK, ddl
from headrace.spark.sources.decode import schema_of
from headrace.spark.sources.export import OWN, export_at
from headrace.spark.sources.rows import chunks
from headrace.store.lake import lake_at

LINES_OF_A_FILE: Final = 100_000
_LEVEL: Final = 3
_HOUR: Final = "hh"
_LINES: Final = f"{DAY} string, {_HOUR} string, move string, line string"
_COUNTS: Final = f"{DAY} string, move string, n bigint"


@dataclass(frozen=True, slots=True)
class Backfilled:
    """The outcome of a backfill: items of the export, and the changes made of them, by move."""

    export: str
    incremental: bool
    items: int
    days: tuple[date, ...]
    moves: dict[str, int]

    @property
    def changes(self) -> int:
        """How many changes there are now that the lake did not know."""
        return sum(self.moves.values())


def backfill(
    lake: LakeFrames,
    address: str,
    *,
    today: date,
    payloads: Sequence[str] = (),
    say: Callable[[str], None] = lambda _: None,
) -> Backfilled:
    """Add to the lake the changes that only the export at *address*, ``…/AWSDynamoDB/<id>``, has.

    *payloads* are patterns of the queues whose payloads are kept.
    Raises InvalidRequest for an export that is not as it was written.
    """
    export = export_at(address)
    rollup(lake, today=today, say=say)  # recorded changes count first
    mark = FILLED + export.id
    known = _lives(lake.read(CHANGES).where(f.col("shard") != mark))
    register(lake.spark)
    reader = lake.spark.read.format(EXPORT).option("hidden", "true")
    items = reader.schema(ddl((*TASK, *OWN))).load(address)
    say(f"{export.items:,} items of export {export.id}")
    lives = _both(_seen(items, _kept(items, payloads) if payloads else []), known)
    written = _written(lake, lives.withColumn("created", _micros("created_at")), mark)
    days = sorted({day for day, _ in written})
    moves: Counter[str] = Counter()
    for (_, move), number in written.items():
        moves[move] += number
    done = Backfilled(export.id, export.incremental, export.items, tuple(days), dict(moves))
    say(f"{amount(done.changes, 'change')} of {amount(len(days), 'day')}")
    if days:
        rollup(lake, today=today, also=days, say=say)
    return done


def _kept(items: DataFrame, payloads: Sequence[str]) -> list[str]:
    """Return the queues whose payloads are kept."""
    queues = [row["queue"] for row in items.select("queue").distinct().collect() if row["queue"]]
    return sorted(name for name in queues if any(covers(pattern, name) for pattern in payloads))


def _micros(name: str, called: str | None = None) -> Column:
    return f.unix_micros(name).alias(called or name)


def _seen(items: DataFrame, kept: Sequence[str]) -> DataFrame:
    """Return the tasks of an export in the words of ``known``.

    Payloads, and what else a replay needs, are those of the queues in *kept*.
    """
    none = f.expr("CAST(map() AS map<string,string>)")
    kept_too = f.col("queue").isin(list(kept))
    task = f.struct(
        "version",
        "last_move",
        "queue",
        "state",
        _micros("scheduled_at", "due"),
        _micros("enqueued_at", "enqueued"),
        "attempts",
        f.greatest(f.size("trail"), f.lit(0)).alias("hop"),
        "lease",
        _micros("lease_expires_at", "lease_end"),
        "lease_group",
        "worker",
        _micros("started_at"),
        _micros("finished_at"),
        "settled",
        "dead_reason",
        f.when(f.size("errors") > 0, f.element_at("errors", -1)).alias("error"),
        _micros("expires_at"),
        "payload_bytes",
        "result_bytes",
        f.when(kept_too, f.col("payload")).alias("payload"),
        f.when(kept_too, f.coalesce("tags", none)).alias("tags"),
        *(f.when(kept_too, f.col(name)).alias(name) for name in GIVEN[2:]),
        _micros("written_at"),
        "deleted",
    )
    return items.select(f.col("id").alias("task_id"), "created_at", task.alias("task"))


def _lives(changes: DataFrame) -> DataFrame:
    """Return for each life in *changes* what it leaves ``first`` and where it comes to ``last``."""

    def side(which: str) -> Column:
        named = [
            _micros(f"{name}_{which}", name)
            if name in ("due", "enqueued", "lease_end")
            else f.col(f"{name}_{which}").alias(name)
            for name in SIDES
        ]
        return f.struct("version", _micros("started_at"), "worker", _micros("expires_at"), *named)

    return changes.groupBy("task_id", "created_at").agg(
        f.min_by(side("from"), "version").alias("first"),
        f.max_by(side("to"), "version").alias("last"),
    )


def _both(items: DataFrame, lives: DataFrame) -> DataFrame:
    """Return each life once, as exported and as known.

    Of a task that is gone an export may not hold the life: then it is the latest.
    """
    latest = lives.groupBy("task_id").agg(f.max("created_at").alias("_latest"))
    dated = items.join(latest, "task_id", "left").withColumn(
        "created_at", f.coalesce("created_at", "_latest")
    )
    return dated.drop("_latest").join(lives, ["task_id", "created_at"], "full")


def _reconstructed(mark: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn lives into raw lines: day and hour of each, its move, and the JSON text."""
    for batch in batches:
        found = []
        for row in batch.to_pylist():
            life = {"task_id": row["task_id"], "created_at": row["created"], "shard": mark}
            for line in reconstructed(row["task"], row["first"], row["last"]):
                whole = {"format": FORMAT, **life, "sequence": str(line["version"]), **line}
                at = datetime.fromtimestamp(line["recorded_at"] // 1_000_000, UTC)
                found.append(
                    {
                        DAY: f"{at:%Y-%m-%d}",
                        _HOUR: f"{at:%H}",
                        "move": line["move"],
                        "line": _json(whole),
                    }
                )
        yield pa.RecordBatch.from_pylist(found, schema=schema_of(_LINES))


_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _written(lake: LakeFrames, lives: DataFrame, mark: str) -> Counter[tuple[date, str]]:
    """Write the lines of *lives*, files for each hour; return how many of each day and move."""
    lines = lives.drop("created_at").mapInArrow(partial(_reconstructed, mark), _LINES)
    in_order = lines.repartition(DAY, _HOUR).sortWithinPartitions(DAY, _HOUR, "line")
    counted = in_order.mapInArrow(partial(_put, lake.address, mark), _COUNTS)
    found: Counter[tuple[date, str]] = Counter()
    for row in counted.collect():
        found[date.fromisoformat(row[DAY]), row["move"]] += row["n"]
    return found


def _put(address: str, mark: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the lines of whole hours; yield how many there are of each day and move."""
    lake = lake_at(address)
    rows = (row for batch in batches for row in batch.to_pylist())
    for (day, hour), of_hour in groupby(rows, lambda row: (row[DAY], row[_HOUR])):
        for number, some in enumerate(chunks(of_hour, LINES_OF_A_FILE)):
            text = "".join(f"{row['line']}\n" for row in some)
            name = f"{RAW}/{DAY}={day}/{_HOUR}={hour}/{mark}-{number:05}.json.gz"
            packed = gzip.compress(text.encode(), _LEVEL, mtime=0)
            if lake.get(name) != packed:  # or its day would be made again without a change
                lake.put(name, packed)
            counts = Counter(row["move"] for row in some)
            yield pa.RecordBatch.from_pylist(
                [{DAY: day, "move": move, "n": n} for move, n in counts.items()],
                schema=schema_of(_COUNTS),
            )
