"""The proof with the table beside the changes: which tasks were never ended, and yet are gone."""

from collections.abc import Callable, Mapping
from datetime import date, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headrace.spark.lake.frames import LakeFrames
from headrace.spark.lake.proof import LOST, LakeProof, proof
from headrace.spark.lake.rollup import rollup
from headrace.spark.sources.table import NAME, TableSource


def live_tasks(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Return the lives of all tasks in the table; *options* are those of ``headrace.table``."""
    spark.dataSource.register(TableSource)
    reader = spark.read.format(NAME).schema("id string, created_at timestamp")
    tasks = reader.options(**options, consistent="true").load()
    return tasks.select(f.col("id").alias("task_id"), "created_at")


def proof_with_table(
    lake: LakeFrames,
    options: Mapping[str, str],
    *,
    settle_seconds: float,
    now: Callable[[], datetime],
    sleep: Callable[[float], None],
    since: date | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> LakeProof:
    """Prove the changes *since* a day, and look for every task that they leave unended.

    The table is read first and the lake brought up after it, so that what ended in between is
    known.  Should a task still seem lost, what is under way to the lake gets *settle_seconds* to
    arrive, and it is looked at once more.
    """
    say("reading the table")
    at = now()
    live = live_tasks(lake.spark, options).cache()
    try:
        say(f"{live.count():,} tasks in the table")

        def looked() -> LakeProof:
            rollup(lake, today=now().date(), say=say)
            return proof(lake, since=since, live=live, live_at=at, now=now(), say=say)

        report = looked()
        if LOST in report.violations and settle_seconds > 0:
            say(f"{report.violations[LOST]:,} seem lost: looking again in {settle_seconds:g} s")
            sleep(settle_seconds)
            report = looked()
    finally:
        live.unpersist()
    return report
