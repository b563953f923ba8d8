"""A lake that was begun in the middle learns from exports what it missed."""

from collections import Counter
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from headrace.domain.errors import InvalidRequest
from headrace.domain.task import SHOWN_STATES, State, Task
from headrace.domain.times import micros_of
from headrace.history.changelog import FILLED, Line, digest
from headrace.history.proof import legal_moves
from headrace.spark.lake.backfill import Backfilled, backfill
from headrace.spark.lake.frames import LakeFrames
from headrace.spark.lake.proof import proof
from headrace.spark.lake.reconstruct import SIDES, reconstructed
from headrace.spark.lake.rollup import rollup
from headrace.spark.lake.schemas import CHANGES, QUEUE_MINUTES, Table
from headrace.store.lake import FolderLake
from headrace.testing.service import MemoryService
from tests.pipeline import exports
from tests.pipeline.stories import QUEUES, at, true_history

DAY_AFTER = date(2026, 11, 23)
LIVE = (State.ENQUEUED, State.INFLIGHT)


def as_seen(task: Task, **more: Any) -> dict[str, Any]:
    """Return *task* as the frame of an export has it."""
    instants = {
        "due": task.due_at,
        "enqueued": task.enqueued_at,
        "lease_end": task.lease_expires_at,
        "started_at": task.started_at,
        "finished_at": task.finished_at,
        "expires_at": task.expires_at,
    }
    return {
        "version": task.version,
        "last_move": task.last_move,
        "queue": task.queue,
        "state": str(task.state),
        "attempts": task.attempts,
        "hop": len(task.trail),
        "lease": task.lease_id and digest(task.lease_id),
        "settled": task.settled_lease_id and digest(task.settled_lease_id),
        "deleted": False,
        **{name: instant and micros_of(instant) for name, instant in instants.items()},
        **more,
    }


def side_of(line: Line, which: str) -> dict[str, Any]:
    return {name: line.get(f"{name}_{which}") for name in SIDES}


def test_what_one_look_tells_is_a_legal_life_that_ends_as_it_was_seen(tmp_path: Path) -> None:
    tasks = [
        task
        for seed in (11, 13, 21)
        for task in true_history(FolderLake(tmp_path), seed=seed, rounds=30).store.everything()
    ]
    legal = legal_moves()

    for task in tasks:
        lines = list(reconstructed(as_seen(task), None, None))
        assert lines[0]["version"] >= 1
        assert side_of(lines[0], "from") == dict.fromkeys(SIDES)
        for before, after in pairwise(lines):
            assert after["version"] == before["version"] + 1
            assert after["at"] >= before["at"]
            assert side_of(after, "from") == side_of(before, "to")
        for line in lines:
            states = (line.get("state_from", "gone"), line.get("state_to", "gone"))
            assert (line["move"], *states) in legal, line
        end = lines[-1]
        seen = (end["version"], end["state_to"], end["queue_to"], end["attempts_to"])
        assert seen == (task.version, str(task.state), task.queue, task.attempts)
    assert {task.state for task in tasks} == set(SHOWN_STATES)


def life(version: int, state: str | None, **more: Any) -> dict[str, Any]:
    return {"version": version, "state": state, "queue": "work", "attempts": 0, **more}


def moves(lines: Any) -> list[tuple[int, str, str | None, str | None]]:
    return [
        (one["version"], one["move"], one.get("state_from"), one.get("state_to")) for one in lines
    ]


DONE = {
    **life(5, "SUCCEEDED", attempts=1, enqueued=1, started_at=5, finished_at=9),
    "last_move": "succeed",
    "deleted": False,
}


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (life(5, "SUCCEEDED"), []),
        (
            life(2, "ENQUEUED"),
            [(4, "dequeue", "ENQUEUED", "INFLIGHT"), (5, "succeed", "INFLIGHT", "SUCCEEDED")],
        ),
        (
            life(2, "DEAD"),
            [
                (3, "restart", "DEAD", "ENQUEUED"),
                (4, "dequeue", "ENQUEUED", "INFLIGHT"),
                (5, "succeed", "INFLIGHT", "SUCCEEDED"),
            ],
        ),
    ],
)
@pytest.mark.gate
def test_of_a_known_life_only_what_came_after_is_told(
    last: dict[str, Any], expected: list[tuple[int, str, str, str]]
) -> None:
    assert moves(reconstructed(DONE, life(1, None), last)) == expected


def test_a_life_known_from_the_middle_gets_its_beginning() -> None:
    first = life(4, "INFLIGHT", attempts=1, enqueued=1, started_at=5, lease="x", due=1)
    begun = list(reconstructed(None, first, life(9, "DEAD")))

    assert moves(begun) == [
        (2, "enqueue", None, "ENQUEUED"),
        (3, "dequeue", "ENQUEUED", "INFLIGHT"),
    ]
    assert side_of(begun[-1], "to") == {**dict.fromkeys(SIDES), **side_of_life(first)}


def side_of_life(side: dict[str, Any]) -> dict[str, Any]:
    return {name: side[name] for name in SIDES if name in side}


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (None, []),
        (life(4, "ENQUEUED"), [(6, "delete", "ENQUEUED", None)]),
        (life(8, "DEAD"), [(9, "forget", "DEAD", None)]),
    ],
)
def test_what_is_gone_ends_the_life_that_is_known(
    last: dict[str, Any] | None, expected: list[tuple[int, str, str, None]]
) -> None:
    gone = {**life(5, "ENQUEUED"), "deleted": True, "written_at": 20}

    assert moves(reconstructed(gone, None, last)) == expected


# -- on Spark --------------------------------------------------------------------------------------


def rows(lake: LakeFrames, table: Table) -> list[dict[str, Any]]:
    return [row.asDict() for row in lake.read(table).collect()]


def levels(lake: LakeFrames) -> dict[str, tuple[int, int]]:
    last = dict.fromkeys(QUEUES, (0, 0))
    for row in sorted(rows(lake, QUEUE_MINUTES), key=lambda row: row["minute"]):
        last[row["queue"]] = (row["backlog"], row["inflight"])
    return last


def truth(tasks: Any) -> dict[str, tuple[int, int]]:
    states = Counter((task.queue, task.state) for task in tasks)
    return {queue: (states[queue, LIVE[0]], states[queue, LIVE[1]]) for queue in QUEUES}


def filled(lake: LakeFrames, address: str, **how: Any) -> Backfilled:
    return backfill(lake, address, today=DAY_AFTER, **how)


def begun_at_midnight(lake: LakeFrames, folder: Path) -> MemoryService:
    """Give *lake* only what was recorded after midnight of a history that began before."""
    whole = FolderLake(folder / "whole")
    service = true_history(whole, seed=14, rounds=40)
    for file in whole.list("raw/dt=2026-11-22"):
        lake.files.put(file.name, whole.get(file.name) or b"")
    return service


@pytest.mark.slow
def test_a_lake_begun_in_the_middle_is_completed(lake: LakeFrames, tmp_path: Path) -> None:
    service = begun_at_midnight(lake, tmp_path)
    rollup(lake, today=DAY_AFTER)
    tasks = {task.id: task for task in service.store.everything()}
    recorded = {(row["task_id"], row["version"]): row for row in rows(lake, CHANGES)}
    assert levels(lake) != truth(tasks.values())
    folder = exports.full(FolderLake(tmp_path), tasks.values(), at=service.clock.now)

    first = filled(lake, f"{tmp_path}/{folder}", payloads=["wo*"])

    assert levels(lake) == truth(tasks.values())
    after = {(row["task_id"], row["version"]): row for row in rows(lake, CHANGES)}
    assert {key: after[key] for key in recorded} == recorded
    made_up = [row for row in after.values() if row["shard"].startswith(FILLED)]
    assert (first.items, first.changes) == (len(tasks), len(made_up))
    born = {row["queue_to"] for row in made_up if row["move"] == "enqueue"}
    assert {row["queue_to"] for row in made_up if row["payload"]} == born & {"work"}
    report = proof(lake)
    assert report.violations == {}, service
    assert str(report.first) > "2026-11-22"  # from when on it was recorded

    second = filled(lake, f"{tmp_path}/{folder}", payloads=["wo*"])
    assert second == first
    assert {(row["task_id"], row["version"]): row for row in rows(lake, CHANGES)} == after

    live = [task for task in tasks.values() if task.state in LIVE]
    gone, ended, *_ = live
    service.forward(60)
    later = {name: task for name, task in tasks.items() if name != gone.id}
    later[ended.id] = finished(ended, service)
    folder = exports.incremental(
        FolderLake(tmp_path), tasks, later, since=at(24), until=service.clock.now, view="NEW_IMAGE"
    )
    third = filled(lake, f"{tmp_path}/{folder}")

    assert (third.incremental, third.items) == (True, 2)
    assert levels(lake) == truth(later.values())
    assert proof(lake).violations == {}


def finished(task: Task, service: MemoryService) -> Task:
    """Return *task* as it is after one more delivery, that succeeded."""
    now = service.clock.now
    return structs.replace(
        task,
        place=structs.replace(task.place, state=State.SUCCEEDED),
        version=task.version + 2,
        attempts=task.attempts + 1,
        last_move="succeed",
        started_at=now - timedelta(seconds=2),
        finished_at=now,
        lease_id=None,
        lease_expires_at=None,
    )


@pytest.mark.slow
@pytest.mark.gate
def test_what_is_recorded_takes_the_place_of_what_an_export_told(
    lake: LakeFrames, tmp_path: Path
) -> None:
    recorded = FolderLake(tmp_path / "recorded")
    service = true_history(recorded, seed=13, rounds=10)
    folder = exports.full(FolderLake(tmp_path), service.store.everything(), at=service.clock.now)
    assert filled(lake, f"{tmp_path}/{folder}").changes > 0
    for file in recorded.list("raw/"):  # late
        lake.files.put(file.name, recorded.get(file.name) or b"")

    again = filled(lake, f"{tmp_path}/{folder}")

    only = LakeFrames(lake.spark, str(recorded.folder))
    rollup(only, today=DAY_AFTER)
    assert (again.changes, again.moves) == (0, {})
    by_key = ("task_id", "created_at", "version")
    reconstructed, alone = (
        sorted(rows(one, CHANGES), key=lambda row: [row[name] for name in by_key])
        for one in (lake, only)
    )
    assert reconstructed == alone
    assert levels(lake) == levels(only)
    assert proof(lake).violations == {}


@pytest.mark.gate
def test_an_export_that_is_none_changes_nothing(lake: LakeFrames, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="is no export, or not finished"):
        filled(lake, str(tmp_path))

    assert lake.files.list("") == []
