"""Reading a table beside a source made of boto3, and an export beside Spark's own JSON reader.

The table is served by something that costs nothing, so that it is the reader which is measured.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
from boto3.dynamodb.types import TypeDeserializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from benchmarks.bare import PAYLOAD
from benchmarks.results import Bar
from benchmarks.spark.figures import Figure, Measured
from benchmarks.spark.nullserver import PAGE_ITEMS, serving
from headrace.domain import plan
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import Queue
from headrace.domain.queue_settings import QueueSettings
from headrace.spark import register
from headrace.store.items import to_item
from headrace.store.lake import FolderLake
from tests.pipeline import exports

SEGMENTS = 4
TIMES_BOTO3 = 5
_FILES = 4
_BOTO3_PART = 8  # of the rows: it would take minutes for all of them
# The same columns on both sides: Spark's own work on more of them is none of the reader's.
_LIKE_BOTO3 = "id string, queue string, payload string, attempts int"
_LIKE_JSON = f"{_LIKE_BOTO3}, created_at timestamp, scheduled_at timestamp"
_WORDS = "task_id string, queue_state string, payload string, attempts long"


class BotoSource(DataSource):
    """What one would write by hand: boto3's own pages, each item turned into Python."""

    @classmethod
    def name(cls) -> str:
        return "boto3"

    def schema(self) -> str:
        return _WORDS

    def reader(self, schema: StructType) -> "BotoReader":
        return BotoReader(self.options["url"])


class BotoReader(DataSourceReader):
    """Scans by segments."""

    def __init__(self, url: str) -> None:
        self.url = url

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(SEGMENTS)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        client = boto3.client(
            "dynamodb",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id="local",
            aws_secret_access_key="local",
        )
        value = TypeDeserializer().deserialize
        pages = client.get_paginator("scan").paginate(
            TableName="headrace-tasks", Segment=partition.value, TotalSegments=SEGMENTS
        )
        for page in pages:
            for item in page["Items"]:
                row = {name: value(reported) for name, reported in item.items()}
                yield row["task_id"], row["queue#state"], row["payload"], int(row["attempts"])


def measured(spark: SparkSession, folder: str, rows: int) -> Iterator[Measured]:
    """Measure all four readers; yield what was found."""
    register(spark)
    spark.dataSource.register(BotoSource)
    items = _items(PAGE_ITEMS)
    size = len(json.dumps(items)) / len(items)
    yield f"{rows:,} rows of {size:.0f} bytes as DynamoDB tells them"
    rate = _table(spark, items, rows, "headrace.table")
    yield Figure("headrace.table, all columns", rate, "rows/s")
    ours = _table(spark, items, rows, "headrace.table", _LIKE_BOTO3)
    yield Figure("headrace.table, the columns of the next one", ours, "rows/s")
    theirs = _table(spark, items, rows // _BOTO3_PART, "boto3")
    yield Figure("a source made of boto3", theirs, "rows/s", ours=False)
    yield Bar("table read, times boto3", ours / theirs, TIMES_BOTO3, at_most=False)
    lake, at = _exported(Path(folder, "export"), items, rows)
    rate = _timed(lambda: spark.read.format("headrace.export").schema(_LIKE_JSON).load(at), rows)
    yield Figure("headrace.export, checksums and counts verified", rate, "rows/s")
    rate = _timed(lambda: _spark_json(spark, lake), rows)
    yield Figure("Spark's own JSON reader, the schema given", rate, "rows/s", ours=False)


def _items(number: int) -> list[dict[str, Any]]:
    now = datetime.now(UTC)
    queue = Queue("mail", QueueSettings(), now, now)
    new = TaskSpec(json.dumps(PAYLOAD), tags={"service": "smartcity"})
    change = plan.enqueue(new, queue, task_id="tsk_x", due_at=now, now=now, token=None)
    assert change.insert is not None
    item = to_item(change.insert)
    return [{**item, "task_id": {"S": f"tsk_{n:026d}"}} for n in range(number)]


def _table(
    spark: SparkSession,
    items: list[dict[str, Any]],
    rows: int,
    name: str,
    schema: str | None = None,
) -> float:
    pages = max(1, rows // (SEGMENTS * PAGE_ITEMS))
    options = {"segments": str(SEGMENTS)} if name == "headrace.table" else {}
    where = "dynamodb_url" if options else "url"
    with serving(items, pages) as url:
        reader = spark.read.format(name).options(**options, **{where: url})
        reader = reader.schema(schema) if schema else reader
        return _timed(lambda: reader.load(), pages * SEGMENTS * PAGE_ITEMS)  # noqa: PLW0108 (anew)


def _exported(folder: Path, items: list[dict[str, Any]], rows: int) -> tuple[str, str]:
    lake = FolderLake(folder)
    records = [{"Item": items[n % len(items)]} for n in range(rows)]
    data = f"AWSDynamoDB/{exports.FULL}/data"
    keys = [f"{data}/part{number}.json.gz" for number in range(_FILES + 1)]
    about = {"version": "2020-06-30", "exportTime": "2026-11-21T00:00:00.000Z"}
    at = exports.written(lake, exports.FULL, records, keys, about)
    return str(folder / "exports" / data), str(folder / at)


def _spark_json(spark: SparkSession, folder: str) -> DataFrame:
    text, number = "struct<S:string>", "struct<N:string>"
    item = (
        f"task_id:{text},`queue#state`:{text},payload:{text},attempts:{number},created_at:{number},"
        f"scheduled_at:{number},tags:struct<M:map<string,{text}>>"
    )
    found = spark.read.schema(f"Item struct<{item}>").json(folder)
    return found.select(
        f.col("Item.task_id.S").alias("id"),
        f.col("Item.`queue#state`.S").alias("queue"),
        f.col("Item.payload.S").alias("payload"),
        f.col("Item.attempts.N").cast("int").alias("attempts"),
        f.timestamp_micros(f.col("Item.created_at.N").cast("bigint")).alias("created_at"),
        f.timestamp_micros(f.col("Item.scheduled_at.N").cast("bigint")).alias("scheduled_at"),
    )


def _timed(frame: Callable[[], DataFrame], rows: int) -> float:
    """Return rows a second of the second run, every column of which is looked at."""
    seconds = 0.0
    for _ in range(2):
        requested = frame()
        begin = time.monotonic()
        hashed = f.count(f.hash(*(f.col(name).cast("string") for name in requested.columns)))
        (found,) = requested.agg(hashed).collect()[0]
        seconds = time.monotonic() - begin
        assert found == rows, f"{found:,} rows instead of {rows:,}"
    return rows / seconds
