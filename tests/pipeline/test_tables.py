"""The tables' own formats: read by segments and by the index."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from msgspec import structs
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType, TimestampType

from headrace.domain.change import Change
from headrace.domain.errors import InvalidRequest, NotFound
from headrace.domain.lifecycle import Action, rule
from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.task import State
from headrace.ops.delivery.reports import ReportStatus, TaskReport
from headrace.spark.sources import (
    columns,
    connect,
    enqueue,
    export,
    newrows,
    options,
    register,
    table,
)
from headrace.spark.sources.columns import columns_of
from headrace.spark.sources.connect import StoreConnection
from headrace.spark.sources.table import (
    TableReading,
    TableSource,
    pages_of,
    scanned,
)
from infra import PROJECT_ROOT


def schema_of(text: str) -> StructType:
    return cast("StructType", StructType.fromDDL(text))


NUMBER = 60


@pytest.fixture(params=[pytest.param("file", marks=pytest.mark.gate), "dynamodb"])
def connection(request: pytest.FixtureRequest, connection: StoreConnection) -> StoreConnection:
    """Give an empty file, or empty tables on DynamoDB Local."""
    if request.param == "file":
        return connection
    tables: StoreConnection = request.getfixturevalue("dynamodb_tables")
    return tables


@pytest.fixture
def filled(connection: StoreConnection) -> StoreConnection:
    """Give tables with tasks in two queues, some of them in flight and some dead."""
    uses = connect.opened(connection)
    uses.queues.create("mail", QueueSettings(shards=2))
    uses.queues.create("other", QueueSettings())
    payload = json.dumps({"text": 'é "tags":{"M":{"a":{"S":"b"}}} \U0001f600'}, ensure_ascii=False)
    tags = {'a"b': "c\\d}", "tags": "x"}
    new = [TaskSpec(payload, tags=tags if n % 2 else {}) for n in range(NUMBER)]
    uses.tasks.enqueue("mail", new)
    uses.tasks.enqueue("other", [TaskSpec("1")])
    uses.deliveries.dequeue("mail", batch_size=10, worker="w1")
    return connection


def read(spark: SparkSession, connection: StoreConnection, **options: str) -> Any:
    register(spark)
    return spark.read.format("headrace.table").options(**connection.options(), **options)


def whole(connection: StoreConnection, schema: str) -> list[dict[str, Any]]:
    """Return the columns *schema* of all tasks, read as one part."""
    columns = columns_of([(one.name, one.dataType.simpleString()) for one in schema_of(schema)])
    (part,) = pages_of(connection).parts(1)
    return rows_of(scanned(TableReading(connection, columns, consistent=True), part))


def rows_of(batches: Any) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def attention(connection: StoreConnection, **options: str) -> list[datetime]:
    """Return when the tasks of a queue need attention, as read by the index."""
    source = TableSource({**connection.options(), "queue": "mail", **options})
    reader = source.reader(StructType().add("attention_at", TimestampType()))
    rows = [row for part in reader.partitions() for row in rows_of(reader.read(part))]
    return sorted(row["attention_at"] for row in rows)


def test_a_span_of_time_is_read_by_the_index(filled: StoreConnection) -> None:
    times = attention(filled)
    middle = times[NUMBER // 2]

    early = attention(filled, until=middle.isoformat())
    late = attention(filled, since=middle.isoformat())

    assert early == [at for at in times if at < middle]
    assert late == [at for at in times if at >= middle]
    assert attention(filled, since=(times[-1] + timedelta(days=1)).isoformat()) == []


def test_the_table_is_read_by_segments_as_it_is_stored(
    spark: SparkSession, filled: StoreConnection
) -> None:
    rows = read(spark, filled, segments="2", consistent="true").load().collect()

    assert len(rows) == NUMBER + 1
    stored = connect.store(filled).read([row["id"] for row in rows])
    for row in rows:
        task = stored[row["id"]]
        assert (row["queue"], row["state"]) == (task.queue, str(task.state))
        assert (row["payload"], row["attempts"]) == (task.payload, task.attempts)
        assert (row["tags"] or {}) == task.tags
        assert row["created_at"].astimezone(UTC) == task.created_at
        assert row["worker"] == task.worker


@pytest.mark.versions
def test_a_schema_reads_some_columns_only(spark: SparkSession, filled: StoreConnection) -> None:
    frame = read(spark, filled).schema("id string, lease string").load()

    assert frame.columns == ["id", "lease"]
    assert frame.where("lease IS NOT NULL").count() == 10


@pytest.mark.parametrize(
    "schema", ["id string, attention_at timestamp", "id string, payload string"]
)
@pytest.mark.versions
def test_one_state_of_a_queue_is_read_by_the_index(
    spark: SparkSession, filled: StoreConnection, schema: str
) -> None:
    reader = read(spark, filled, queue="mail", state="inflight").schema(schema)

    assert reader.load().where(f.col(schema.split()[2]).isNotNull()).count() == 10


def test_what_is_past_its_retention_is_not_shown(filled: StoreConnection) -> None:
    uses = connect.opened(filled)
    (task,) = uses.deliveries.dequeue("other", batch_size=1, worker="w").tasks
    gone = structs.replace(
        task, id="gone", retained_until=datetime(2020, 1, 1, tzinfo=UTC), lease_id=None
    )
    connect.store(filled).commit(
        [Change(rule(Action.ENQUEUE, None, State.ENQUEUED), gone.id, insert=gone)]
    )

    ids = {row["id"] for row in whole(filled, "id string")}

    assert task.id in ids
    assert "gone" not in ids


def test_what_is_left_of_a_task_that_is_gone_is_not_shown(filled: StoreConnection) -> None:
    uses = connect.opened(filled)
    queue = uses.queues.create("unkept", QueueSettings(history_retention_in_seconds=0)).name
    (made,) = uses.tasks.enqueue(queue, [TaskSpec("1")])
    (task,) = uses.deliveries.dequeue(queue, worker="w").tasks
    uses.reports.report(queue, [TaskReport(task.id, task.lease_id or "", ReportStatus.SUCCEEDED)])
    assert connect.store(filled).tombstones([task.id])

    rows = whole(filled, "id string, queue string")

    assert len(rows) == NUMBER + 1
    assert made.id not in {row["id"] for row in rows}


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        ("id string", {"state": "dead"}, "option state needs a queue"),
        ("id string", {"segments": "0"}, "segments must be a whole number from 1 to 10000"),
        ("id string", {"colour": "red"}, "colour is no option of headrace.table"),
        ("colour string", {}, "schema.colour is no column; there are id, queue"),
        ("id int", {}, "schema.id must be string, not int"),
    ],
)
def test_what_the_table_cannot_be_asked_is_refused_by_name(
    schema: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        TableSource(options).reader(schema_of(schema))


@pytest.mark.versions
def test_a_queue_that_is_not_there_is_named(connection: StoreConnection) -> None:
    source = TableSource({**connection.options(), "queue": "nowhere"})

    with pytest.raises(NotFound, match="nowhere"):
        source.reader(schema_of("id string")).partitions()


# -- exports ---------------------------------------------------------------------------------------


def test_the_guide_has_every_option_and_column_as_they_are_declared() -> None:
    pages = (PROJECT_ROOT / "docs" / "reference").glob("spark-*.md")
    guide = "".join(page.read_text() for page in pages)

    for rows in (table.OPTIONS, export.OPTIONS, enqueue.OPTIONS):
        own = [row for row in rows if row not in connect.OPTIONS]
        assert options.table(own) in guide
    assert columns.markdown() in guide
    assert newrows.markdown() in guide
