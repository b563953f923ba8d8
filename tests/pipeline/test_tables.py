"""The tables' own formats: read by segments and by the index, and exports, verified."""

import dataclasses
import gzip
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from headrace.domain.changelog import digest
from headrace.domain.errors import InvalidRequest, NotFound
from headrace.domain.plan import NewTask
from headrace.domain.queue import QueueSettings
from headrace.domain.task import Place, State, Task
from headrace.spark.sources import (
    columns,
    connect,
    decode,
    enqueue,
    export,
    newrows,
    options,
    table,
)
from headrace.spark.sources.columns import DEFAULT, TASK, columns_of
from headrace.spark.sources.connect import Connection
from headrace.spark.sources.export import OWN, ExportReader, ExportSource, exported
from headrace.spark.sources.manifest import blocks, export_at
from headrace.spark.sources.table import Reading, TableSource, listed, scanned
from headrace.store.items import to_item
from headrace.store.lake import FolderLake
from infra.local.engine import PROJECT_ROOT, Engine
from infra.local.tables import TableNames
from tests.pipeline import exports
from tests.pipeline.stories import at, true_history


def schema_of(text: str) -> StructType:
    return cast("StructType", StructType.fromDDL(text))


NUMBER = 60


@pytest.fixture
def connection(engine: Engine, tables: TableNames) -> Connection:
    return Connection(tables.tasks, tables.control, engine.url)


@pytest.fixture
def filled(connection: Connection) -> Connection:
    """Give tables with tasks in two queues, some of them in flight and some dead."""
    uses = connect.opened(connection)
    uses.queues.create("mail", QueueSettings(shards=2))
    uses.queues.create("other", QueueSettings())
    payload = json.dumps({"text": 'é "tags":{"M":{"a":{"S":"b"}}} \U0001f600'}, ensure_ascii=False)
    tags = {'a"b': "c\\d}", "tags": "x"}
    new = [NewTask(payload, tags=tags if n % 2 else {}) for n in range(NUMBER)]
    uses.tasks.enqueue("mail", new)
    uses.tasks.enqueue("other", [NewTask("1")])
    uses.deliveries.dequeue("mail", batch_size=10, worker="w1")
    return connection


def read(spark: SparkSession, connection: Connection, **options: str) -> Any:
    spark.dataSource.register(TableSource)
    return spark.read.format("headrace.table").options(**connection.options(), **options)


def rows_of(batches: Any) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def test_the_table_is_read_by_segments_as_it_is_stored(
    spark: SparkSession, filled: Connection
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


def test_a_schema_reads_some_columns_only(spark: SparkSession, filled: Connection) -> None:
    frame = read(spark, filled).schema("id string, lease string").load()

    assert frame.columns == ["id", "lease"]
    assert frame.where("lease IS NOT NULL").count() == 10


@pytest.mark.parametrize(
    "schema", ["id string, attention_at timestamp", "id string, payload string"]
)
def test_one_state_of_a_queue_is_read_by_the_index(
    spark: SparkSession, filled: Connection, schema: str
) -> None:
    reader = read(spark, filled, queue="mail", state="inflight").schema(schema)

    assert reader.load().where(f.col(schema.split()[2]).isNotNull()).count() == 10


def test_all_states_of_a_queue_are_read_by_the_index(filled: Connection) -> None:
    columns = columns_of([("id", "string"), ("state", "string"), ("last_move", "string")])
    reading = Reading(filled, columns, "mail")
    found = [
        row
        for state in State
        for shard in range(2)
        for row in rows_of(listed(reading, Place("mail", state, shard)))
    ]

    assert len(found) == NUMBER
    assert {(row["state"], row["last_move"]) for row in found} == {
        ("ENQUEUED", "enqueue"),
        ("INFLIGHT", "dequeue"),
    }


def test_what_is_past_its_retention_is_not_shown(filled: Connection) -> None:
    uses = connect.opened(filled)
    (task,) = uses.deliveries.dequeue("other", batch_size=1, worker="w").tasks
    gone = dataclasses.replace(task, id="gone", retained_until=datetime(2020, 1, 1, tzinfo=UTC))
    client: Any = connect.store(filled).pages().client  # type: ignore[attr-defined]
    client.put_item(TableName=filled.tasks_table, Item=to_item(gone))
    columns = columns_of([("id", "string")])
    reading = Reading(filled, columns, consistent=True)

    ids = {row["id"] for row in rows_of(scanned(reading, 0))}

    assert task.id in ids
    assert "gone" not in ids


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        ("id string", {"state": "dead"}, "option state needs a queue"),
        ("id string", {"segments": "0"}, "segments must be a whole number from 1 to 10,000"),
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


def test_a_queue_that_is_not_there_is_named(connection: Connection) -> None:
    source = TableSource({**connection.options(), "queue": "nowhere"})

    with pytest.raises(NotFound, match="nowhere"):
        source.reader(schema_of("id string")).partitions()


@pytest.mark.parametrize("name", ["tasks_table", "control_table"])
def test_a_table_that_is_not_there_is_named(filled: Connection, name: str) -> None:
    nowhere = dataclasses.replace(filled, **{name: "nowhere"})
    told = rf"nowhere \({name}, HEADRACE_{name.upper()}\).* is not there"

    with pytest.raises(InvalidRequest, match=told):
        connect.opened(nowhere).tasks.enqueue("mail", [NewTask("1", id="a1")])


def test_a_table_that_is_not_there_is_named_when_it_is_scanned(connection: Connection) -> None:
    nowhere = dataclasses.replace(connection, tasks_table="nowhere")

    with pytest.raises(InvalidRequest, match=r"table nowhere \(tasks_table"):
        rows_of(scanned(Reading(nowhere, columns_of([("id", "string")])), 0))


def test_numbers_come_as_dynamodb_writes_them() -> None:
    texts = pa.array(["1795219200000000", "1.7952192E+15", None, "-5"])

    assert decode.number(texts, pa.int64()).to_pylist() == [
        1795219200000000,
        int(Decimal("1.7952192E+15")),
        None,
        -5,
    ]


# -- exports ---------------------------------------------------------------------------------------


@pytest.fixture
def history(tmp_path: Path) -> tuple[FolderLake, dict[str, Task]]:
    lake = FolderLake(tmp_path)
    service = true_history(lake, seed=3, rounds=30)
    return lake, {task.id: task for task in service.store.everything()}


EVERY = columns_of([(one.name, one.type) for one in (*TASK, *OWN)], OWN)


def exported_rows(lake: FolderLake, folder: str) -> dict[str, dict[str, Any]]:
    reader = ExportReader(f"{lake.folder}/{folder}", EVERY, verify=True)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return {row["id"]: row for row in rows_of(batches)}


def test_a_full_export_is_the_table(
    spark: SparkSession, history: tuple[FolderLake, dict[str, Task]]
) -> None:
    lake, tasks = history
    folder = exports.full(lake, tasks.values(), at=at(24))
    spark.dataSource.register(ExportSource)
    frame = spark.read.format("headrace.export").load(f"{lake.folder}/{folder}")

    rows = {row["id"]: row for row in frame.collect()}

    assert set(rows) == set(tasks)
    for task_id, task in tasks.items():
        row = rows[task_id]
        assert (row["queue"], row["state"], row["shard"]) == (
            task.queue,
            str(task.state),
            task.place.shard,
        )
        assert (row["version"], row["last_move"]) == (task.version, task.last_move)
        assert len(row["errors"]) == len(task.errors)
        assert len(row["trail"]) == len(task.trail)
        assert row["deleted"] is False
        assert row["written_at"] is None
        finished = row["finished_at"] and row["finished_at"].astimezone(UTC)
        assert finished == task.finished_at


def test_leases_of_an_export_are_digests(history: tuple[FolderLake, dict[str, Task]]) -> None:
    lake, tasks = history
    rows = exported_rows(lake, exports.full(lake, tasks.values(), at=at(24)))

    for task_id, task in tasks.items():
        assert rows[task_id]["lease"] == (task.lease_id and digest(task.lease_id))
        assert rows[task_id]["payload_bytes"] == len((task.payload or "").encode())


@pytest.mark.parametrize("view", ["NEW_AND_OLD_IMAGES", "NEW_IMAGE"])
def test_an_incremental_export_tells_what_changed_and_what_is_gone(
    history: tuple[FolderLake, dict[str, Task]], view: str
) -> None:
    lake, tasks = history
    changed, deleted, *_ = tasks
    after = {name: task for name, task in tasks.items() if name != deleted}
    after[changed] = dataclasses.replace(tasks[changed], version=99)
    folder = exports.incremental(lake, tasks, after, since=at(24), until=at(25), view=view)

    rows = exported_rows(lake, folder)

    assert set(rows) == {changed, deleted}
    assert (rows[changed]["version"], rows[changed]["deleted"]) == (99, False)
    assert rows[deleted]["deleted"] is True
    known = tasks[deleted].queue if view == "NEW_AND_OLD_IMAGES" else None
    assert rows[deleted]["queue"] == known
    assert rows[changed]["written_at"] == at(25) - timedelta(seconds=1)
    assert export_at(f"{lake.folder}/{folder}").since == at(24)


def read_all(address: str) -> None:
    reader = ExportReader(address, columns_of([("id", "string")]), verify=True)
    rows_of(batch for part in reader.partitions() for batch in reader.read(part))


def spoilt(lake: FolderLake, folder: str, name: str, content: bytes | None) -> str:
    path = lake.folder / folder / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    return f"{lake.folder}/{folder}"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("manifest-summary.json", None, "no manifest-summary.json"),
        ("manifest-summary.checksum", None, "has no manifest-summary.checksum nor .*md5"),
        ("manifest-files.json", b"{}", "manifest-files.json that does not match its checksum"),
        ("data/part0.json.gz", gzip.compress(b""), "part0.json.gz that does not match"),
        ("data/part0.json.gz", None, "has no file .*part0.json.gz"),
    ],
)
def test_an_export_that_is_not_as_it_was_written_is_refused(
    history: tuple[FolderLake, dict[str, Task]], name: str, content: bytes | None, message: str
) -> None:
    lake, tasks = history
    address = spoilt(lake, exports.full(lake, tasks.values(), at=at(24)), name, content)

    with pytest.raises(InvalidRequest, match=message):
        read_all(address)


@pytest.mark.parametrize(
    "content",
    [
        b"no gzip",
        gzip.compress(b'{"Item":{}}\n' * 9)[:-12],
        gzip.compress(b'{"Item":{}}\n', mtime=0)[:10] + b"\xff" * 30,
        gzip.compress(b'{"Item":{}}\n')[:-8] + b"\0" * 8,
    ],
    ids=["no gzip", "cut off", "no deflate", "another sum"],
)
def test_a_file_that_cannot_be_unpacked_is_refused_without_its_checksum_too(
    history: tuple[FolderLake, dict[str, Task]], content: bytes
) -> None:
    lake, tasks = history
    folder = exports.full(lake, tasks.values(), at=at(24))
    address = spoilt(lake, folder, "data/part0.json.gz", content)
    export = export_at(address, verify=False)
    (file,) = [one for one in export.files if one.name.endswith("/part0.json.gz")]

    told = f"export {export.id} has a file .*part0.json.gz that cannot be unpacked"
    with pytest.raises(InvalidRequest, match=told):
        list(blocks(export, file, verify=False))


def test_checksums_may_be_named_as_in_buckets(history: tuple[FolderLake, dict[str, Task]]) -> None:
    lake, tasks = history
    folder = lake.folder / exports.full(lake, tasks.values(), at=at(24))
    for path in folder.glob("*.checksum"):
        path.rename(path.with_suffix(".md5"))
    assert export_at(str(folder)).items == len(tasks)

    (folder / "manifest-files.md5").write_bytes(b"another")

    with pytest.raises(InvalidRequest, match="does not match its checksum"):
        export_at(str(folder))


@pytest.mark.parametrize(
    ("which", "text", "said"),
    [
        ("summary", "{", "JSONDecodeError: "),
        ("summary", "[]", "TypeError: "),
        ("summary", "{}", "KeyError: 'outputFormat'"),
        ("files", '{"itemCount": 3}', "KeyError: 'dataFileS3Key'"),
    ],
)
def test_a_manifest_that_says_something_else_is_refused(
    history: tuple[FolderLake, dict[str, Task]], which: str, text: str, said: str
) -> None:
    lake, tasks = history
    folder = exports.full(lake, tasks.values(), at=at(24))
    address = spoilt(lake, folder, f"manifest-{which}.json", text.encode())

    told = f"has a manifest-{which}.json that AWS did not write: {said}"
    with pytest.raises(InvalidRequest, match=told):
        export_at(address, verify=False)


@pytest.mark.parametrize("line", [b"{nothing", b'{"Item":{"task_id":{"S":7}}}', b'{"Item":[]}'])
def test_a_line_that_is_no_item_is_told_with_its_file(
    history: tuple[FolderLake, dict[str, Task]], line: bytes
) -> None:
    lake, tasks = history
    folder = exports.full(lake, tasks.values(), at=at(24))
    address = spoilt(lake, folder, "data/part0.json.gz", gzip.compress(line + b"\n"))
    reader = ExportReader(address, columns_of([("id", "string")]), verify=False)

    told = r"has a file .*part0.json.gz that is not as DynamoDB writes it: [^\n]+$"
    with pytest.raises(InvalidRequest, match=told):
        rows_of(batch for part in reader.partitions() for batch in reader.read(part))


def test_a_file_with_fewer_items_than_promised_is_refused(
    history: tuple[FolderLake, dict[str, Task]],
) -> None:
    lake, tasks = history
    folder = exports.full(lake, tasks.values(), at=at(24))
    manifest = lake.folder / folder / "manifest-files.json"
    entry, *others = [json.loads(line) for line in manifest.read_text().splitlines()]
    text = "\n".join(json.dumps(one) for one in ({**entry, "itemCount": 1}, *others)).encode()
    manifest.write_bytes(text)
    checksum = manifest.with_suffix(".checksum")
    checksum.write_bytes(exports.checksum(text))

    with pytest.raises(InvalidRequest, match=r"in its files, and .* in its summary"):
        export_at(f"{lake.folder}/{folder}")


@pytest.mark.parametrize("item", [b'{"pk":{"S":"x"}}', b'{"task_id":{"S":"x"}}'])
def test_an_export_of_another_table_is_refused(item: bytes) -> None:
    line = b'{"Item":%b}' % item

    with pytest.raises(InvalidRequest, match="not of a table of tasks"):
        exported(line, DEFAULT, incremental=False)


def test_an_export_in_ion_is_refused(history: tuple[FolderLake, dict[str, Task]]) -> None:
    lake, _ = history
    folder = exports.written(lake, exports.FULL, [], [], {"outputFormat": "ION"})

    with pytest.raises(InvalidRequest, match="is in ION; export it as DYNAMODB_JSON"):
        export_at(f"{lake.folder}/{folder}")


def test_the_guide_has_every_option_and_column_as_they_are_declared() -> None:
    guide = (PROJECT_ROOT / "docs" / "guide" / "stations.md").read_text()

    for rows in (table.OPTIONS, export.OPTIONS, enqueue.OPTIONS):
        own = [row for row in rows if row not in connect.OPTIONS]
        assert options.table(own) in guide
    assert columns.markdown() in guide
    assert newrows.markdown() in guide
