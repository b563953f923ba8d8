"""Bulk enqueue beside one process without Spark, and the same rows once more."""

import json
import threading
import time
from collections.abc import Iterator

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.bare import PAYLOAD
from benchmarks.results import Bar
from benchmarks.spark.figures import Figure, Measured
from benchmarks.spark.station import BATCH, SHARDS, THREADS, file_in
from headrace.domain.plan import TaskSpec
from headrace.runtime.service import Service
from headrace.spark import register
from headrace.spark.sources.connect import StoreConnection

_WARM_UP = 1_000


def measured(spark: SparkSession, folder: str, tasks: int) -> Iterator[Measured]:
    """Measure a process without Spark, the sink, and the sink again with the same rows."""
    register(spark)
    with file_in(folder, "in", "bare") as (connection, uses):
        _enqueued(spark, connection, _WARM_UP, "warm")
        limit = _alone(uses, tasks)
        seconds = _enqueued(spark, connection, tasks, "new")
        again = _enqueued(spark, connection, tasks, "new")
        added = uses.inspect.count("in").count - _WARM_UP - tasks
    rate = tasks / seconds
    yield Figure("headrace.enqueue", rate, "tasks/s")
    yield Figure("one process without Spark, the same inserts", limit, "tasks/s", ours=False)
    yield f"{rate / limit:.0%} of that"
    yield Figure("the same rows once more", tasks / again, "tasks/s")
    yield Bar("tasks that a repeated enqueue adds", added, 0, at_most=True)


def _enqueued(spark: SparkSession, connection: StoreConnection, number: int, run: str) -> float:
    rows: DataFrame = spark.range(0, number, 1, SHARDS).select(
        f.concat(f.lit(f"{run}-"), f.col("id").cast("string")).alias("id"),
        f.lit(json.dumps(PAYLOAD)).alias("payload"),
    )
    writer = rows.write.format("headrace.enqueue").mode("append").options(**connection.options())
    begin = time.monotonic()
    writer.options(queue="in", id_column="id").save()
    return time.monotonic() - begin


def _alone(uses: Service, number: int) -> float:
    new = [TaskSpec(json.dumps(PAYLOAD))] * BATCH

    def work(batches: int) -> None:
        for _ in range(batches):
            uses.tasks.enqueue("bare", new)

    share = number // BATCH // THREADS
    threads = [threading.Thread(target=work, args=(share,)) for _ in range(THREADS)]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return share * THREADS * BATCH / (time.monotonic() - begin)
