"""Changes to ``attempts``: every delivery, from the change that ended it."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from headrace.spark.lake.schemas import ATTEMPTS


def micros_between(start: str, end: str) -> Column:
    """Return the microseconds from column *start* to column *end*, never less than none."""
    return f.greatest(f.lit(0), f.unix_micros(end) - f.unix_micros(start))


def attempts(changes: DataFrame) -> DataFrame:
    """Return the deliveries that *changes* ended."""
    gave_up = f.col("state_to").isNull() | (f.col("state_to") == "DEAD")
    failed = f.col("move").isin("fail", "reclaim")
    outcome = (
        f.when(failed & gave_up, "dead")
        .when(f.col("move") == "fail", "failed")
        .when(f.col("move") == "reclaim", "lease_expired")
        .when(f.col("move") == "succeed", "succeeded")
        .when(f.col("move") == "release", "released")
        .when(f.col("move") == "move", "moved")
        .otherwise("deleted")
    )
    ended = changes.where("state_from = 'INFLIGHT' AND state_to IS DISTINCT FROM 'INFLIGHT'")
    return ended.select(
        "task_id",
        "created_at",
        "version",
        f.col("queue_from").alias("queue"),
        f.col("hop_from").alias("hop"),
        f.col("attempts_from").alias("attempt"),
        "worker",
        f.col("lease_from").alias("lease"),
        f.col("due_from").alias("ready_at"),
        "started_at",
        f.col("at").alias("ended_at"),
        micros_between("due_from", "started_at").alias("wait_micros"),
        micros_between("started_at", "at").alias("run_micros"),
        outcome.alias("outcome"),
        f.when(f.col("move") == "move", f.col("queue_to")).alias("to_queue"),
        "error_type",
        "error_message",
        "dt",
    ).select(*(column.name for column in ATTEMPTS.columns))
