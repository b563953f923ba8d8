"""Changes to ``queue_minutes``: the series that charts are drawn from, with Spark or without.

Durations are counted in the buckets of ``headrace.history.tally``, so minutes add up to hours
and days, and a percentile of any of them is at most 2.5 % off.  For those without Spark they are
published as the files of ``headrace.history.series``.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date, timedelta
from functools import partial
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from headrace.domain.texts import amount
from headrace.history.series import (
    FILES,
    SPAN,
    Span,
    Unreadable,
    content_of,
    named,
    put_together,
)
from headrace.history.tally import COUNTED, RATIO, Activity, Histogram
from headrace.spark.lake.frames import LakeFrames
from headrace.spark.lake.schemas import COUNTS, DAY, QUEUE_MINUTES
from headrace.spark.lake.snapshots import ready
from headrace.spark.lake.tables import micros_between, within_day
from headrace.store.lake import lake_at

_PER_NATURAL: Final = 1 / math.log(RATIO)
_NO_TIME: Final = -1
_NAMES: Final = tuple(column.name for column in COUNTS)
_EVENTS: Final = tuple(event.value for event in COUNTED)


def queue_minutes(changes: DataFrame, before: DataFrame, left: DataFrame) -> DataFrame:
    """Return the activity minute by minute in *changes*, which are all from some day on.

    *before* has for each ``queue`` how many tasks were waiting (``backlog``) and ``inflight`` when
    that day began; a queue that is not in it had none.  *left* has for each
    ``queue`` since when the longest due of those is ``ready`` that wait after the last change.
    """
    levels = _levels(_minutes(_facts(changes)), before, left)
    return levels.select(*QUEUE_MINUTES.names)


def bucket_of(micros: Column) -> Column:
    """Return the bucket of a duration, as headrace.history.tally has it."""
    bucket = f.ceil(f.ln(micros) * f.lit(_PER_NATURAL)).cast("int")
    return f.when(micros > 0, bucket).otherwise(f.lit(_NO_TIME))


_NEW: Final = "(state_from IS NULL OR move IN ('move', 'restart'))"
_HELD: Final = "state_from <=> 'INFLIGHT'"
_FAILED: Final = f"{_HELD} AND move IN ('fail', 'reclaim')"
_ARRIVAL: Final = {
    "enqueued": f"int(state_to <=> 'ENQUEUED' AND {_NEW})",
    "dead": "int(state_to <=> 'DEAD' AND NOT state_from <=> 'DEAD' AND move != 'cancel')",
    "waiting_change": "int(state_to <=> 'ENQUEUED')",
    "inflight_change": "int(state_to <=> 'INFLIGHT')",
}
"""The counts of a change in the queue that the task enters or stays in."""

_DEPARTURE: Final = {
    "started": "int(move = 'dequeue')",
    "succeeded": "int(move = 'succeed')",
    "failed": f"int({_FAILED})",
    "lapsed": "int(move = 'reclaim')",
    "released": "int(move = 'release')",
    "moved": f"int({_HELD} AND move = 'move')",
    "dead": f"int(state_to IS NULL AND ({_FAILED} OR move = 'expire'))",
    "cancelled": "int(move = 'cancel')",
    "deleted": "int(move IN ('delete', 'purge'))",
    "waiting_change": "-int(state_from <=> 'ENQUEUED')",
    "inflight_change": f"-int({_HELD})",
}
"""The counts of a change in the queue that the task leaves or stays in."""


def _facts(changes: DataFrame) -> DataFrame:
    """The effect of each change on the queue it leaves and on the one it comes to."""
    move = f.col("move")
    ran = f.expr(f"{_FAILED} OR {_HELD} AND move IN ('succeed', 'move')")
    kind = f.when(move == "dequeue", "wait").when(ran, "run")
    waited, took = micros_between("due_from", "started_at"), micros_between("started_at", "at")
    moves = changes.where("move != 'heartbeat'").select(
        "*",
        f.date_trunc("minute", within_day("at")).alias("minute"),
        kind.alias("_kind"),
        f.when(move == "dequeue", waited).when(ran, took).alias("_micros"),
        ready("from").alias("_ready"),
    )
    sides = ", ".join(
        (
            _side("queue_to", _ARRIVAL, "string(NULL)", "bigint(NULL)", "timestamp(NULL)"),
            _side("queue_from", _DEPARTURE, "_kind", "_micros", "_ready"),
        )
    )
    return moves.selectExpr("minute", "dt", f"inline(array({sides}))").where("queue IS NOT NULL")


def _side(queue: str, counts: dict[str, str], kind: str, micros: str, ready: str) -> str:
    numbers = ", ".join(f"bigint({counts.get(name, 0)}) AS {name}" for name in _NAMES)
    return (
        f"struct({queue} AS queue, {numbers}, {kind} AS kind, {micros} AS micros, {ready} AS ready)"
    )


def _minutes(facts: DataFrame) -> DataFrame:
    """Add up twice: to buckets first, so that little is left to put into maps."""
    place = ("queue", "minute", "dt")
    bucket = f.when(f.col("kind").isNotNull(), bucket_of(f.col("micros")))
    counted = (
        facts.withColumn("bucket", bucket)
        .groupBy(*place, "kind", "bucket")
        .agg(
            *(f.sum(name).alias(name) for name in _NAMES),
            f.count("*").alias("n"),
            f.sum("micros").alias("sum"),
            f.max("micros").alias("max"),
            f.min("ready").alias("ready"),
        )
    )

    def of(kind: str, value: Column) -> Column:
        return f.when(f.col("kind") == kind, value)

    def histogram(kind: str) -> Column:
        entries = f.collect_list(of(kind, f.struct("bucket", "n")))
        return f.map_from_entries(f.sort_array(entries))

    return counted.groupBy(*place).agg(
        *(f.sum(name).alias(name) for name in _NAMES),
        *(histogram(kind).alias(kind) for kind in ("wait", "run")),
        *(
            f.coalesce(how(of(kind, f.col(of_what))), f.lit(0)).alias(f"{kind}_{of_what}_micros")
            for kind in ("wait", "run")
            for of_what, how in (("sum", f.sum), ("max", f.max))
        ),
        f.min("ready").alias("ready"),
    )


def _levels(minutes: DataFrame, before: DataFrame, left: DataFrame) -> DataFrame:
    """Add how many there were at each minute's end, and how old the oldest ready one was.

    A task that was due before and leaves later, or not at all, was ready then, so the earliest due
    time of all these tasks is that of the oldest; if it is in the future, no task was ready.
    """
    in_order = Window.partitionBy("queue").orderBy("minute")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    later = in_order.rowsBetween(1, Window.unboundedFollowing)
    start = before.select("queue", f.col("backlog").alias("_b"), f.col("inflight").alias("_i"))
    end = f.unix_micros("minute") + f.lit(60_000_000)
    oldest = f.least(f.min("ready").over(later), "_left")
    age = end - f.unix_micros(oldest)
    still = left.select("queue", f.col("ready").alias("_left"))
    return (
        minutes.join(f.broadcast(start), "queue", "left")
        .join(f.broadcast(still), "queue", "left")
        .withColumn("backlog", f.coalesce("_b", f.lit(0)) + f.sum("waiting_change").over(so_far))
        .withColumn("inflight", f.coalesce("_i", f.lit(0)) + f.sum("inflight_change").over(so_far))
        .withColumn("oldest_ready_micros", f.coalesce(f.greatest(age, f.lit(0)), f.lit(0)))
    )


def publish(
    lake: LakeFrames, days: Sequence[date] | None, *, today: date, say: Callable[[str], None]
) -> None:
    """Write the series of *days* that have ended, and of days that ended since the last run.

    Without *days*, or if no series was ever written, it writes all days that have ended.  So each
    is written once, however often a rollup runs, unless late changes come for it.
    Then every day from the first one to *today* counts as rolled up.
    """
    before = _span(lake)
    if before is None or days is None:
        say("series of all days")
        rolled = _written(lake, lake.read(QUEUE_MINUTES).where(f.col(DAY) < f.lit(today)))
    else:
        rolled = {before.begin, *days}
        ended = (before.end + timedelta(number) for number in range((today - before.end).days))
        over = {day for day in (*days, *ended) if day < today}
        if over:
            say(f"series of {amount(len(over), 'day')}")
            rolled |= _written(lake, lake.days(QUEUE_MINUTES, over))
    if rolled:
        begin = min(rolled)
        lake.files.put(SPAN, Span(begin, max(begin, today)).text())


def _span(lake: LakeFrames) -> Span | None:
    text = lake.files.get(SPAN)
    with suppress(Unreadable):
        return None if text is None else Span.of(text)
    return None


def _written(lake: LakeFrames, minutes: DataFrame) -> set[date]:
    """Write the files of whole days of *minutes*, from all executors; return the days."""
    rows = minutes.select(
        DAY,
        (f.crc32("queue") % f.lit(FILES)).alias("file"),  # as number_of has it
        "queue",
        f.expr("unix_seconds(minute) div 60").alias("minute"),
        *_EVENTS,
        "wait",
        "run",
        "waiting_change",
    )
    of_files = rows.repartition(DAY, "file").sortWithinPartitions(DAY, "file", "queue", "minute")
    written = of_files.mapInArrow(partial(_put, lake.address), f"{DAY} date")
    return {row[DAY] for row in written.collect()}


def _put(address: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write whole files; yield the day of each."""
    lake = lake_at(address)
    rows = (row for batch in batches for row in batch.to_pylist())
    for (day, number), of_file in groupby(rows, lambda row: (row[DAY], row["file"])):
        contents = (
            (queue, content_of(dict(_activities(of_queue))))
            for queue, of_queue in groupby(of_file, lambda row: row["queue"])
        )
        lake.put(named(day, number), put_together(contents))
        yield pa.RecordBatch.from_pylist([{DAY: day}], schema=_DAYS)


_DAYS: Final = pa.schema([(DAY, pa.date32())])


def _activities(rows: Iterable[dict[str, Any]]) -> Iterator[tuple[int, Activity]]:
    for row in rows:
        numbers = [row[event] for event in _EVENTS]
        wait, run = Histogram(dict(row["wait"] or {})), Histogram(dict(row["run"] or {}))
        yield row["minute"], Activity(numbers, wait, run, row["waiting_change"])
