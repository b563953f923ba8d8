"""Changes to ``queue_minutes``: the series that charts are drawn from.

Durations are counted in the buckets of ``headrace.domain.histogram``, so minutes add up to hours
and days, and a percentile of any of them is at most 2.5 % off.
"""

import math
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from headrace.domain.histogram import RATIO
from headrace.spark.lake.attempts import micros_between
from headrace.spark.lake.failures import within_day
from headrace.spark.lake.schemas import COUNTS, QUEUE_MINUTES

_PER_NATURAL: Final = 1 / math.log(RATIO)
_NO_TIME: Final = -1
_NAMES: Final = tuple(column.name for column in COUNTS)


def queue_minutes(changes: DataFrame, before: DataFrame) -> DataFrame:
    """Return what happened minute by minute in *changes*, which are of days in a row.

    *before* has for each ``queue`` how many tasks were waiting (``backlog``) and ``inflight`` when
    the first of these days began; a queue that is not in it had none.
    """
    facts = _arrivals(changes).unionByName(_departures(changes))
    return _levels(_minutes(facts), before).select(
        *(column.name for column in QUEUE_MINUTES.columns)
    )


def levels_of(minutes: DataFrame) -> DataFrame:
    """Return how many tasks wait and are in flight in each queue after all of *minutes*."""
    return minutes.groupBy("queue").agg(
        f.sum("waiting_change").alias("backlog"), f.sum("inflight_change").alias("inflight")
    )


def bucket_of(micros: Column) -> Column:
    """Return the bucket of a duration, as headrace.domain.histogram has it."""
    bucket = f.ceil(f.ln(micros) * f.lit(_PER_NATURAL)).cast("int")
    return f.when(micros > 0, bucket).otherwise(f.lit(_NO_TIME))


def _one(condition: Column) -> Column:
    return f.when(condition, f.lit(1)).otherwise(f.lit(0))


def _is(side: str, state: str) -> Column:
    return f.coalesce(f.col(f"state_{side}") == state, f.expr("false"))


def _facts(changes: DataFrame, queue: str, counts: dict[str, Column], **more: Column) -> DataFrame:
    nothing = {
        "kind": f.lit(None).cast("string"),
        "micros": f.lit(None).cast("bigint"),
        "ready": f.lit(None).cast("timestamp"),
    }
    return changes.where(f.col(queue).isNotNull()).select(
        f.col(queue).alias("queue"),
        f.date_trunc("minute", within_day("at")).alias("minute"),
        "dt",
        *(counts.get(name, f.lit(0)).cast("bigint").alias(name) for name in _NAMES),
        *({**nothing, **more}[name].alias(name) for name in nothing),
    )


def _arrivals(changes: DataFrame) -> DataFrame:
    """Return what each change is to the queue where the task then is."""
    new = f.col("state_from").isNull() | f.col("move").isin("move", "restart")
    counts = {
        "enqueued": _one(_is("to", "ENQUEUED") & new),
        "dead": _one(_is("to", "DEAD") & ~_is("from", "DEAD")),
        "waiting_change": _one(_is("to", "ENQUEUED")),
        "inflight_change": _one(_is("to", "INFLIGHT")),
    }
    return _facts(changes.where("move != 'heartbeat'"), "queue_to", counts)


def _departures(changes: DataFrame) -> DataFrame:
    """Return what each change is to the queue where the task was."""
    move, held, gone = f.col("move"), _is("from", "INFLIGHT"), f.col("state_to").isNull()
    failed = held & move.isin("fail", "reclaim")
    started = move == "dequeue"
    # How long a delivery lasted is told by images; a removal is known to the second only.
    ran = held & ~gone & (failed | move.isin("succeed", "move"))
    counts = {
        "started": _one(started),
        "succeeded": _one(move == "succeed"),
        "failed": _one(failed),
        "lapsed": _one(move == "reclaim"),
        "released": _one(move == "release"),
        "moved": _one(held & (move == "move")),
        "dead": _one(gone & (failed | (move == "expire"))),
        "deleted": _one(move.isin("delete", "purge")),
        "waiting_change": -_one(_is("from", "ENQUEUED")),
        "inflight_change": -_one(held),
    }
    kind = f.when(started, "wait").when(ran, "run")
    micros = f.when(started, micros_between("due_from", "started_at")).when(
        ran, micros_between("started_at", "at")
    )
    waited = _is("from", "ENQUEUED")
    ready = f.when(waited, f.greatest("due_from", "enqueued_from"))
    told = changes.where("move != 'heartbeat'")
    return _facts(told, "queue_from", counts, kind=kind, micros=micros, ready=ready)


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


def _levels(minutes: DataFrame, before: DataFrame) -> DataFrame:
    """Add how many there were at each minute's end, and how old the oldest ready one was.

    Whoever leaves later and was due before was there, so the earliest due time of all that leave
    later is the oldest one's; if it lies ahead, none was ready.
    """
    in_order = Window.partitionBy("queue").orderBy("minute")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    later = in_order.rowsBetween(1, Window.unboundedFollowing)
    start = before.select("queue", f.col("backlog").alias("_b"), f.col("inflight").alias("_i"))
    end = f.unix_micros("minute") + f.lit(60_000_000)
    age = end - f.unix_micros(f.min("ready").over(later))
    return (
        minutes.join(f.broadcast(start), "queue", "left")
        .withColumn("backlog", f.coalesce("_b", f.lit(0)) + f.sum("waiting_change").over(so_far))
        .withColumn("inflight", f.coalesce("_i", f.lit(0)) + f.sum("inflight_change").over(so_far))
        .withColumn("oldest_ready_micros", f.coalesce(f.greatest(age, f.lit(0)), f.lit(0)))
    )
