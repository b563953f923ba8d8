"""Bulk enqueue beside what the engine can do for the same inserts, and once more for nothing."""

import json
import threading
import time
from collections.abc import Iterator

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headrace.spark import register
from headrace.spark.sources.connect import StoreConnection
from tests.bench.bare import PAYLOAD, BareClient
from tests.bench.results import Bar
from tests.pipeline.bench.figures import Figure, Measured
from tests.pipeline.bench.station import BATCH, SHARDS, THREADS, engine_with

_WARM_UP = 1_000


def measured(spark: SparkSession, folder: str, tasks: int) -> Iterator[Measured]:
    """Measure the engine, the sink, and the sink again with the same rows."""
    del folder
    register(spark)
    with engine_with("in") as (engine, uses):
        connection = StoreConnection(dynamodb_url=engine.url)
        _enqueued(spark, connection, _WARM_UP, "warm")
        limit = _bare(engine.url, tasks)
        seconds = _enqueued(spark, connection, tasks, "new")
        again = _enqueued(spark, connection, tasks, "new")
        added = uses.inspect.count("in").count - _WARM_UP - tasks
    rate = tasks / seconds
    yield Figure("headrace.enqueue", rate, "tasks/s")
    yield Figure("the engine itself, the same inserts", limit, "tasks/s", ours=False)
    yield f"{rate / limit:.0%} of the engine's own"
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


def _bare(url: str, number: int) -> float:
    def work(batches: int) -> None:
        with BareClient(url, "bare") as client:
            for _ in range(batches):
                client.insert(BATCH)

    share = number // BATCH // THREADS
    threads = [threading.Thread(target=work, args=(share,)) for _ in range(THREADS)]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return share * THREADS * BATCH / (time.monotonic() - begin)
