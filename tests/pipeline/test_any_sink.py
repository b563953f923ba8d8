"""Sinks that are not ours, each by its own library: a batch that comes again is there once."""

from contextlib import suppress
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from headrace.spark import register
from tests.pipeline.harness import AT_ONCE, PipelineHarness

STREAM = "stream"
COLUMNS = pa.schema([("id", pa.string()), ("batch", pa.int64())])


class Sinks:
    """A folder of Parquet, a table of Delta's and one of Iceberg's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.delta = str(folder / "delta")
        DeltaTable.create(self.delta, COLUMNS)
        catalog = SqlCatalog("any", uri=f"sqlite:///{folder}/iceberg.db", warehouse=str(folder))
        catalog.create_namespace("any")
        self.iceberg = catalog.create_table("any.tasks", COLUMNS)

    def write(self, frame: DataFrame, number: int) -> None:
        """Write a batch as each of them is told that it may have been written before."""
        ids = [row["id"] for row in frame.select("id").collect()]
        rows = pa.table({"id": ids, "batch": [number] * len(ids)}, schema=COLUMNS)
        frame.select("id").write.mode("overwrite").parquet(str(self.folder / f"batch={number}"))
        version = DeltaTable(self.delta).transaction_version(STREAM)
        if version is None or version < number:  # what Delta's own sink does with txnVersion
            once = CommitProperties(app_transactions=[Transaction(STREAM, number)])
            write_deltalake(self.delta, rows, mode="append", commit_properties=once)
        self.iceberg.overwrite(rows, overwrite_filter=f"batch = {number}")

    def ids(self) -> dict[str, list[str]]:
        tables = {
            "parquet": pl.read_parquet(self.folder / "batch=*" / "*.parquet"),
            "delta": pl.read_delta(self.delta),
            "iceberg": pl.DataFrame(self.iceberg.refresh().scan().to_arrow()),
        }
        return {name: sorted(table["id"].to_list()) for name, table in tables.items()}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Delete operation did not match:UserWarning")
def test_any_sink_has_each_task_once_though_batches_come_again(
    spark: SparkSession, harness: PipelineHarness, tmp_path: Path
) -> None:
    harness.queue("in", retry=AT_ONCE)
    harness.fill("in", 20)
    register(spark)
    sinks, tries = Sinks(tmp_path), dict.fromkeys(range(9), 0)

    def each(frame: DataFrame, number: int) -> None:
        sinks.write(frame, number)
        tries[number] += 1
        if tries[number] == 1:
            raise ValueError("killed")  # it is written, and Spark does not know it

    options = {"queue": "in", "max_rows": "12", "on_commit": "succeed", "lease_seconds": "120"}
    for _ in range(4):  # two batches, each of which ends a query once
        tasks = spark.readStream.format("headrace")
        tasks = tasks.options(**options, **harness.connection.options())
        writing = tasks.load().writeStream.foreachBatch(each).trigger(availableNow=True)
        query = writing.option("checkpointLocation", str(tmp_path / "c")).start()
        with suppress(StreamingQueryException):
            query.awaitTermination(600)  # ends by itself

    assert harness.states("in") == {"SUCCEEDED": 20}
    assert tries[0] == tries[1] == 2
    every = sorted(task.id for task in harness.tasks("in"))
    assert sinks.ids() == {"parquet": every, "delta": every, "iceberg": every}
