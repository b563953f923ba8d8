"""A replay enqueues again what SQL selects: counted before, once however often it runs."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.domain.errors import InvalidRequest
from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import PrioritySettings, QueueSettings
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task_groups import GroupMode, GroupSettings
from headrace.spark.lake.frames import LakeFrames
from headrace.spark.lake.replay import (
    NO_TAGS,
    UNCLEAR,
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
from headrace.store.items import retry_text
from tests.pipeline.harness import PipelineHarness
from tests.pipeline.stories import MINUTE, START, Story, at, write

SQL = "SELECT task_id, version, queue_to AS queue, payload, at FROM changes WHERE move = 'enqueue'"
TASKS = 120
LATER = timedelta(hours=10)


@pytest.fixture(scope="module")
def reported(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> LakeFrames:
    """Give a lake in which a task came every minute, its payload not written as Python would.

    Made once: a replay only reads it.
    """
    lake = LakeFrames(spark, str(tmp_path_factory.mktemp("reported")))
    story = Story("work")
    for number in range(TASKS):
        story.now = START + number * MINUTE
        story.enqueue(f"t{number}", payload=f'{{"n":  1.10, "of": {number}}}')
    story.enqueue("poor")
    rolled(lake, story)
    return lake


def rolled(lake: LakeFrames, story: Story) -> None:
    """Bring a story to the table of changes; payloads come with tags, if only with none."""
    for told in story.lines:
        if "payload" in told:
            told.setdefault("tags", {})
    write(lake.files, story.lines)
    lake.write(changes(lake.raw([date(2026, 11, 21)])), CHANGES, [date(2026, 11, 21)])


@pytest.fixture
def harness(harness: PipelineHarness) -> PipelineHarness:
    harness.queue("work")
    harness.queue("again")
    return harness


def run(
    lake: LakeFrames, replay: Replay, harness: PipelineHarness
) -> tuple[ReplaySelection, Replayed]:
    rows = selected(lake, replay)
    selection = looked_at(rows, replay, harness.connection)
    now = datetime.now(UTC)
    return selection, replayed(rows, replay, selection, harness.connection, now=now)


@pytest.mark.gate
def test_a_replay_run_twice_adds_everything_and_then_nothing(
    reported: LakeFrames, harness: PipelineHarness
) -> None:
    _, first = run(reported, Replay("again-1", SQL), harness)
    _, second = run(reported, Replay("again-1", SQL), harness)
    _, another = run(reported, Replay("again-2", SQL), harness)

    assert (first.added, first.refused) == (TASKS, {})
    assert (second.added, second.existing) == (0, TASKS)
    assert another.added == TASKS
    (task,) = harness.read(new_id("again-1", "t0", 1))
    assert task.payload == '{"n":  1.10, "of": 0}'
    assert task.tags == {"replay": "again-1", "replay_of": "t0"}


def test_tags_group_priority_and_settings_reach_the_new_task(
    lake: LakeFrames, harness: PipelineHarness
) -> None:
    uses = harness.uses
    uses.queues.create("ranked", QueueSettings(priority=PrioritySettings()))
    uses.queues.create("grouped", QueueSettings(groups=GroupSettings(GroupMode.FAIR)))
    retry = RetryStrategy(Backoff.INTERVALS, 2, intervals=(1, 2))
    story = Story("ranked")
    whole: dict[str, Any] = {
        "tags": {"fiware-service": "city", "fiware-servicepath": "/é"},
        "retry_strategy": retry_text(retry),
        "keepalive_timeout_in_seconds": 7,
        "note": "urgent",
    }
    story.enqueue("a", payload="1", priority="high", **whole)
    story.enqueue("b", payload="2", priority="normal", tags={str(n): "x" for n in range(9)})
    story.enqueue("c", payload="3", group_key="g", tags={}, queue_to="grouped")
    rolled(lake, story)

    _, done = run(lake, Replay("r", SQL), harness)

    assert (done.added, done.refused) == (3, {})
    a, b, c = harness.read(*(new_id("r", one, 1) for one in "abc"))
    assert a.tags == {**whole["tags"], "replay": "r", "replay_of": "a"}
    assert (a.priority, a.retry, a.keepalive, a.note) == ("high", retry, 7, "urgent")
    assert b.tags == {**{str(n): "x" for n in range(9)}, "replay": "r"}  # ten are the most
    assert (c.group_key, c.retry, c.keepalive) == ("g", None, None)


def test_a_task_whose_tags_are_not_known_is_refused_unless_they_are_given(
    lake: LakeFrames, harness: PipelineHarness
) -> None:
    story = Story("work")
    story.enqueue("known", payload="1", tags={"tenant": "a"})
    story.enqueue("old", payload="1", tags=None)
    rolled(lake, story)

    _, done = run(lake, Replay("r", SQL), harness)
    given = SQL.replace(" FROM", ", coalesce(tags, map('tenant', 'x')) AS tags FROM")
    _, other = run(lake, Replay("s", given), harness)

    assert (done.added, done.refused) == (1, {NO_TAGS: 1})
    assert (other.added, other.refused) == (2, {})
    assert harness.read(new_id("s", "old", 1))[0].tags["tenant"] == "x"


def test_a_dry_run_counts_and_prices_and_enqueues_nothing(
    reported: LakeFrames, harness: PipelineHarness
) -> None:
    replay = Replay("x", SQL)
    selection = looked_at(selected(reported, replay), replay, harness.connection)

    assert (selection.tasks, selection.without_payload, selection.existing) == (TASKS, 1, 0)
    assert selection.queues == {"work": TASKS}
    assert selection.write_units == 2 * TASKS
    assert selection.usd == pytest.approx(2 * TASKS * 0.625e-6, rel=0.5)
    assert (selection.first, selection.last) == (at(), at() + timedelta(minutes=TASKS - 1))
    assert selection.first is not None
    assert selection.first.utcoffset() == timedelta()
    assert harness.tasks("work") == []
    run(reported, replay, harness)
    assert looked_at(selected(reported, replay), replay, harness.connection).existing == TASKS


def test_time_can_be_warped_and_the_queue_another(
    reported: LakeFrames, harness: PipelineHarness
) -> None:
    start = datetime.now(UTC).replace(microsecond=0) + LATER
    replay = Replay("warp", SQL, queue="again", speed=60, start=start)

    _, done = run(reported, replay, harness)

    assert done.added == TASKS
    due = {task.tags["replay_of"]: task.due_at for task in harness.tasks("again")}
    assert due["t0"] == start
    assert due["t60"] == start + timedelta(minutes=1)


def test_each_life_of_an_id_is_replayed_where_they_are_told_apart(
    lake: LakeFrames, harness: PipelineHarness
) -> None:
    story = Story("work")
    story.enqueue("cat", payload='"one"')
    story.record("cat", "delete", None)
    story.enqueue("cat", payload='"two"')
    rolled(lake, story)

    _, mixed = run(lake, Replay("x", SQL), harness)
    assert (mixed.added, mixed.refused) == (0, {UNCLEAR: 1})
    lives = Replay("r", SQL.replace("task_id,", "task_id, created_at,"))
    _, done = run(lake, lives, harness)
    _, again = run(lake, lives, harness)

    assert (done.added, again.added, again.existing) == (2, 0, 2)


def test_sql_that_fails_while_it_runs_is_told_in_a_line(reported: LakeFrames) -> None:
    sql = SQL.replace(" at ", " 1 / (version - 1) AS at ")

    with pytest.raises(InvalidRequest, match=r"^sql: \[DIVIDE_BY_ZERO\] [^\n]*$"):
        looked_at(selected(reported, Replay("r", sql)), Replay("r", sql))


@pytest.mark.parametrize(
    ("replay", "message"),
    [
        (Replay("x", "SELECT task_id FROM changes"), "sql must select payload"),
        (Replay("x", "SELECT task_id, payload FROM changes", "q", speed=2), "sql must select at"),
        (Replay("x", "SELEC 1"), r"^sql: \[PARSE_SYNTAX_ERROR\] [^\n]*$"),
        (Replay("a b", SQL), "name must be 1 to 64"),
        (Replay("x", SQL, speed=0.0), "speed must be more than 0"),
    ],
)
def test_what_cannot_be_replayed_is_refused_by_name(
    lake: LakeFrames, replay: Replay, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        selected(lake, replay)


def test_tasks_that_the_queue_refuses_are_counted_with_the_reason(
    reported: LakeFrames, harness: PipelineHarness
) -> None:
    """Among them one that an earlier replay put elsewhere: where it is, is told."""
    harness.uses.tasks.enqueue("again", [TaskSpec("1", id=new_id("x", "t0", 1))])
    sql = SQL.replace(" FROM", ", if(task_id IN ('t1', 't2'), 'g', NULL) AS group_key FROM")

    _, done = run(reported, Replay("x", sql), harness)

    refused = {reason.partition(" ")[0]: (n, reason) for reason, n in done.refused.items()}
    grouped, _ = refused.pop("group_key")
    ((number, elsewhere),) = refused.values()
    assert (grouped, number, done.added) == (2, 1, TASKS - 3)
    assert "again" in elsewhere
