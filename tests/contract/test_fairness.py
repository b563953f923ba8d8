"""Groups of a queue take turns, whatever each of them has waiting."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from headrace.domain.filters import TaskFilter
from headrace.domain.operate import BulkAction
from headrace.domain.plan import TaskSpec
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import RETURN_LANE, TURN_LANE, Task
from headrace.domain.task_groups import GroupMode, GroupSettings
from headrace.ops.tasks.enqueue import EnqueueOutcome
from tests.contract.conftest import World

FAIR = GroupSettings(GroupMode.FAIR)
AT_ONCE = RetryStrategy(Backoff.FIXED, 5, 0, 0, 0.0)


def fair(world: World, name: str = "mail", **settings: Any) -> str:
    settings.setdefault("groups", FAIR)
    return world.queue(name, **settings)


def keys_of(tasks: tuple[Task, ...]) -> list[str | None]:
    return [task.group_key for task in tasks]


# -- whose turn it is ------------------------------------------------------------


@pytest.mark.gate
def test_a_group_has_as_many_turns_as_its_weight_says(world: World) -> None:
    queue = fair(world, groups=GroupSettings(GroupMode.FAIR, {"large": 4, "small": 0.5}))
    for key in ("large", "small", "usual"):
        world.put(queue, *(["1"] * 24), group_key=key)

    taken = keys_of(world.take(queue, 22))
    assert (taken.count("large"), taken.count("usual"), taken.count("small")) == (16, 4, 2)


def test_tasks_of_one_group_keep_their_order(world: World) -> None:
    queue = fair(world)
    ids = [
        *world.put(queue, "1", "2", group_key="a"),
        *world.put(queue, "3", group_key="a"),
        *world.put(queue, "4", "5", group_key="a"),
    ]

    assert [task.id for task in world.take(queue, 5)] == ids


def test_the_lanes_share_a_batch(world: World) -> None:
    queue = fair(world, retry_strategy=AT_ONCE)
    world.put(queue, *(["1"] * 9))
    for task in world.take(queue, 9):
        world.say(task, "FAILED")
    world.put(queue, *(["2"] * 9), delay_in_seconds=1)
    world.clock.forward(2)
    for _ in range(2):
        world.put(queue, *(["3"] * 9))

    payloads = [task.payload for task in world.take(queue, 9)]
    assert sorted(map(str, payloads)) == sorted(["1", "2", "3"] * 3)
    rest = [str(world.one(queue).payload) for _ in range(9)]
    assert {rest.count(one) for one in "123"} == {3}
    assert len(world.take(queue, 25)) == 18
    assert not world.take(queue)


@pytest.mark.parametrize("way", ["restart", "move", "spawn"])
def test_whoever_begins_anew_takes_a_turn(world: World, way: str) -> None:
    plain, queue = world.queue("plain"), fair(world)
    (name,) = world.put(queue, group_key="quiet")
    task = world.one(queue)
    world.put(queue, *(["1"] * 20), group_key="noisy")
    if way == "restart":
        world.say(task, "FAILED", retryable=False)
        world.use.bulk.by_ids(queue, BulkAction.RESTART, [name])
    elif way == "move":
        world.say(task, "MOVED", to_queue=plain)
        assert world.see(name).group_key == "quiet"  # a queue without groups keeps the key
        world.say(world.one(plain), "MOVED", to_queue=queue)
    else:
        child = TaskSpec("1", id="child", group_key="quiet")
        world.say(task, "SUCCEEDED", spawn=((queue, child),))
        name = "child"
    assert world.see(name).group_key == "quiet"
    assert name in [one.id for one in world.take(queue, 3)]


def test_a_key_where_there_are_no_groups_is_invalid(world: World) -> None:
    queue = world.queue()
    (result,) = world.use.tasks.enqueue(queue, [TaskSpec("1", group_key="a")])
    assert result.outcome is EnqueueOutcome.INVALID
    assert result.detail == "group_key has no meaning in queue mail, whose settings have no groups"


def test_groups_may_come_and_go_and_nothing_is_left_behind(world: World) -> None:
    queue = world.queue()
    world.put(queue, *(["1"] * 4))
    settings = world.use.queues.get(queue).settings
    grouped = world.use.queues.replace(queue, replace(settings, groups=FAIR))
    assert grouped.lanes == [0, TURN_LANE, RETURN_LANE]
    world.put(queue, *(["2"] * 4), group_key="a")
    world.use.queues.replace(queue, replace(settings, groups=None))
    world.put(queue, *(["3"] * 4))

    assert len(world.take(queue, 25)) == 12


# -- lists and counts ------------------------------------------------------------


def test_lists_and_counts_go_by_due_times(world: World) -> None:
    queue = fair(world)
    begin = world.clock()
    early = world.put(queue, *(["1"] * 3), group_key="a")
    world.clock.forward(100)
    late = world.put(queue, *(["1"] * 2), group_key="b")
    later = world.put(queue, "1", group_key="a", delay_in_seconds=50)
    world.clock.forward(1)
    list_, count = world.use.inspect.list, world.use.inspect.count

    def found(**where: Any) -> set[str]:
        named = TaskFilter(**where)
        ids = {task.id for task in list_(queue, named).tasks}
        assert count(queue, named).count == len(ids)
        assert ids == {task.id for task in list_(queue, named, descending=True).tasks}
        return ids

    assert found() == {*early, *late, *later}
    assert found(states=("READY",)) == {*early, *late}
    assert found(states=("SCHEDULED",)) == {*later}
    middle = begin + timedelta(seconds=50)
    assert found(scheduled_after=middle) == {*late, *later}
    assert found(scheduled_before=middle) == {*early}
    assert found(states=("READY",), scheduled_after=middle) == {*late}
    assert found(group_key="a") == {*early, *later}
    assert found(group_key="a", states=("READY",)) == {*early}
    assert found(group_key="c") == set()
    assert world.use.stats.of(queue).age_of_oldest_ready == pytest.approx(101, abs=0.01)
    shown = [task.id for task in list_(queue, TaskFilter()).tasks]
    assert shown.index(late[1]) < shown.index(early[2])  # by turn, and then what has none
    assert shown[-1:] == later
