"""Exports of the tasks table: read as they were written, verified, and refused by name."""

import dataclasses
import gzip
import json
import pickle
import time
import tracemalloc
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.domain.errors import InvalidRequest
from headrace.domain.task import State, Task
from headrace.history.changelog import digest
from headrace.spark.sources import register
from headrace.spark.sources.columns import DEFAULT, TASK, columns_of
from headrace.spark.sources.export import (
    OWN,
    ExportReader,
    blocks,
    export_at,
    exported,
)
from headrace.store.lake import FolderLake
from tests.pipeline import exports
from tests.pipeline.stories import at, true_history


def rows_of(batches: Any) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.fixture
def history(tmp_path: Path) -> tuple[FolderLake, dict[str, Task]]:
    lake = FolderLake(tmp_path)
    service = true_history(lake, seed=3, rounds=30)
    return lake, {task.id: task for task in service.store.everything()}


EVERY = columns_of([(one.name, one.type) for one in (*TASK, *OWN)], OWN)


def exported_rows(
    lake: FolderLake, folder: str, *, hidden: bool = False
) -> dict[str, dict[str, Any]]:
    reader = ExportReader(f"{lake.folder}/{folder}", EVERY, verify=True, hidden=hidden)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return {row["id"]: row for row in rows_of(batches)}


def test_a_full_export_is_the_table(
    spark: SparkSession, history: tuple[FolderLake, dict[str, Task]]
) -> None:
    lake, tasks = history
    folder = exports.full(lake, tasks.values(), at=at(24))
    register(spark)
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


class ManifestsAlone(FolderLake):
    """A lake that keeps no data files: to plan a read nobody opens them."""

    def put(self, name: str, content: bytes) -> None:
        if "/data/" not in name:
            super().put(name, content)


def test_4000_files_are_planned_in_seconds_and_a_part_carries_its_own_file_only(
    tmp_path: Path,
) -> None:
    keys = [f"AWSDynamoDB/{exports.FULL}/data/part{number}.json.gz" for number in range(4_000)]
    about = {"version": "2020-06-30", "exportTime": "2026-11-21T00:00:00.000Z"}
    folder = exports.written(ManifestsAlone(tmp_path), exports.FULL, [], keys, about)
    reader = ExportReader(f"{tmp_path}/{folder}", EVERY, verify=True)

    began = time.process_time()
    tracemalloc.start()
    sizes = [len(pickle.dumps(part)) for part in reader.partitions()]
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(sizes) == len(keys)
    assert max(sizes) < 2_000
    assert time.process_time() - began < 5  # of CPU: what else the machine does is no part of it
    assert most < 200_000_000


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


def hidden_of(task: Task) -> Task:
    """*task* as it is deleted and an undo could bring it back."""
    return dataclasses.replace(task, place=dataclasses.replace(task.place, state=State.DELETED))


def test_a_full_export_shows_deleted_tasks_only_to_who_asks(
    history: tuple[FolderLake, dict[str, Task]],
) -> None:
    lake, tasks = history
    deleted, *others = tasks
    now = {**tasks, deleted: hidden_of(tasks[deleted])}
    folder = exports.full(lake, now.values(), at=at(24))

    rows = exported_rows(lake, folder)
    every = exported_rows(lake, folder, hidden=True)

    assert set(rows) == set(others)
    assert set(every) == set(tasks)
    assert (every[deleted]["state"], every[deleted]["deleted"]) == ("DELETED", False)


def test_an_incremental_export_shows_them_as_deleted_once(
    history: tuple[FolderLake, dict[str, Task]],
) -> None:
    lake, tasks = history
    deleted, hidden_before, restored, expired, *_ = tasks
    before = {
        name: hidden_of(task) if name in (hidden_before, restored, expired) else task
        for name, task in tasks.items()
    }
    after = {
        **before,
        deleted: hidden_of(tasks[deleted]),
        hidden_before: dataclasses.replace(before[hidden_before], version=99),
        restored: tasks[restored],
    }
    del after[expired]
    folder = exports.incremental(lake, before, after, since=at(24), until=at(25))

    rows = exported_rows(lake, folder)
    every = exported_rows(lake, folder, hidden=True)

    assert {name: row["deleted"] for name, row in rows.items()} == {deleted: True, restored: False}
    assert rows[deleted]["state"] == str(tasks[deleted].state)
    assert {name: (row["deleted"], row["state"]) for name, row in every.items()} == {
        deleted: (False, "DELETED"),
        hidden_before: (False, "DELETED"),
        restored: (False, str(tasks[restored].state)),
        expired: (True, "DELETED"),
    }


def left_of(task: Task) -> Task:
    """The item that is left of *task* when it is gone, and nobody keeps it."""
    return dataclasses.replace(
        task, spent=task.place, finished_at=at(24), payload=None, tags={}, errors=(), trail=()
    )


def test_what_is_left_of_a_task_that_is_gone_is_no_task(
    history: tuple[FolderLake, dict[str, Task]],
) -> None:
    lake, tasks = history
    gone, *_ = tasks
    there = [left_of(task) if name == gone else task for name, task in tasks.items()]

    rows = exported_rows(lake, exports.full(lake, there, at=at(24)))

    assert set(rows) == set(tasks) - {gone}


@pytest.mark.parametrize("view", ["NEW_AND_OLD_IMAGES", "NEW_IMAGE"])
def test_an_incremental_export_tells_of_a_task_that_something_is_left_of_that_it_is_gone(
    history: tuple[FolderLake, dict[str, Task]], view: str
) -> None:
    lake, tasks = history
    gone, swept, came_and_went, *_ = tasks
    before = {**tasks, swept: left_of(tasks[swept])}
    after = {**tasks, gone: left_of(tasks[gone]), came_and_went: left_of(tasks[came_and_went])}
    del before[came_and_went], after[swept]
    folder = exports.incremental(lake, before, after, since=at(24), until=at(25), view=view)

    rows = exported_rows(lake, folder)

    whole = view == "NEW_AND_OLD_IMAGES"
    assert set(rows) == ({gone, came_and_went} if whole else {gone, came_and_went, swept})
    assert {row["deleted"] for row in rows.values()} == {True}
    assert rows[gone]["queue"] == (tasks[gone].queue if whole else None)
    assert rows[came_and_went]["queue"] is None


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

    reported = f"export {export.id} has a file .*part0.json.gz that cannot be unpacked"
    with pytest.raises(InvalidRequest, match=reported):
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
    ("which", "text", "answer"),
    [
        ("summary", "{", "JSONDecodeError: "),
        ("summary", "[]", "TypeError: "),
        ("summary", "{}", "KeyError: 'outputFormat'"),
        ("files", '{"itemCount": 3}', "KeyError: 'dataFileS3Key'"),
    ],
)
def test_a_manifest_that_says_something_else_is_refused(
    history: tuple[FolderLake, dict[str, Task]], which: str, text: str, answer: str
) -> None:
    lake, tasks = history
    folder = exports.full(lake, tasks.values(), at=at(24))
    address = spoilt(lake, folder, f"manifest-{which}.json", text.encode())

    reported = f"has a manifest-{which}.json that AWS did not write: {answer}"
    with pytest.raises(InvalidRequest, match=reported):
        export_at(address, verify=False)


@pytest.mark.parametrize("line", [b"{nothing", b'{"Item":{"task_id":{"S":7}}}', b'{"Item":[]}'])
def test_a_line_that_is_no_item_is_told_with_its_file(
    history: tuple[FolderLake, dict[str, Task]], line: bytes
) -> None:
    lake, tasks = history
    folder = exports.full(lake, tasks.values(), at=at(24))
    address = spoilt(lake, folder, "data/part0.json.gz", gzip.compress(line + b"\n"))
    reader = ExportReader(address, columns_of([("id", "string")]), verify=False)

    reported = r"has a file .*part0.json.gz that is not as DynamoDB writes it: [^\n]+$"
    with pytest.raises(InvalidRequest, match=reported):
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
