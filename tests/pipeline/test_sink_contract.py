"""What a sink must do to have each row once: a micro-batch may come again as it was.

Each sink is written as the page of the contract says, by a function that ``foreachBatch`` calls.
"""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyarrow import dataset, parquet
from pyiceberg.catalog import load_catalog

from headrace.spark.sources.reading import QueueReading
from headrace.spark.sources.stream import QueueStream
from tests.pipeline.harness import PipelineHarness

Rows = list[dict[str, Any]]
Sink = tuple[Callable[[int, Rows], None], Callable[[], pa.Table]]
"""Writes the rows of a batch, and returns all rows that the sink has."""


def table_of(batch: int, rows: Rows) -> pa.Table:
    return pa.table({"id": [row["id"] for row in rows], "batch": [batch] * len(rows)})


def files(folder: Path) -> Sink:
    """Replace the file of the batch."""

    def write(batch: int, rows: Rows) -> None:
        folder.mkdir(exist_ok=True)
        parquet.write_table(table_of(batch, rows), folder / f"{batch}.parquet")

    return write, lambda: dataset.dataset(folder).to_table()


def delta(folder: Path) -> Sink:
    """Skip a batch that the table has: Delta's ``txnAppId`` and ``txnVersion``."""
    place = str(folder)

    def write(batch: int, rows: Rows) -> None:
        known = DeltaTable.is_deltatable(place) and DeltaTable(place).transaction_version("app")
        if known is False or known is None or known < batch:
            mark = CommitProperties(app_transactions=[Transaction("app", batch)])
            write_deltalake(place, table_of(batch, rows), mode="append", commit_properties=mark)

    return write, lambda: DeltaTable(place).to_pyarrow_table()


def iceberg(folder: Path) -> Sink:
    """Replace the rows of the batch."""
    folder.mkdir()
    catalog = load_catalog("t", type="sql", uri=f"sqlite:///{folder}/c.db", warehouse=str(folder))
    catalog.create_namespace("air")
    table = catalog.create_table("air.rows", table_of(0, []).cast(SCHEMA).schema)

    def write(batch: int, rows: Rows) -> None:
        table.overwrite(table_of(batch, rows).cast(SCHEMA), overwrite_filter=f"batch = {batch}")

    return write, lambda: table.scan().to_arrow()


SCHEMA = pa.schema([("id", pa.string()), ("batch", pa.int64())])


def database(statement: str) -> Callable[[Path], Sink]:
    """Insert the rows by *statement*, as JDBC would."""

    def sink(folder: Path) -> Sink:
        rows_of = sqlite3.connect(folder)
        key = "PRIMARY KEY" if "CONFLICT" in statement else ""
        rows_of.execute(f"CREATE TABLE air (id TEXT {key})")

        def write(_batch: int, rows: Rows) -> None:
            with rows_of:
                rows_of.executemany(statement, [(row["id"],) for row in rows])

        def read() -> pa.Table:
            return pa.table({"id": [id_ for (id_,) in rows_of.execute("SELECT id FROM air")]})

        return write, read

    return sink


APPEND = database("INSERT INTO air VALUES (?)")
UPSERT = database("INSERT INTO air VALUES (?) ON CONFLICT DO NOTHING")


@pytest.fixture
def twice(harness: PipelineHarness) -> Callable[[Sink], list[str]]:
    """Write a micro-batch, let its query die before the commit, and write it again."""
    harness.queue("in")
    harness.fill("in", 30)
    given = {"queue": "in", "on_commit": "succeed", **harness.connection.options()}

    def write_twice(sink: Sink) -> list[str]:
        first = QueueStream(QueueReading.of(given, stream=True))
        start = first.initialOffset()
        end = first.latestOffset(start)
        for stream in (first, again := QueueStream(QueueReading.of(given, stream=True))):
            shares = stream.partitions(start, end)
            parts = [batch for share in shares for batch in stream.read(share)]
            sink[0](0, [row for part in parts for row in part.to_pylist()])
        again.commit(end)
        first.stop()
        again.stop()
        assert harness.states("in") == {"SUCCEEDED": 30}
        return [str(id_) for id_ in sink[1]()["id"].to_pylist()]

    return write_twice


@pytest.mark.filterwarnings("ignore:Delete operation did not match")  # PyIceberg's
@pytest.mark.parametrize("kind", [files, delta, iceberg, UPSERT])
def test_a_sink_that_replaces_skips_or_upserts_has_each_row_once(
    twice: Callable[[Sink], list[str]], kind: Callable[[Path], Sink], tmp_path: Path
) -> None:
    found = twice(kind(tmp_path / "sink"))
    assert len(found) == len(set(found)) == 30


def test_a_sink_that_only_appends_may_have_a_row_twice_and_lacks_none(
    twice: Callable[[Sink], list[str]], tmp_path: Path
) -> None:
    found = twice(APPEND(tmp_path / "sink"))
    assert (len(found), len(set(found))) == (60, 30)
