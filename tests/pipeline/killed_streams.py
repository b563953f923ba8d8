"""Streams into sinks of five kinds, for a test that kills their processes.

``python -m tests.pipeline.killed_streams FOLDER SEED`` runs one query for each kind of sink until
it is killed.  A query that fails stays away for a while, mostly for longer than its lease.
"""

import random
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.spark import register
from headrace.spark.session import session
from headrace.spark.stations.__main__ import CONF

SINKS: Final = ("parquet", "delta", "iceberg", "batches", "database")
LEASE_SECONDS: Final = 2.0
ROWS: Final = pa.schema([("id", pa.string()), ("batch", pa.int64())])
_STREAM: Final = "stream"
_FAILS: Final = 0.1
_STARTING: Final = 15.0  # seconds that a query may take alone to start
_SPARK: Final = {
    **CONF,
    "spark.python.daemon.module": "headrace.spark.stations.daemon",
    "spark.master": "local[3,4]",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


class Sinks:
    """What the queries write to, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.delta = str(folder / "delta")

    def make(self) -> None:
        """Make the tables, once."""
        DeltaTable.create(self.delta, ROWS)
        catalog = self._catalog()
        catalog.create_namespace("any")
        catalog.create_table("any.tasks", ROWS)
        with closing(self._database()) as tables:
            tables.execute("CREATE TABLE tasks (id TEXT, batch INTEGER)")

    def write_delta(self, frame: DataFrame, number: int) -> None:
        """Append a batch unless the table has it, as Delta's own sink does with txnVersion."""
        version = DeltaTable(self.delta).transaction_version(_STREAM)
        if version is None or version < number:
            once = CommitProperties(app_transactions=[Transaction(_STREAM, number)])
            write_deltalake(self.delta, _rows(frame, number), mode="append", commit_properties=once)

    def write_iceberg(self, frame: DataFrame, number: int) -> None:
        """Replace a batch."""
        table = self._catalog().load_table("any.tasks")
        table.overwrite(_rows(frame, number), overwrite_filter=f"batch = {number}")

    def write_batches(self, frame: DataFrame, number: int) -> None:
        """Replace a batch by Spark's own writer."""
        path = str(self.folder / "batches" / f"batch={number}")
        frame.select("id").write.mode("overwrite").parquet(path)

    def write_database(self, frame: DataFrame, number: int) -> None:
        """Replace a batch in one transaction."""
        rows = _rows(frame, number).to_pylist()
        with closing(self._database()) as tables, tables:
            tables.execute("DELETE FROM tasks WHERE batch = ?", [number])
            tables.executemany("INSERT INTO tasks VALUES (:id, :batch)", rows)

    def ids(self) -> dict[str, list[str]]:
        """Return the ids of the rows in each sink."""
        import polars as pl  # noqa: PLC0415  the queries need no Polars

        iceberg = self._catalog().load_table("any.tasks").scan().to_arrow()
        with closing(self._database()) as tables:
            database = [id_ for (id_,) in tables.execute("SELECT id FROM tasks")]
        return {
            "parquet": self._committed(),
            "delta": pl.read_delta(self.delta)["id"].to_list(),
            "iceberg": iceberg.column("id").to_pylist(),
            "batches": _in_files(sorted((self.folder / "batches").glob("*/*.parquet"))),
            "database": database,
        }

    def _committed(self) -> list[str]:
        """Return the ids in those files of Spark's own sink that it has committed."""
        import json  # noqa: PLC0415  likewise

        paths = set[str]()
        for log in (self.folder / "parquet" / "_spark_metadata").iterdir():
            if not log.name.startswith("."):
                _, *lines = log.read_text().splitlines()
                paths |= {json.loads(line)["path"].removeprefix("file://") for line in lines}
        return _in_files(sorted(map(Path, paths)))

    def _catalog(self) -> SqlCatalog:
        return SqlCatalog(
            "any", uri=f"sqlite:///{self.folder}/iceberg.db", warehouse=str(self.folder)
        )

    def _database(self) -> sqlite3.Connection:
        return sqlite3.connect(self.folder / "sink.db", timeout=60)


def _rows(frame: DataFrame, number: int) -> pa.Table:
    ids = [row["id"] for row in frame.select("id").collect()]
    return pa.table({"id": ids, "batch": [number] * len(ids)}, schema=ROWS)


def _in_files(paths: list[Path]) -> list[str]:
    import pyarrow.parquet as pq  # noqa: PLC0415  likewise

    return [id_ for path in paths for id_ in pq.read_table(path).column("id").to_pylist()]


class Queries:
    """The five queries, each of which is started again some time after it has failed."""

    def __init__(self, spark: SparkSession, folder: Path, chance: random.Random) -> None:
        self._spark = spark
        self._folder = folder
        self._chance = chance
        self._sinks = Sinks(folder)
        self._running: dict[str, StreamingQuery] = {}
        self._again: dict[str, float] = dict.fromkeys(SINKS, 0.0)
        self._starting = ""
        self._free_at = 0.0

    def tend(self) -> None:
        """Start each query that does not run, when its time has come.

        One after the other, because Spark waits only ten seconds for the process of a source, and
        on a busy machine five of them that start together take longer.
        """
        now = time.monotonic()
        for name in SINKS:
            query = self._running.get(name)
            if query is not None and not query.isActive:
                del self._running[name]
                self._again[name] = now + self._chance.uniform(0, 3 * LEASE_SECONDS)
            elif query is None and now >= self._again[name] and now >= self._free_at:
                self._running[name] = self._start(name)
                self._starting, self._free_at = name, now + _STARTING
            elif query is not None and name == self._starting and query.lastProgress is not None:
                self._free_at = now

    def _start(self, name: str) -> StreamingQuery:
        options = {"queue": name, "url": f"file:{self._folder}/headrace.db", "max_rows": "20"}
        options |= {"on_commit": "succeed", "lease_seconds": f"{LEASE_SECONDS:g}"}
        tasks = self._spark.readStream.format("headrace").options(**options).load()
        writing = tasks.where("NOT lapsed").select("id").writeStream
        writing = writing.option("checkpointLocation", str(self._folder / f"{name}.checkpoint"))
        if name == "parquet":
            return writing.format("parquet").start(str(self._folder / "parquet"))
        write: Callable[[DataFrame, int], Any] = getattr(self._sinks, f"write_{name}")

        def each(frame: DataFrame, number: int) -> None:
            if self._chance.random() < _FAILS:
                raise ValueError("before the batch is written")
            write(frame, number)
            if self._chance.random() < _FAILS:
                raise ValueError("after the batch is written")

        return writing.foreachBatch(each).start()


def main() -> None:
    """Run them."""
    folder, seed = Path(sys.argv[1]), int(sys.argv[2])
    spark = session("headrace killed streams", **_SPARK)
    spark.sparkContext.setLogLevel("OFF")
    register(spark)
    queries = Queries(spark, folder, random.Random(seed))
    while True:
        queries.tend()
        time.sleep(0.1)


if __name__ == "__main__":
    main()
