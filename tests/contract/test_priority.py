"""Priorities on every store: who comes first, by how much, and what keeps its rank."""

from typing import Any

import pytest

from headrace.domain.errors import InvalidRequest
from headrace.domain.operate import BulkAction
from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import PrioritySettings, QueueSettings
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.schedule import ScheduleSettings
from headrace.domain.task import LANES, Priority, State, Task
from headrace.ops.delivery.reports import ReportOutcome
from headrace.ops.tasks.enqueue import EnqueueOutcome
from headrace.store.dynamo import DynamoStore
from tests.contract.conftest import World, new_world

HIGH, NORMAL, LOW = Priority.HIGH, Priority.NORMAL, Priority.LOW
AT_ONCE = RetryStrategy(Backoff.FIXED, 5, 0, 0, 0.0)
SETTLED = 121  # seconds: the longest cache, a call under way, and an index that lags


def ranked(world: World, name: str = "mail", aging: float = 300, **settings: Any) -> str:
    return world.queue(name, priority=PrioritySettings(aging), **settings)


def payloads(tasks: tuple[Task, ...]) -> list[str | None]:
    return [task.payload for task in tasks]


def test_nothing_is_overtaken_by_what_falls_due_later_than_the_aging(world: World) -> None:
    queue = ranked(world, aging=60)
    world.put(queue, '"low"', priority=LOW)
    world.clock.forward(59.999)
    world.put(queue, '"normal, in time"')
    world.clock.forward(0.001)
    world.put(queue, '"normal, too late"')
    world.clock.forward(59.998)
    world.put(queue, '"high, in time"', priority=HIGH)
    world.clock.forward(1)
    world.put(queue, '"high, too late"', priority=HIGH)

    assert payloads(world.take(queue, 5)) == [
        '"high, in time"',
        '"normal, in time"',
        '"low"',
        '"normal, too late"',
        '"high, too late"',
    ]


def test_a_high_one_of_the_future_is_not_early(world: World) -> None:
    queue = ranked(world)
    world.put(queue, '"later"', priority=HIGH, delay_in_seconds=10)
    world.put(queue, '"now"', priority=LOW)

    found = world.use.deliveries.dequeue(queue, batch_size=5)
    assert payloads(found.tasks) == ['"now"']
    assert found.poll_after_seconds <= 10
    world.clock.forward(9.999)
    assert world.use.deliveries.dequeue(queue, batch_size=5).tasks == ()
    world.clock.forward(0.001)
    assert payloads(world.use.deliveries.dequeue(queue).tasks) == ['"later"']


@pytest.mark.parametrize("way", ["FAILED", "RELEASED", "lapsed", "restarted"])
def test_who_comes_back_keeps_its_rank(world: World, way: str) -> None:
    queue = ranked(world, retry_strategy=AT_ONCE, keepalive_timeout_in_seconds=5)
    world.put(queue, '"back"', priority=HIGH)
    task = world.one(queue)
    if way == "lapsed":
        world.clock.forward(6)
        world.use.reaping.run()
    elif way == "restarted":
        world.say(task, "FAILED", retryable=False)
        world.use.bulk.by_ids(queue, BulkAction.RESTART, [task.id])
    else:
        assert world.say(task, way).outcome is ReportOutcome.OK
    world.clock.forward(1)
    world.put(queue, '"other"')

    shown = world.see(task.id)
    assert (shown.state, shown.priority) == (State.ENQUEUED, HIGH)
    assert shown.place.lane == LANES[HIGH]
    assert payloads(world.take(queue, 2)) == ['"back"', '"other"']


def test_under_a_group_it_keeps_its_rank_too(world: World) -> None:
    queue = ranked(world)
    world.put(queue, priority=HIGH)
    group = world.use.leases.open(None, keepalive=60)
    task = world.one(queue, lease_id=group.id)

    assert world.say(task, "RELEASED").outcome is ReportOutcome.OK
    assert world.see(task.id).place.lane == 1


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_move_takes_the_priority_along_where_there_are_any(
    world: World, *, by_hand: bool
) -> None:
    queue, other, plain = ranked(world), ranked(world, "other"), world.queue("plain")

    def moved(task_id: str, source: str, target: str) -> Task:
        if by_hand:
            world.use.bulk.by_ids(source, BulkAction.MOVE, [task_id], to_queue=target)
        else:
            said = world.say(world.one(source), "MOVED", to_queue=target)
            assert said.outcome is ReportOutcome.OK
        return world.see(task_id)

    (task_id,) = world.put(queue, priority=HIGH)
    there = moved(task_id, queue, other)
    assert (there.queue, there.priority, there.place.lane) == ("other", HIGH, 1)
    dropped = moved(task_id, other, plain)
    assert (dropped.queue, dropped.priority, dropped.place.lane) == ("plain", None, 0)
    usual = moved(task_id, plain, queue)
    assert (usual.queue, usual.priority, usual.place.lane) == (queue, NORMAL, 0)


def test_a_priority_is_invalid_where_there_are_none(world: World) -> None:
    queue = world.queue()
    world.put(queue, id="known")

    new, known, none = world.use.tasks.enqueue(
        queue,
        [
            TaskSpec("1", priority=HIGH, id="new"),
            TaskSpec("1", priority=HIGH, id="known"),
            TaskSpec("1"),
        ],
    )

    assert (new.outcome, known.outcome, none.outcome) == (
        EnqueueOutcome.INVALID,
        EnqueueOutcome.EXISTING,
        EnqueueOutcome.CREATED,
    )
    assert new.detail == "priority has no meaning in queue mail, whose setting `priority` is null"
    child = TaskSpec("1", priority=LOW)
    spawning = world.say(world.one(queue), "SUCCEEDED", spawn=((queue, child),))
    assert spawning.outcome is ReportOutcome.INVALID
    assert spawning.detail is not None
    assert spawning.detail.startswith("spawn[0].priority ")
    settings = ScheduleSettings(every_seconds=60, priority=HIGH)
    with pytest.raises(InvalidRequest) as refused:
        world.use.schedules.put(queue, "often", settings)
    assert [error.field for error in refused.value.errors] == ["priority"]


# -- switched off ----------------------------------------------------------------------------------


def test_switched_off_every_lane_drains_by_due_time(world: World) -> None:
    queue = ranked(world)
    for level in (LOW, NORMAL, HIGH):
        world.put(queue, f'"{level}"', priority=level)
        world.clock.forward(1)
    world.use.queues.replace(queue, QueueSettings(retry_strategy=AT_ONCE))

    low = world.one(queue)
    assert low.payload == '"low"'
    world.say(low, "FAILED")
    assert world.see(low.id).place.lane == 0
    assert payloads(world.take(queue, 5)) == ['"normal"', '"high"', '"low"']


def test_what_turns_up_in_a_lane_that_was_given_up_is_found_within_the_hour(world: World) -> None:
    queue = ranked(world)
    late = new_world(world.store, world.clock)
    late.use.queues.cache_seconds = 1e9
    late.use.queues.cached(queue)
    world.use.queues.replace(queue, QueueSettings())
    world.clock.forward(SETTLED)
    world.use.reaping.run()
    assert world.use.queues.get(queue).lanes == [0]

    (task_id,) = late.put(queue, priority=HIGH)
    for _ in range(61):
        world.clock.forward(60)
        world.use.reaping.run()
    assert world.one(queue).id == task_id


@pytest.mark.slow
def test_with_ten_thousand_waiting_a_high_one_is_the_next(world: World) -> None:
    queue = ranked(world)
    calls = 8 if isinstance(world.store, DynamoStore) else 400  # of 25; the engine is slow
    for _ in range(calls):
        world.put(queue, *["1"] * 25)
    world.clock.forward(120)
    world.put(queue, '"high"', priority=HIGH)

    assert world.one(queue).payload == '"high"'
