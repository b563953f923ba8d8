"""A replay enqueues again what SQL selects: counted before, once however often it runs."""

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.client.client import Client
from headrace.client.codec import Codec
from headrace.domain.errors import InvalidRequest, NotFound
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import QueueSettings
from headrace.domain.write import TaskWrite
from headrace.history.changelog import line
from headrace.history.transitions import transition
from headrace.runtime.wiring import Settings, build
from headrace.spark.lake.backfill import backfill
from headrace.spark.lake.frames import LakeFrames
from headrace.spark.lake.replay import (
    Replay,
    Replayed,
    ReplaySelection,
    looked_at,
    new_id,
    replayed,
    selected,
)
from headrace.spark.lake.schemas import CHANGES
from headrace.spark.lake.tables import changes
from headrace.store.lake import FolderLake
from headrace.store.memory import MemoryStore
from headrace.store.objects import MemoryObjects
from headrace.store.stream import writes_of
from headrace.testing.conditions import ManualClock
from headrace.testing.service import MemoryService
from headrace.testing.stores import Streamed
from headrace.wire.tasks import Enqueued
from tests.pipeline import exports
from tests.pipeline.stories import MINUTE, START, Story, at, write
from tests.streamed import stream_records

SQL = "SELECT task_id, version, queue_to AS queue, payload, at FROM changes WHERE move = 'enqueue'"
TASKS = 120
LATER = timedelta(hours=10)


@pytest.fixture
def reported(lake: LakeFrames) -> LakeFrames:
    """Give a lake in which a task came every minute, its payload not written as Python would."""
    story = Story("work")
    for number in range(TASKS):
        story.now = START + number * MINUTE
        story.enqueue(f"t{number}", payload=f'{{"n":  1.10, "of": {number}}}')
    story.enqueue("poor")
    write(lake.files, story.lines)
    lake.write(changes(lake.raw([date(2026, 11, 21)])), CHANGES)
    return lake


@pytest.fixture
def service() -> MemoryService:
    service = MemoryService(clock=ManualClock(at(10)))
    service.client.create_queue("work")
    service.client.create_queue("again")
    return service


def run(
    lake: LakeFrames, replay: Replay, service: MemoryService
) -> tuple[ReplaySelection, Replayed]:
    def connect(codec: Codec) -> Client:
        return service.connect(codec=codec)

    rows = selected(lake, replay)
    selection = looked_at(rows)
    return selection, replayed(rows, replay, selection, connect, now=service.clock.now)


def test_a_replay_run_twice_adds_everything_and_then_nothing(
    reported: LakeFrames, service: MemoryService
) -> None:
    _, first = run(reported, Replay("again-1", SQL), service)
    _, second = run(reported, Replay("again-1", SQL), service)
    _, another = run(reported, Replay("again-2", SQL), service)

    assert (first.added, first.refused) == (TASKS, {})
    assert (second.added, second.existing) == (0, TASKS)
    assert another.added == TASKS
    (task,) = service.client.dequeue("work").tasks
    assert bytes(task.payload_json) == b'{"n":  1.10, "of": 0}'
    assert task.tags == {"replay": "again-1", "replay_of": "t0"}


def test_answers_that_get_lost_add_nothing_twice(
    reported: LakeFrames, service: MemoryService
) -> None:
    with service.faults.lose_answers(rate=0.3):
        _, done = run(reported, Replay("x", SQL), service)

    assert done.added + done.existing == TASKS
    assert service.client.count_tasks("work").count == TASKS


def test_a_dry_run_counts_and_prices_and_enqueues_nothing(
    reported: LakeFrames, service: MemoryService
) -> None:
    selection = looked_at(selected(reported, Replay("x", SQL)))

    assert (selection.tasks, selection.without_payload) == (TASKS, 1)
    assert selection.queues == {"work": TASKS}
    assert selection.write_units == 2 * TASKS
    assert selection.usd == pytest.approx(2 * TASKS * 0.625e-6, rel=0.5)
    assert (selection.first, selection.last) == (at(), at() + timedelta(minutes=TASKS - 1))
    assert service.client.count_tasks("work").count == 0


def test_time_can_be_warped_and_the_queue_another(
    reported: LakeFrames, service: MemoryService
) -> None:
    start = service.clock.now + LATER
    replay = Replay("warp", SQL, queue="again", speed=60, start=start)

    _, done = run(reported, replay, service)

    assert done.added == TASKS
    due = {task.tags["replay_of"]: task.scheduled_at for task in service.client.list_tasks("again")}
    assert due["t0"] == start
    assert due["t60"] == start + timedelta(minutes=1)


def test_each_life_of_an_id_is_replayed_where_they_are_told_apart(
    lake: LakeFrames, service: MemoryService
) -> None:
    story = Story("work")
    story.enqueue("cat", payload='"one"')
    story.record("cat", "delete", None)
    story.enqueue("cat", payload='"two"')
    write(lake.files, story.lines)
    lake.write(changes(lake.raw([date(2026, 11, 21)])), CHANGES)

    lives = Replay("r", SQL.replace("task_id,", "task_id, created_at,"))
    _, done = run(lake, lives, service)
    _, again = run(lake, lives, service)

    assert (done.added, again.added, again.existing) == (2, 0, 2)


def test_a_row_of_no_queue_is_refused_before_anything_is_enqueued(reported: LakeFrames) -> None:
    sql = SQL.replace("queue_to AS queue", "nullif(queue_to, 'work') AS queue")

    with pytest.raises(InvalidRequest, match=r"queue is null in 120 of the rows selected"):
        looked_at(selected(reported, Replay("r", sql)))


@pytest.mark.parametrize("wrong", ["1 / (version - 1)", "1 / 0"])
def test_sql_that_fails_while_it_runs_is_told_in_a_line(reported: LakeFrames, wrong: str) -> None:
    sql = SQL.replace(" at ", f" {wrong} AS at ")

    with pytest.raises(InvalidRequest, match=r"^sql: \[DIVIDE_BY_ZERO\] [^\n]*$"):
        looked_at(selected(reported, Replay("r", sql)))


def test_ids_are_made_from_name_task_and_version() -> None:
    assert new_id("a", "t1", 1) == new_id("a", "t1", 1)
    assert len({new_id("a", "t1", 1), new_id("b", "t1", 1), new_id("a", "t1", 2)}) == 3


@pytest.mark.parametrize(
    ("replay", "message"),
    [
        (Replay("x", "SELECT task_id FROM changes"), "sql must select payload"),
        (Replay("x", "SELECT task_id, payload FROM changes"), "queue is missing"),
        (Replay("x", "SELECT task_id, payload FROM changes", "q", speed=2), "sql must select at"),
        (Replay("x", "SELEC 1"), r"^sql: \[PARSE_SYNTAX_ERROR\] [^\n]*$"),
        (Replay("x", "SELECT nix FROM changes", "q"), r"^sql: \[UNRESOLVED_COLUMN[^\n]*$"),
        (Replay("a b", SQL), "name must be 1 to 64"),
        (Replay("x", SQL, speed=0.0), "speed must be more than 0"),
    ],
)
def test_what_cannot_be_replayed_is_refused_by_name(
    lake: LakeFrames, replay: Replay, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        selected(lake, replay)


def test_a_task_that_is_in_another_queue_by_now_is_not_added_again(
    reported: LakeFrames, service: MemoryService
) -> None:
    service.client.enqueue("again", id=new_id("x", "t0", 1))

    _, done = run(reported, Replay("x", SQL), service)

    assert (done.added, done.existing, done.refused) == (TASKS - 1, 1, {})


def test_a_task_that_the_queue_refuses_is_counted_with_its_reason(
    reported: LakeFrames, service: MemoryService
) -> None:
    class Refusing(Client):
        def enqueue_each(self, *given: Any, **named: Any) -> Iterator[Enqueued]:
            first, *rest = super().enqueue_each(*given, **named)
            yield msgspec.structs.replace(first, outcome="INVALID", detail="not this one")
            yield from rest

    def connect(codec: Codec) -> Client:
        return Refusing(service.url, service.key, codec=codec, transport=service.transport)

    rows = selected(reported, Replay("x", SQL))
    done = replayed(rows, Replay("x", SQL), looked_at(rows), connect, now=service.clock.now)

    assert done.refused == {"not this one": 1}
    assert done.added == TASKS - 1


def test_a_queue_that_is_missing_ends_the_replay(
    reported: LakeFrames, service: MemoryService
) -> None:
    with pytest.raises(NotFound, match="nix"):
        run(reported, Replay("x", SQL, queue="nix"), service)


def test_instants_are_aware(reported: LakeFrames) -> None:
    first = looked_at(selected(reported, Replay("x", SQL))).first

    assert isinstance(first, datetime)
    assert first.utcoffset() == timedelta()


@pytest.mark.parametrize("known_from", ["changes", "an export"])
def test_what_is_kept_outside_or_was_uploaded_is_left_out_and_counted(
    lake: LakeFrames, service: MemoryService, tmp_path: Path, known_from: str
) -> None:
    written = outside_and_inside()
    if known_from == "changes":
        told = [line(one, transition(one), shard="s1", payload=True) for one in written]
        write(lake.files, told)
        lake.write(changes(lake.raw([date(2026, 11, 21)])), CHANGES)
    else:
        tasks = [one.after.whole() for one in written if one.after is not None]
        folder = exports.full(FolderLake(tmp_path), tasks, at=at(1))
        backfill(lake, f"{tmp_path}/{folder}", today=date(2026, 11, 22), payloads=["*"])

    selection, done = run(lake, Replay("r", SQL), service)

    assert (selection.tasks, selection.without_payload, done.added) == (1, 2, 1)
    (task,) = service.client.dequeue("work", batch_size=10).tasks
    assert bytes(task.payload_json) == b'"small"'


def outside_and_inside() -> list[TaskWrite]:
    """Return how a small task came into a queue, a large one and one that was uploaded."""
    clock = ManualClock(at())
    stream, objects = Streamed(MemoryStore(), clock), MemoryObjects(clock)
    settings = Settings(admin_key="test", payload_offload_bytes=1024)
    use = build(settings, stream.store, now=clock, objects=objects)
    use.queues.create("work", QueueSettings())
    digest = sha256(b"film").hexdigest()
    upload = use.uploads.grant(
        "work", size=4, digest=digest, task_id="film", origin="http://here"
    ).upload
    objects.put({upload.name: b"film"})
    large = f'"{"x" * 2048}"'
    new = [TaskSpec('"small"'), TaskSpec(large), TaskSpec("null", id="film", upload=upload)]
    assert {str(one.outcome) for one in use.tasks.enqueue("work", new)} == {"CREATED"}
    taken = writes_of(stream_records(stream.taken()))
    assert not taken[1]
    return list(taken[0])
