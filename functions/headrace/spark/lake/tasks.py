"""Changes to ``tasks``: the life of a task in one queue, from the change that ended it."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from headrace.spark.lake.attempts import micros_between
from headrace.spark.lake.schemas import TASKS


def tasks(changes: DataFrame) -> DataFrame:
    """Return the lives in a queue that *changes* ended."""
    outcome = (
        f.when(f.col("move") == "move", "moved")
        .when(f.col("move") == "succeed", "succeeded")
        .when(f.col("move").isin("delete", "purge"), "deleted")
        .otherwise("dead")
    )
    lived = f.col("state_from").isin("ENQUEUED", "INFLIGHT")
    lives_on = f.col("state_to").isin("ENQUEUED", "INFLIGHT") & (f.col("move") != "move")
    ended = changes.where(lived & ~f.coalesce(lives_on, f.expr("false")))
    return ended.select(
        "task_id",
        "created_at",
        "version",
        f.col("queue_from").alias("queue"),
        f.col("hop_from").alias("hop"),
        outcome.alias("outcome"),
        f.col("enqueued_from").alias("enqueued_at"),
        "started_at",
        f.col("at").alias("ended_at"),
        micros_between("enqueued_from", "at").alias("total_micros"),
        f.col("attempts_from").alias("attempts"),
        "dead_reason",
        f.when(f.col("move") == "move", f.col("queue_to")).alias("to_queue"),
        "error_type",
        "error_message",
        "payload_bytes",
        "result_bytes",
        "dt",
    ).select(*(column.name for column in TASKS.columns))
