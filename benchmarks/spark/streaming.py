"""A stream behind the stations: what it reads goes to Parquet, and on commit to another queue.

``python -m benchmarks.spark.streaming FOLDER`` goes on until it is asked to end, or killed.
"""

import signal
import sys
from pathlib import Path

from pyspark.sql import DataFrame

from headrace.spark import register
from headrace.spark.session import session
from headrace.spark.stations.__main__ import CONF, LOCAL
from tests.pipeline.harness import drained

ROWS = "rows"
LEASE_SECONDS = 120.0
"""Longer than a restart takes: what a killed stream holds is its own when it comes back."""


def main() -> None:
    """Run it."""
    folder = Path(sys.argv[1])
    spark = session("headrace chaos stream", **LOCAL, **CONF)
    register(spark)

    def written(rows: DataFrame, number: int) -> None:
        rows.select("id").write.mode("overwrite").parquet(str(folder / ROWS / f"batch={number}"))

    tasks = spark.readStream.format("headrace").options(queue="out", on_commit="move:done")
    tasks = tasks.options(max_rows="2000", lease_seconds=f"{LEASE_SECONDS:g}")
    writing = tasks.load().writeStream.foreachBatch(written)
    writing = writing.option("checkpointLocation", str(folder / "checkpoint"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        failure = drained(writing.start)  # a signal is heard between two looks
        if failure is not None:
            raise failure


if __name__ == "__main__":
    main()
