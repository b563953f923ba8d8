"""Changes to ``failures``: failed attempts by what they have in common.

Two errors are alike when type and message are, without what differs from one task to the next:
ids, numbers, quoted texts, letter case and the length of white space.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from headrace.domain.fingerprint import BLANKS
from headrace.spark.lake.schemas import FAILURES

IDS_KEPT: Final = 10


def failures(changes: DataFrame) -> DataFrame:
    """Return the failed attempts of *changes*, alike ones together."""
    failed = changes.where("state_from = 'INFLIGHT' AND move IN ('fail', 'reclaim')").select(
        f.col("queue_from").alias("queue"),
        f.date_trunc("hour", within_day("at")).alias("hour"),
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
    return counted.select(*(column.name for column in FAILURES.columns))


def fingerprint(error_type: str, message: str) -> Column:
    """A key that alike errors share, from the columns *error_type* and *message*."""
    text = f.lower(f.coalesce(message, f.lit("")))
    for pattern, blank in BLANKS:
        text = f.regexp_replace(text, pattern, blank)
    whole = f.concat_ws("\n", f.coalesce(error_type, f.lit("")), f.trim(text))
    return f.substring(f.sha2(whole, 256), 1, 16)


def within_day(instant: str) -> Column:
    """Return the column *instant*, moved into its row's day.

    Service and stream look at two clocks; near midnight they may tell two days.
    """
    start = f.col("dt").cast("timestamp")
    end = f.timestamp_micros(f.unix_micros(start) + f.lit(86_399_999_999))
    return f.least(f.greatest(f.col(instant), start), end)
