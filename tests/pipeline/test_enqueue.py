"""Bulk enqueue: any frame as tasks, each of them once, bad rows named."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Row as SparkRow
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from headrace.domain.errors import InvalidRequest
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.task import Place, State, Task
from headrace.spark.sources import connect, register
from headrace.spark.sources.badrows import bad_rows
from headrace.spark.sources.connect import StoreConnection
from headrace.spark.sources.enqueue import EnqueueSource, Sending, enqueued
from headrace.spark.sources.newrows import Identity, new_task
from headrace.spark.sources.rows import BadRow, json_text


def schema_of(text: str) -> StructType:
    return cast("StructType", StructType.fromDDL(text))


NUMBER = 300
FRAME = "payload string, n bigint"


@pytest.fixture
def connection(connection: StoreConnection) -> StoreConnection:
    settings = QueueSettings(shards=2, expires_in_seconds=500)
    connect.opened(connection).queues.create("mail", settings)
    return connection


def frame(spark: SparkSession, number: int = NUMBER) -> DataFrame:
    register(spark)
    payload = f.to_json(f.struct(f.col("id").alias("n")))
    return spark.range(0, number, 1, 2).select(payload.alias("payload"), f.col("id").alias("n"))


def save(rows: DataFrame, connection: StoreConnection, **options: str) -> None:
    given = {**connection.options(), "queue": "mail", "id_from": "n", **options}
    rows.write.format("headrace.enqueue").options(**given).mode("append").save()


def tasks_in(connection: StoreConnection, queue: str = "mail") -> list[Task]:
    store = connect.store(connection)
    places = [Place(queue, State.ENQUEUED, shard) for shard in range(2)]
    entries = [entry for place in places for entry in store.entries(place, limit=1000).entries]
    return list(store.read([entry.task_id for entry in entries]).values())


def sending(connection: StoreConnection, **how: Any) -> Sending:
    return Sending(connection, Identity(id_from=("n",)), "mail", **how)


def rows(*numbers: int, **more: Any) -> list[dict[str, Any]]:
    return [{"payload": f'{{"n": {number}}}', "n": number, **more} for number in numbers]


@pytest.mark.versions
def test_a_frame_is_enqueued_once_however_often_it_is_written(
    spark: SparkSession, connection: StoreConnection
) -> None:
    for _ in range(2):
        save(frame(spark), connection)

    tasks = tasks_in(connection)
    assert len(tasks) == NUMBER
    assert {task.payload for task in tasks} == {f'{{"n":{n}}}' for n in range(NUMBER)}
    assert all(task.version == 1 for task in tasks)
    assert {task.expires_at - task.due_at for task in tasks if task.expires_at} == {
        timedelta(seconds=500)  # as the queue says
    }


def test_columns_say_when_and_how(connection: StoreConnection) -> None:
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    row = {
        **rows(1)[0],
        "scheduled_at": due,
        "expires_at": due + timedelta(days=1),
        "dedupe_key": "k",
        "tags": {"service": "x"},
        "keepalive_timeout_in_seconds": 90.0,
    }
    enqueued(sending(connection), [row])
    again = enqueued(sending(connection), [{**row, "n": 2}])

    (task,) = tasks_in(connection)
    assert (task.due_at, task.expires_at) == (due, due + timedelta(days=1))
    assert (task.dedupe_key, task.tags, task.keepalive) == ("k", {"service": "x"}, 90)
    assert again.counts == {"duplicate": 1}


@pytest.mark.versions
@pytest.mark.gate
def test_bad_rows_are_named_when_all_good_ones_are_in(
    spark: SparkSession, connection: StoreConnection
) -> None:
    broken = f.when(f.col("n") == 7, f.lit("{")).otherwise(f.col("payload"))

    with pytest.raises(PySparkException) as failed:
        save(frame(spark, 100).withColumn("payload", broken), connection)

    assert (
        "1 of 100 rows are invalid, the others are enqueued: n=7: payload must be JSON text"
        in str(failed.value)
    )
    assert len(tasks_in(connection)) == 99
    save(frame(spark, 100), connection)
    assert len(tasks_in(connection)) == 100


def test_a_queue_that_is_not_there_is_named_with_the_rows(connection: StoreConnection) -> None:
    summary = enqueued(
        Sending(connection, Identity(id_from=("n",))),
        [*rows(1, queue="mail"), *rows(2, 3, queue="nowhere"), *rows(4, queue=None)],
    )

    assert summary.counts == {"created": 1, "bad": 3}
    assert any("nowhere" in reason for reason in summary.bad)
    assert any("n=4: queue must be" in reason for reason in summary.bad)


def test_an_id_that_another_queue_has_is_a_bad_row(connection: StoreConnection) -> None:
    connect.opened(connection).queues.create("other", QueueSettings())
    how = Sending(connection, Identity("key"), None)
    row = {"key": "a1", "payload": "1", "queue": "mail"}

    summary = enqueued(how, [row, {**row, "queue": "other"}])

    assert summary.counts == {"created": 1, "bad": 1}
    assert "; ".join(summary.bad) == (
        "a1: the task of this id is in another queue, mail; name another column in id_column,"
        " or columns in id_from, which tells queues apart"
    )


def test_two_rows_that_would_be_one_task_are_told_by_their_payloads(
    connection: StoreConnection,
) -> None:
    order, invoice = rows(7)[0], {"payload": '"invoice"', "n": 7}

    summary = enqueued(sending(connection), [order, order, invoice])

    assert summary.counts == {"created": 1, "existing": 1, "bad": 1}
    assert summary.bad[0].startswith("n=7: another row has the same, and so the id row-")
    assert summary.bad[0].endswith("but another payload")


def test_ids_that_look_drawn_are_refused_unless_they_are_stored(
    spark: SparkSession, connection: StoreConnection
) -> None:
    drawn = frame(spark, 4).withColumn("key", f.expr("uuid()")).drop("n")
    options = {**connection.options(), "queue": "mail", "id_column": "key"}
    writer = drawn.write.format("headrace.enqueue").options(**options).mode("append")

    with pytest.raises(PySparkException, match="looks drawn"):
        writer.save()
    assert tasks_in(connection) == []
    writer.option("random_ids", "true").save()
    assert len(tasks_in(connection)) == 4


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"payload": "{"}, "payload must be JSON text"),
        ({"payload": '"' + "x" * 300_000 + '"'}, "payload must be at most 262144 bytes"),
        ({"delay_in_seconds": -1}, "delay_in_seconds must be a number from 0 to 31536000, not -1"),
        ({"tags": {str(n): "x" for n in range(11)}}, "tags must have at most 10 tags; it has 11"),
        ({"key": None}, "key must be .*, not None"),
        (
            {"scheduled_at": datetime(2030, 1, 1, tzinfo=UTC), "delay_in_seconds": 1},
            "exclude each other",
        ),
    ],
)
@pytest.mark.gate
def test_a_bad_row_says_what_is_wrong(row: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRow, match=message):
        new_task({"payload": "1", "key": "k1", **row}, Identity("key"), "mail")


@pytest.mark.gate
def test_ids_are_told_apart_by_columns_queue_and_run() -> None:
    identity = Identity(id_from=("a", "b"), run="r")
    row = {"a": 1, "b": "x"}

    ids = [
        identity.of(row, "mail"),
        identity.of({"a": 1, "b": "y"}, "mail"),
        identity.of({"a": "1", "b": "x"}, "mail"),
        identity.of(row, "other"),
        Identity(id_from=("a", "b")).of(row, "mail"),
        Identity(id_from=("c", "b"), run="r").of({"c": 1, "b": "x"}, "mail"),
    ]
    assert identity.of({"b": "x", "a": 1}, "mail") == ids[0]
    assert Identity(id_from=("b", "a"), run="r").of(row, "mail") == ids[0]
    assert len(set(ids)) == 6


@pytest.mark.usefixtures("spark")  # a schema in words is read by Spark
@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        (FRAME, {}, "option id_column must be given, or id_from"),
        (FRAME, {"id_from": "m"}, "column m is missing: the ids come from it"),
        ("payload int, n int", {"id_from": "n"}, "column payload must be string, not int"),
        (
            f"{FRAME}, batches array<string>, payload_ref string",
            {"id_from": "n"},
            "column batches is no column of a task; .*column payload_ref is no column of a task",
        ),
        ("n int", {}, "option id_column must be given, .*; column payload is missing"),
        (FRAME, {"id_column": "payload", "run": "x"}, "run has a meaning only with id_from"),
    ],
)
def test_what_cannot_be_enqueued_is_refused_by_name(
    schema: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        EnqueueSource({"queue": "mail", **options}).writer(schema_of(schema), False)  # noqa: FBT003


@pytest.mark.parametrize("stream", [False, True])
def test_bad_rows_fail_a_batch_and_do_not_stop_a_stream(
    connection: StoreConnection, caplog: pytest.LogCaptureFixture, *, stream: bool
) -> None:
    schema = StructType().add("payload", "string").add("n", "long")
    source = EnqueueSource({"queue": "mail", "id_from": "n", **connection.options()})
    given = [*rows(1, 2), {"payload": "{", "n": 3}]
    if not stream:
        writer = source.writer(schema, overwrite=False)
        with pytest.raises(InvalidRequest, match="1 of 3 rows are invalid"):
            writer.commit([writer.write(iter([pa.RecordBatch.from_pylist(given)]))])
    else:
        written = source.streamWriter(schema, overwrite=False)
        written.commit([written.write(iter([SparkRow(**row) for row in given]))], 0)
        assert "1 of 3 rows are invalid, the others are enqueued: n=3" in caplog.text

    assert len(tasks_in(connection)) == 2


def test_bad_rows_go_to_a_queue_once_with_their_reason(connection: StoreConnection) -> None:
    connect.opened(connection).queues.create("bad", QueueSettings(shards=2))
    given = [*rows(1, 2), {"payload": "{", "n": 3}, {"payload": '"' + "x" * 270_000, "n": 4}]
    how = sending(connection, bad_rows=bad_rows("dead:bad"))

    for _ in range(2):
        enqueued(how, given)

    told = {
        json.loads(task.payload or "")["row"]["n"]: task for task in tasks_in(connection, "bad")
    }
    assert set(told) == {3, "4"}
    assert json.loads(told[3].payload or "")["error"].startswith("payload must be JSON text")
    assert len(tasks_in(connection)) == 2


@pytest.mark.gate
def test_a_row_that_calls_a_reserved_task_is_bad() -> None:
    for text in ('{"task": "headrace.any"}', '{"task": "\\u0068eadrace.relay", "args": {}}'):
        with pytest.raises(BadRow, match=r"payload\.task must not begin with headrace\."):
            json_text("payload", text)
    assert json_text("payload", '{"task": "mine"}') == '{"task": "mine"}'
