"""What every store promises about fan-out: children exist exactly when their report took effect."""

from datetime import timedelta
from typing import Any

import pytest

from headrace.domain.errors import Unavailable
from headrace.domain.plan import TaskSpec
from headrace.domain.task import State, Task
from headrace.domain.task_groups import GroupMode, GroupSettings
from headrace.ops.delivery.reports import ReportOutcome, ReportResult
from headrace.ops.tasks.enqueue import EnqueueOutcome
from tests.contract.conftest import World, dies, overtaken
from tests.contract.test_dedupe import with_fickle_key

CREATED, EXISTING = EnqueueOutcome.CREATED, EnqueueOutcome.EXISTING


def parent(world: World, **fields: Any) -> Task:
    """Deliver one task of a queue that has two others beside it."""
    for name in ("source", "left", "right"):
        world.queue(name)
    world.put("source", **fields)
    return world.one("source")


def outcomes(result: ReportResult) -> list[EnqueueOutcome]:
    return [child.outcome for child in result.spawned]


@pytest.mark.gate
@pytest.mark.parametrize("status", ["SUCCEEDED", "MOVED"])
def test_children_are_created_with_the_report_and_only_once(world: World, status: str) -> None:
    task = parent(world)
    spawn = (
        ("left", TaskSpec("1")),
        ("right", TaskSpec("2", tags={"a": "b"})),
        ("left", TaskSpec("3")),
    )
    fields: dict[str, Any] = {"to_queue": "left"} if status == "MOVED" else {}

    first = world.say(task, status, spawn=spawn, **fields)
    again = world.say(task, status, spawn=spawn, queue="source", **fields)

    assert (first.outcome, outcomes(first)) == (ReportOutcome.OK, [CREATED] * 3)
    assert (again.outcome, outcomes(again)) == (ReportOutcome.OK, [EXISTING] * 3)
    assert [child.id for child in first.spawned] == [child.id for child in again.spawned]
    moved = 1 if status == "MOVED" else 0
    assert world.use.inspect.count("left").count == 2 + moved
    right = world.one("right")
    assert (right.payload, right.tags) == ("2", {"a": "b"})
    assert [task.payload for task in world.take("left", 9)][:2] != ["3", "1"]


@pytest.mark.parametrize(("second", "wrong"), [("nowhere", "queue"), ("left", "expires_at")])
def test_all_or_nothing(world: World, second: str, wrong: str) -> None:
    task = parent(world)
    world.put("left", id="taken")
    past = world.clock() - timedelta(seconds=1) if wrong == "expires_at" else None
    spawn = (("left", TaskSpec("1")), (second, TaskSpec("2", expires_at=past)))
    result = world.say(task, "SUCCEEDED", spawn=spawn)
    assert result.outcome is ReportOutcome.INVALID
    assert f"spawn[1].{wrong}" in str(result.detail)
    assert world.see(task.id).state is State.INFLIGHT
    assert world.use.inspect.count("left").count == 1


def test_what_exists_or_is_held_counts_as_done(world: World) -> None:
    task = parent(world)
    world.put("left", '"there"', id="there")
    (holder,) = world.put("left", dedupe_key="k")

    result = world.say(
        task,
        "SUCCEEDED",
        spawn=(
            ("left", TaskSpec("1", id="there")),
            ("left", TaskSpec("2", dedupe_key="k")),
            ("left", TaskSpec("3", id="new", dedupe_key="fresh")),
            ("left", TaskSpec("4", id="new")),
            ("left", TaskSpec("5", dedupe_key="fresh")),
        ),
    )

    assert result.outcome is ReportOutcome.OK
    duplicate = EnqueueOutcome.DUPLICATE
    assert outcomes(result) == [EXISTING, duplicate, CREATED, EXISTING, duplicate]
    assert [child.id for child in result.spawned][1:] == [holder, "new", "new", "new"]
    assert world.see("there").payload == '"there"'
    assert world.see(task.id).state is State.SUCCEEDED


def test_a_repeat_says_existing_only_of_children_that_exist(world: World) -> None:
    task = parent(world)
    world.put("left", dedupe_key="k")
    (holder,) = world.take("left")
    world.queue("forgets", history_retention_in_seconds=0)
    spawn = (
        ("left", TaskSpec("1", dedupe_key="k")),
        ("right", TaskSpec("2")),
        ("forgets", TaskSpec("3")),
        ("right", TaskSpec("4", dedupe_key="l")),
    )
    first = world.say(task, "SUCCEEDED", spawn=spawn)
    _, deleted, forgotten, keyed = (child.id for child in first.spawned)
    world.say(holder, "SUCCEEDED")
    world.say(world.one("forgets"), "SUCCEEDED")
    for gone in (deleted, keyed):
        world.use.tasks.delete(str(gone))

    again = world.say(task, "SUCCEEDED", spawn=spawn)

    assert again.outcome is ReportOutcome.OK
    assert [(child.outcome, child.id) for child in again.spawned] == [
        (EnqueueOutcome.DUPLICATE, None),
        (CREATED, deleted),
        (EXISTING, forgotten),
        (EnqueueOutcome.DUPLICATE, None),
    ]


def test_a_pipeline_may_loop_and_fork_and_end(world: World) -> None:
    task = parent(world)
    for hop in range(3):
        world.say(task, "MOVED", to_queue="left", spawn=(("right", TaskSpec(str(hop))),))
        task = world.one("left")
        world.say(task, "MOVED", to_queue="source")
        task = world.one("source")
    world.say(task, "SUCCEEDED")

    assert [hop.queue for hop in world.see(task.id).trail] == ["source", "left"] * 3
    assert [child.payload for child in world.take("right", 9)] == ["0", "1", "2"]


def test_a_child_takes_the_key_of_a_holder_that_has_expired(world: World) -> None:
    task = parent(world)
    world.put("left", dedupe_key="k", expires_at=world.clock() + timedelta(seconds=10))
    world.clock.forward(10)

    result = world.say(task, "SUCCEEDED", spawn=(("left", TaskSpec("1", dedupe_key="k")),))

    assert outcomes(result) == [CREATED]
    assert world.one("left").payload == "1"


def test_a_child_takes_the_key_of_its_parent(world: World) -> None:
    task = parent(world, dedupe_key="k")
    result = world.say(task, "SUCCEEDED", spawn=(("source", TaskSpec("1", dedupe_key="k")),))
    assert outcomes(result) == [CREATED]
    assert world.one("source").dedupe_key == "k"


def test_children_of_one_key_with_ids_that_exist_count_as_done(world: World) -> None:
    task = parent(world)
    world.put("left", '"there"', id="there")
    spawn = tuple(("left", TaskSpec("1", id=one, dedupe_key="k")) for one in ("there", "new"))
    assert outcomes(world.say(task, "SUCCEEDED", spawn=spawn)) == [EXISTING, CREATED]


def test_the_place_of_a_child_that_exists_is_waited_for_by_nobody(world: World) -> None:
    task = parent(world)
    world.queue("strict", groups=GroupSettings(GroupMode.STRICT))
    world.put("strict", "1", id="first", group_key="a")
    spawn = tuple(("strict", TaskSpec("2", id=one, group_key="a")) for one in ("first", "second"))
    assert outcomes(world.say(task, "SUCCEEDED", spawn=spawn)) == [EXISTING, CREATED]

    done = []
    for _ in range(2):
        world.clock.forward(2)
        done.append(world.one("strict"))
        world.say(done[-1], "SUCCEEDED")
    assert [one.id for one in done] == ["first", "second"]


def test_a_child_whose_key_keeps_changing_hands_is_to_be_reported_again(world: World) -> None:
    task = parent(world)
    spawn = (("left", TaskSpec("1", dedupe_key="k")),)

    with pytest.raises(Unavailable, match="dedupe keys keep changing hands; report again"):
        with_fickle_key(world, "left").say(task, "SUCCEEDED", spawn=spawn)
    assert world.see(task.id).state is State.INFLIGHT


def test_a_report_on_a_task_that_keeps_changing_creates_no_children(world: World) -> None:
    """The worker's heartbeats come between each look at the task and each try to end it."""
    task = parent(world)

    def beats() -> None:
        world.clock.forward(0.001)
        world.say(task, "INFLIGHT")

    other = overtaken(world, "commit", beats)
    with pytest.raises(Unavailable, match="the task keeps changing; report again"):
        other.say(task, "SUCCEEDED", spawn=(("left", TaskSpec("1")),))
    assert world.use.inspect.count("left").count == 0


# ------------------------------------------------------------------------- more than one write

MANY = 250


def many(number: int = MANY, **fields: Any) -> tuple[tuple[str, TaskSpec], ...]:
    return tuple(("left", TaskSpec(str(place), **fields)) for place in range(number))


def test_hundreds_of_children_are_created_once(world: World) -> None:
    task = parent(world)
    spawn = (*many(MANY - 2), ("right", TaskSpec(f'"{"x" * 100_000}"')), ("right", TaskSpec("2")))

    first = world.say(task, "SUCCEEDED", spawn=spawn)
    world.use.reaping.run()
    again = world.say(task, "SUCCEEDED", spawn=spawn)

    assert (outcomes(first), outcomes(again)) == ([CREATED] * MANY, [EXISTING] * MANY)
    assert [child.id for child in first.spawned] == [child.id for child in again.spawned]
    assert world.use.inspect.count("left").count == MANY - 2
    assert len(world.see(str(first.spawned[MANY - 2].id)).payload or "") == 100_002


@pytest.mark.parametrize("by", ["reaper", "repeat"])
@pytest.mark.parametrize("lots_made", [0, 2])
def test_children_that_a_process_leaves_are_created_once(
    world: World, by: str, lots_made: int
) -> None:
    """A consumed child that leaves no trace is not created again."""
    world.queue("source")
    world.queue("left", history_retention_in_seconds=0)
    world.put("source")
    task = world.one("source")
    commits = 0

    def dies_midway() -> None:
        nonlocal commits
        commits += 1
        if commits > 1 + lots_made:
            dies()

    with pytest.raises(Unavailable):
        overtaken(world, "commit", dies_midway).say(task, "SUCCEEDED", spawn=many())
    seen = finished(world)
    assert len(seen) == 24 * lots_made
    for _ in range(2):
        if by == "reaper":
            world.use.reaping.run()
        else:
            answer = world.say(task, "SUCCEEDED", spawn=many())
            assert answer.outcome is ReportOutcome.OK
        seen += finished(world)

    assert sorted(map(int, seen)) == list(range(MANY))


def finished(world: World) -> list[str]:
    payloads: list[str] = []
    while tasks := world.take("left", 25):
        payloads += [str(task.payload) for task in tasks]
        for task in tasks:
            world.say(task, "SUCCEEDED")
    return payloads


def test_a_stale_report_creates_none_of_hundreds(world: World) -> None:
    task = parent(world)

    result = world.say(task, "SUCCEEDED", lease="lse_other", spawn=many())
    world.use.reaping.run()

    assert result.outcome is ReportOutcome.STALE_LEASE
    assert world.use.inspect.count("left").count == 0


def test_of_hundreds_those_that_exist_or_are_held_count_as_done(world: World) -> None:
    task = parent(world)
    world.put("left", id="there")
    (holder,) = world.put("left", dedupe_key="k")
    spawn = (
        *many(40),
        ("left", TaskSpec("1", id="there")),
        ("left", TaskSpec("2", dedupe_key="k")),
        ("left", TaskSpec("3", id="new", dedupe_key="fresh")),
        ("left", TaskSpec("4", dedupe_key="fresh")),
    )

    result = world.say(task, "SUCCEEDED", spawn=spawn)

    assert [(str(child.outcome), child.id) for child in result.spawned[40:]] == [
        ("EXISTING", "there"),
        ("DUPLICATE", holder),
        ("CREATED", "new"),
        ("DUPLICATE", "new"),
    ]
