"""Exports of the tasks table: read as they were written, verified, and refused by name."""

import gzip
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from pyspark.sql import SparkSession

from headrace.domain.errors import InvalidRequest
from headrace.domain.task import State, Task
from headrace.history.changelog import digest
from headrace.spark.sources import register
from headrace.spark.sources.columns import TASK, columns_of
from headrace.spark.sources.export import (
    OWN,
    ExportReader,
    export_at,
)
from headrace.store.lake import FolderLake
from tests.pipeline import exports
from tests.pipeline.stories import at, true_history


def rows_of(batches: Any) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Task]:
    service = true_history(FolderLake(tmp_path_factory.mktemp("history")), seed=3, rounds=30)
    return {task.id: task for task in service.store.everything()}


@pytest.fixture
def history(tmp_path: Path, tasks: dict[str, Task]) -> tuple[FolderLake, dict[str, Task]]:
    return FolderLake(tmp_path), tasks


EVERY = columns_of([(one.name, one.type) for one in (*TASK, *OWN)], OWN)


def exported_rows(
    lake: FolderLake, folder: str, *, hidden: bool = False, verify: bool = True
) -> dict[str, dict[str, Any]]:
    reader = ExportReader(f"{lake.folder}/{folder}", EVERY, verify=verify, hidden=hidden)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return {row["id"]: row for row in rows_of(batches)}


@pytest.mark.gate
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


@pytest.mark.gate
def test_leases_of_an_export_are_digests(history: tuple[FolderLake, dict[str, Task]]) -> None:
    lake, tasks = history
    rows = exported_rows(lake, exports.full(lake, tasks.values(), at=at(24)))

    for task_id, task in tasks.items():
        assert rows[task_id]["lease"] == (task.lease_id and digest(task.lease_id))


@pytest.mark.parametrize("view", ["NEW_AND_OLD_IMAGES", "NEW_IMAGE"])
def test_an_incremental_export_tells_what_changed_and_what_is_gone(
    history: tuple[FolderLake, dict[str, Task]], view: str
) -> None:
    lake, tasks = history
    changed, deleted, *_ = tasks
    after = {name: task for name, task in tasks.items() if name != deleted}
    after[changed] = structs.replace(tasks[changed], version=99)
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
    return structs.replace(task, place=structs.replace(task.place, state=State.DELETED))


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
        hidden_before: structs.replace(before[hidden_before], version=99),
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
    return structs.replace(
        task, ended_in=task.place, finished_at=at(24), payload=None, tags={}, errors=(), trail=()
    )


def test_what_is_left_of_a_task_that_is_gone_is_no_task(
    history: tuple[FolderLake, dict[str, Task]],
) -> None:
    lake, tasks = history
    gone, *_ = tasks
    there = [left_of(task) if name == gone else task for name, task in tasks.items()]

    rows = exported_rows(lake, exports.full(lake, there, at=at(24)))

    assert set(rows) == set(tasks) - {gone}


PART = "data/part0.json.gz"


@pytest.mark.gate
@pytest.mark.parametrize(
    ("name", "content", "verify", "message"),
    [
        ("manifest-summary.json", None, True, "no manifest-summary.json"),
        ("manifest-summary.checksum", None, True, "no manifest-summary.checksum nor .*md5"),
        (
            "manifest-files.json",
            b"{}",
            True,
            "manifest-files.json that does not match its checksum",
        ),
        (PART, gzip.compress(b""), True, "part0.json.gz that does not match"),
        (PART, None, True, "has no file .*part0.json.gz"),
        ("manifest-files.json", b"{}", False, "that AWS did not write: KeyError"),
        (PART, b"no gzip", False, "part0.json.gz that cannot be unpacked"),
        (
            PART,
            gzip.compress(b'{"Item":{"task_id":{"S":7}}}\n'),
            False,
            "not as DynamoDB writes it",
        ),
        (PART, gzip.compress(b'{"Item":{"pk":{"S":"x"}}}\n'), False, "not of a table of tasks"),
    ],
)
def test_an_export_that_is_not_as_it_was_written_is_refused(
    history: tuple[FolderLake, dict[str, Task]],
    name: str,
    content: bytes | None,
    message: str,
    *,
    verify: bool,
) -> None:
    lake, tasks = history
    folder = exports.full(lake, tasks.values(), at=at(24))
    path = lake.folder / folder / name
    path.unlink()
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(InvalidRequest, match=message):
        exported_rows(lake, folder, verify=verify)


def test_an_export_in_ion_is_refused(history: tuple[FolderLake, dict[str, Task]]) -> None:
    lake, _ = history
    folder = exports.written(lake, exports.FULL, [], [], {"outputFormat": "ION"})

    with pytest.raises(InvalidRequest, match="is in ION; export it as DYNAMODB_JSON"):
        export_at(f"{lake.folder}/{folder}")
