"""Strict order of groups, on every store: one after the other, as they came in."""

from datetime import timedelta
from typing import Any

import pytest

from headrace.domain.errors import Unavailable
from headrace.domain.operate import BulkAction
from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import DeadLetterConfig
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import State, Task
from headrace.domain.task_groups import (
    GroupMode,
    GroupSettings,
    OnDead,
)
from headrace.store.call_scope import metered
from tests.contract.conftest import World, dies, hooked

ONCE = RetryStrategy(Backoff.FIXED, 1, 0, 0, 0.0)
SLOW = RetryStrategy(Backoff.FIXED, 5, 60, 60, 0.0)


def strict(world: World, on_dead: str = "continue", name: str = "mail", **settings: Any) -> str:
    settings.setdefault("retry_strategy", ONCE)
    groups = GroupSettings(GroupMode.STRICT, on_dead=OnDead(on_dead))
    return world.queue(name, groups=groups, **settings)


def later(world: World, queue: str, seconds: float = 2) -> tuple[Task, ...]:
    """Dequeue once all that a process remembers of groups is too old."""
    world.clock.forward(seconds)
    return world.take(queue, 25)


def after_belief(world: World, queue: str) -> tuple[Task, ...]:
    """Dequeue once what came before must be visible."""
    return later(world, queue, 11)


# -- one after the other ------------------------------------------------------------


@pytest.mark.gate
def test_a_group_goes_one_by_one_in_its_order(world: World) -> None:
    queue = strict(world, shards=4)
    ids = [*world.put(queue, *"123", group_key="a"), *world.put(queue, "4", group_key="a")]
    world.put(queue, *"12", group_key="b")
    done: list[str] = []
    for _ in range(4):
        taken = later(world, queue)
        keys = [task.group_key for task in taken]
        assert len(keys) == len(set(keys))
        done += [task.id for task in taken if task.group_key == "a"]
        for task in taken:
            assert world.say(task, "SUCCEEDED").outcome == "OK"
    assert done == ids
    assert not later(world, queue)


def test_a_retry_blocks_its_group_alone(world: World) -> None:
    queue = strict(world, retry_strategy=SLOW)
    first, second = world.put(queue, "1", "2", group_key="a")
    (other,) = world.put(queue, group_key="b")
    taken = {task.id: task for task in world.take(queue, 9)}
    assert set(taken) == {first, other}
    world.say(taken[first], "FAILED")
    assert not later(world, queue)
    (again,) = later(world, queue, 60)
    assert again.id == first
    world.say(again, "SUCCEEDED")
    assert [task.id for task in later(world, queue)] == [second]


def test_a_lapsed_lease_blocks_and_comes_first(world: World) -> None:
    queue = strict(world, keepalive_timeout_in_seconds=10)
    first, second = world.put(queue, "1", "2", group_key="a")
    zombie = world.one(queue)
    taken = [*later(world, queue, 11), *later(world, queue)]
    assert [task.id for task in taken] == [first]
    assert world.say(zombie, "SUCCEEDED").outcome != "OK"
    world.say(taken[0], "SUCCEEDED")
    assert [task.id for task in later(world, queue)] == [second]


@pytest.mark.parametrize("end", ["restart", "delete", "move", "retention"])
def test_under_halt_it_stops_its_group_until_somebody_decides(world: World, end: str) -> None:
    queue, other = strict(world, "halt"), world.queue("other")
    first, second = world.put(queue, "1", "2", group_key="a")
    world.say(world.one(queue), "FAILED", retryable=False)
    assert not later(world, queue)
    assert not after_belief(world, queue)

    match end:
        case "restart":
            world.use.bulk.by_ids(queue, BulkAction.RESTART, [first])
            (again,) = later(world, queue)
            assert again.id == first  # it has kept its place
            world.say(again, "SUCCEEDED")
        case "delete":
            world.use.tasks.delete(first)
        case "move":
            world.use.bulk.by_ids(queue, BulkAction.MOVE, [first], to_queue=other)
        case "retention":
            world.clock.forward(86_400 * 14.5)
            second = ""
    found = [task.id for task in later(world, queue)]
    assert found == [second] if second else not found  # by then the other has expired


WAYS = ["delete", "purge", "move", "cancel", "expire"]


def test_else_a_restart_goes_to_the_tail(world: World) -> None:
    queue = strict(world)
    first, second, third = world.put(queue, *"123", group_key="a")
    world.say(world.one(queue), "FAILED", retryable=False)
    world.use.bulk.by_ids(queue, BulkAction.RESTART, [first])
    order = []
    for _ in range(3):
        (task,) = later(world, queue)
        order.append(task.id)
        world.say(task, "SUCCEEDED")
    assert order == [second, third, first]


def leave(world: World, queue: str, ids: list[str], way: str) -> None:
    """Take tasks that were never delivered out of their order."""
    match way:
        case "delete":
            for name in ids:
                world.use.tasks.delete(name)
        case "purge":
            world.use.queues.purge(queue, (State.ENQUEUED,))
        case "move":
            other = world.queue("other")
            world.use.bulk.by_ids(queue, BulkAction.MOVE, ids, to_queue=other)
        case "cancel":
            world.use.bulk.by_ids(queue, BulkAction.CANCEL, ids)
        case "expire":
            world.clock.forward(3)


@pytest.mark.parametrize("way", WAYS)
def test_who_is_behind_those_that_leave_goes_at_once(world: World, way: str) -> None:
    queue = strict(world)
    soon = {"expires_at": world.clock() + timedelta(seconds=2)} if way == "expire" else {}
    (first,) = world.put(queue, "1", group_key="a")
    if way != "purge":
        world.say(world.one(queue), "SUCCEEDED")
    ids = world.put(queue, *"234", group_key="a", **soon)
    leave(world, queue, [first, *ids] if way == "purge" else ids, way)
    (last,) = world.put(queue, "5", group_key="a")
    assert [task.id for task in later(world, queue)] == [last]


@pytest.mark.parametrize("way", ["report", "undo"])
def test_who_is_behind_one_that_took_a_place_in_vain_goes_at_once(world: World, way: str) -> None:
    queue, other = strict(world), world.queue("other", groups=GroupSettings(GroupMode.FAIR))
    world.put(queue, group_key="a")
    world.say(world.one(queue), "SUCCEEDED")
    if way == "report":
        world.put(other, group_key="a")
        task = world.one(other)
        world.say(task, "RELEASED")
        assert world.say(task, "MOVED", to_queue=queue).outcome == "STALE_LEASE"
    else:
        (name,) = world.put(queue, group_key="a", dedupe_key="k")
        undo = world.use.tasks.delete(name, undo_in_seconds=60)
        world.put(queue, group_key="a", dedupe_key="k")
        assert undo is not None
        (done,) = world.use.undos.undo(undo.id).results
        assert (done.outcome, done.detail) == ("SKIPPED", "dedupe_conflict")
        world.say(world.one(queue), "SUCCEEDED")
    (last,) = world.put(queue, group_key="a")

    assert [task.id for task in later(world, queue)] == [last]


def dies_with_its_place(world: World, queue: str) -> None:
    """Let another process take a place in group a and end before its task is there."""
    with pytest.raises(Unavailable):
        hooked(world, before_commit=dies).put(queue, group_key="a")


def test_who_never_comes_is_waited_for(world: World) -> None:
    queue = strict(world)
    dies_with_its_place(world, queue)
    (second,) = world.put(queue, group_key="a")

    assert not later(world, queue)
    assert [task.id for task in after_belief(world, queue)] == [second]


@pytest.mark.parametrize(
    ("way", "end"), [("cancel", "restart"), ("expire", "delete"), ("cancel", "retention")]
)
def test_one_that_dies_undelivered_halts_though_the_next_one_is_gone(
    world: World, way: str, end: str
) -> None:
    dead_letters = DeadLetterConfig(retention_period_in_seconds=3600)
    queue = strict(world, "halt", dead_letter_queue_config=dead_letters)
    soon = {"expires_at": world.clock() + timedelta(seconds=2)} if way == "expire" else {}
    world.put(queue, "1", group_key="a")
    world.say(world.one(queue), "SUCCEEDED")
    (dead,) = world.put(queue, "2", group_key="a", **soon)
    (after,) = world.put(queue, "3", group_key="a")
    if way == "expire":
        assert not later(world, queue, 3)
    else:
        world.use.cancelling.cancel(dead)
    assert world.see(dead).state is State.DEAD
    world.use.tasks.delete(after)
    dies_with_its_place(world, queue)
    (last,) = world.put(queue, "4", group_key="a")

    assert not after_belief(world, queue)
    assert not after_belief(world, queue)
    if end == "delete":
        world.use.tasks.delete(dead)
    elif end == "restart":
        world.use.bulk.by_ids(queue, BulkAction.RESTART, [dead])
        (again,) = after_belief(world, queue)
        assert again.id == dead
        world.say(again, "SUCCEEDED")
    else:
        world.clock.forward(3600)
    assert [task.id for task in after_belief(world, queue)] == [last]


# -- what is refused ------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({}, "group_key"),
        ({"group_key": "a", "delay_in_seconds": 1}, "delay_in_seconds"),
        ({"group_key": "a", "scheduled_at": timedelta(0)}, "scheduled_at"),
        ({"group_key": "a", "scheduled_at": timedelta(1)}, "scheduled_at"),
    ],
)
def test_a_task_needs_a_key_and_takes_no_time(
    world: World, fields: dict[str, Any], named: str
) -> None:
    queue = strict(world)
    if "scheduled_at" in fields:
        fields = {**fields, "scheduled_at": world.clock() + fields["scheduled_at"]}
    (result,) = world.use.tasks.enqueue(queue, [TaskSpec("{}", **fields)])
    assert result.outcome == "INVALID"
    assert str(result.detail).startswith(named)


def test_a_delivery_in_strict_order_costs_a_write_and_two_reads_more(world: World) -> None:
    queue = strict(world)
    world.put(queue, *"123456789", group_key="a")
    spent: list[tuple[float, float]] = []
    for _ in range(5):
        world.clock.forward(2)
        with metered() as cost:
            task = world.one(queue)
        spent.append((cost.write, cost.read))
        world.say(task, "SUCCEEDED")
    plain = world.queue("plain", groups=GroupSettings(GroupMode.FAIR))
    world.put(plain, *"123456789", group_key="a")
    world.clock.forward(2)
    with metered() as usual:
        world.one(plain)

    if usual.write:  # in memory nothing costs
        assert {write - usual.write for write, _ in spent} == {1}
        more = [read - usual.read for _, read in spent]
        assert sorted(more)[len(more) // 2] <= 2
        assert max(more) <= 2.5  # now and then another look at the index


def test_moves_without_a_key_or_with_a_delay_are_refused(world: World) -> None:
    queue, other = strict(world), world.queue("other", groups=GroupSettings(GroupMode.FAIR))
    world.put(other)
    world.put(other, group_key="a")
    for task in world.take(other, 5):
        delay = {"delay_in_seconds": 5} if task.group_key else {}
        result = world.say(task, "MOVED", to_queue=queue, **delay)
        assert result.outcome == "INVALID"
        named = "delay_in_seconds" if task.group_key else "group_key"
        assert str(result.detail).startswith(named)


def test_a_task_moves_into_a_strict_order_only_at_once_and_with_a_key(world: World) -> None:
    queue, plain = strict(world), world.queue("plain")
    world.put(plain)
    task = world.one(plain)

    late = world.say(task, "MOVED", to_queue=queue, delay_in_seconds=60)
    keyless = world.say(task, "MOVED", to_queue=queue)

    assert (late.outcome, keyless.outcome) == ("INVALID", "INVALID")
    assert "delay_in_seconds" in str(late.detail)
    assert "group_key must be given" in str(keyless.detail)
    assert world.see(task.id).state is State.INFLIGHT
