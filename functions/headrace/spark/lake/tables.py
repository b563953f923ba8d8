"""Raw lines to ``changes``, and changes to the tables of a day: attempts, tasks and failures.

Two errors are alike when type and message are, without what differs from one task to the next:
ids, numbers, quoted texts, letter case and the length of white space.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from headrace.domain.fingerprints import BLANKS
from headrace.history.changelog import FILLED
from headrace.spark.lake.schemas import ATTEMPTS, CHANGES, DAY, FAILURES, TASKS

IDS_KEPT: Final = 10
SAME: Final = ("move", "queue_to", "state_to", "lease_to", "lease_from", "settled")
"""What two lines of one change agree on, besides its key.

Lines that tell two stories of one version both stay: the proof is there to find them.
"""


def filled_in() -> Column:
    """Whether a line was made up from an export."""
    return f.coalesce(f.col("shard").startswith(FILLED), f.expr("false"))


def legible(raw: DataFrame) -> Column:
    """Whether lines hold what a change cannot be without."""
    needed = (*CHANGES.key, "recorded_at", "move")
    legible_line = f.expr("true")
    for name in needed:
        legible_line = legible_line & raw[name].isNotNull()
    return legible_line


def changes(raw: DataFrame) -> DataFrame:
    """Return the changes that *raw* lines tell, each once however often it came.

    A version from an export counts only where no stream has it, and once.
    """
    instants = {
        column.name: f.timestamp_micros(column.name).alias(column.name)
        for column in CHANGES.columns
        if column.type == "timestamp"
    }
    recorded = f.timestamp_micros("recorded_at")
    lines = (
        raw.where(legible(raw))
        .withColumn("at", f.coalesce("at", "recorded_at"))
        .select(
            *(instants.get(name, f.col(name)) for name in raw.columns),
            f.to_date(recorded).alias(DAY),
        )
    )
    in_order = Window.partitionBy(*CHANGES.key).orderBy(
        filled_in(), *SAME, "recorded_at", "shard", "sequence"
    )
    story = f.struct(*SAME)
    copy = f.lag(story).over(in_order).eqNullSafe(story)
    surplus = f.when(filled_in(), f.row_number().over(in_order) > 1).otherwise(copy)
    once = lines.withColumn("_surplus", surplus).where("NOT _surplus")
    return once.select(*CHANGES.names)


def micros_between(start: str, end: str) -> Column:
    """Return the microseconds from column *start* to column *end*, never less than none."""
    return f.greatest(f.lit(0), f.unix_micros(end) - f.unix_micros(start))


def attempts(changes: DataFrame) -> DataFrame:
    """Every delivery, from the one of *changes* that ended it."""
    gave_up = f.col("state_to").isNull() | (f.col("state_to") == "DEAD")
    outcome = (
        f.when(f.col("move").isin("fail", "reclaim") & gave_up, "dead")
        .when(f.col("move") == "fail", "failed")
        .when(f.col("move") == "reclaim", "lease_expired")
        .when(f.col("move") == "succeed", "succeeded")
        .when(f.col("move") == "release", "released")
        .when(f.col("move") == "move", "moved")
        .when(f.col("move") == "cancel", "cancelled")
        .otherwise("deleted")
    )
    ended = changes.where("state_from = 'INFLIGHT' AND state_to IS DISTINCT FROM 'INFLIGHT'")
    own = {
        "attempt": f.col("attempts_from"),
        "lease": f.col("lease_from"),
        "ready_at": f.col("due_from"),
        "wait_micros": micros_between("due_from", "started_at"),
        "run_micros": micros_between("started_at", "at"),
    }
    return ended.withColumns({**_left(outcome), **own}).select(*ATTEMPTS.names)


def tasks(changes: DataFrame) -> DataFrame:
    """The life of each task in one queue, from the one of *changes* that ended it."""
    outcome = (
        f.when(f.col("move") == "move", "moved")
        .when(f.col("move") == "succeed", "succeeded")
        .when(f.col("move") == "cancel", "cancelled")
        .when(f.col("move").isin("delete", "purge"), "deleted")
        .otherwise("dead")
    )
    lived = f.col("state_from").isin("ENQUEUED", "INFLIGHT")
    lives_on = f.col("state_to").isin("ENQUEUED", "INFLIGHT") & (f.col("move") != "move")
    ended = changes.where(lived & ~f.coalesce(lives_on, f.expr("false")))
    own = {
        "enqueued_at": f.col("enqueued_from"),
        "total_micros": micros_between("enqueued_from", "at"),
        "attempts": f.col("attempts_from"),
    }
    return ended.withColumns({**_left(outcome), **own}).select(*TASKS.names)


def _left(outcome: Column) -> dict[str, Column]:
    """The queue that a task left, when, and how."""
    return {
        "queue": f.col("queue_from"),
        "hop": f.col("hop_from"),
        "ended_at": f.col("at"),
        "outcome": outcome,
        "to_queue": f.when(f.col("move") == "move", f.col("queue_to")),
    }


def failures(changes: DataFrame) -> DataFrame:
    """Return the failed attempts of *changes*, alike ones together."""
    failed = changes.where("state_from = 'INFLIGHT' AND move IN ('fail', 'reclaim')").select(
        f.col("queue_from").alias("queue"),
        f.date_trunc("hour", "recorded_at").alias("hour"),
        fingerprint("error_type", "error_message").alias("fingerprint"),
        f.coalesce("error_type", f.lit("")).alias("error_type"),
        f.coalesce("error_message", f.lit("")).alias("error_message"),
        (f.col("state_to").isNull() | (f.col("state_to") == "DEAD")).cast("bigint").alias("dead"),
        "at",
        "task_id",
        "dt",
    )
    alike = ("queue", "hour", "fingerprint", "dt")
    by_time = Window.partitionBy(*alike).orderBy("at", "task_id")
    ranked = failed.withColumn("place", f.row_number().over(by_time))
    first = f.when(f.col("place") == 1, f.col("error_message"))
    some = f.when(f.col("place") <= IDS_KEPT, f.struct("place", "task_id"))
    counted = ranked.groupBy(*alike).agg(
        f.max(f.when(f.col("place") == 1, f.col("error_type"))).alias("error_type"),
        f.max(first).alias("sample"),
        f.count("*").alias("n"),
        f.sum("dead").alias("dead"),
        f.min("at").alias("first_at"),
        f.max("at").alias("last_at"),
        f.sort_array(f.collect_list(some)).getField("task_id").alias("task_ids"),
    )
    return counted.select(*FAILURES.names)


def fingerprint(error_type: str, message: str) -> Column:
    """A key that alike errors share, from the columns *error_type* and *message*."""
    text = f.lower(f.coalesce(message, f.lit("")))
    for pattern, blank in BLANKS:
        text = f.regexp_replace(text, pattern, blank)
    whole = f.concat_ws("\n", f.coalesce(error_type, f.lit("")), f.trim(text))
    return f.substring(f.sha2(whole, 256), 1, 16)


def within_day(instant: str) -> Column:
    """Return the column *instant*, moved into the day on which its row was recorded.

    The service and the stream have two clocks; near midnight they may show two days.
    """
    start = f.date_trunc("day", "recorded_at")
    end = f.timestamp_micros(f.unix_micros(start) + f.lit(86_399_999_999))
    return f.least(f.greatest(f.col(instant), start), end)
