"""A dequeue that is sent again under its key gets what the first one leased, and nothing else."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from headrace.domain.errors import Unavailable
from headrace.domain.queue_settings import IntervalUnit, RateLimiting
from headrace.domain.repeat import KEPT, KeyedRequest
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import Task
from headrace.ops.delivery.dequeue import DequeueResult
from headrace.ops.delivery.idempotency import DeliveryBatch
from tests.contract.conftest import World, lease_name
from tests.contract.groups import opened
from tests.contract.test_limits import at_most

AT_ONCE = RetryStrategy(kind=Backoff.FIXED, base_seconds=0, jitter=0)
SECONDS = 10  # that a call may take


def batch(world: World, key: str = "k", what: str = "take", **more: Any) -> DeliveryBatch:
    request = KeyedRequest("key_0123456789abcdef0123", key, what)
    return DeliveryBatch(world.use, request, timedelta(seconds=SECONDS), **more)


def take(world: World, queue: str, key: str = "k", count: int = 3, **call: object) -> DequeueResult:
    """Dequeue under *key*, whether for the first time or again."""
    world.clock.forward(0.001)
    grouped = "lease_id" in call
    return world.use.deliveries.dequeue(
        queue,
        batch_size=count,
        worker="ada:1",
        batch=batch(world, key, grouped=grouped),
        **call,  # type: ignore[arg-type]  # as it is given
    )


def leases(tasks: tuple[Task, ...]) -> list[tuple[str, str | None, int]]:
    return [(task.id, task.lease_id, task.attempts) for task in tasks]


@pytest.fixture
def queue(world: World) -> str:
    name = world.queue(retry_strategy=AT_ONCE)
    world.put(name, *[f'"{number}"' for number in range(8)])
    return name


@pytest.mark.gate
def test_a_repeat_gives_the_same_tasks_under_the_same_leases(world: World, queue: str) -> None:
    first = take(world, queue)
    world.clock.forward(7)
    again, and_again = take(world, queue), take(world, queue)

    assert (first.replayed, again.replayed) == (False, True)
    assert leases(again.tasks) == leases(and_again.tasks) == leases(first.tasks)
    assert [task.payload for task in again.tasks] == ['"0"', '"1"', '"2"']
    assert again.now > first.now
    assert len(world.take(queue, 25)) == 5


def reclaim(world: World) -> None:
    world.clock.forward(5)
    world.use.reaping.run()


ENDS: dict[str, Callable[[World, Task], object]] = {
    "SUCCEEDED": lambda world, task: world.say(task, "SUCCEEDED"),
    "MOVED": lambda world, task: world.say(task, "MOVED", to_queue="other"),
    "deleted": lambda world, task: world.use.tasks.delete(task.id),
    "reclaimed": lambda world, _: reclaim(world),
}


@pytest.mark.parametrize("how", ENDS)
def test_what_is_over_is_left_out_and_nothing_comes_in_its_place(world: World, how: str) -> None:
    world.queue("other")
    queue = world.queue(retry_strategy=AT_ONCE, history_retention_in_seconds=0)
    world.put(queue, *"123456")
    first = take(world, queue, keepalive=5)
    held = [first.tasks[0], first.tasks[2]]
    for task in held:
        world.say(task, "INFLIGHT", keepalive=60)

    ENDS[how](world, first.tasks[1])
    again = take(world, queue, keepalive=5)

    assert [task.id for task in again.tasks] == [task.id for task in held]
    for task in held:
        world.say(task, "SUCCEEDED")
    nothing = take(world, queue, keepalive=5)
    assert (nothing.tasks, nothing.replayed) == ((), True)
    assert world.take(queue, 25) != ()


def test_after_a_quarter_of_an_hour_it_is_a_new_call(world: World) -> None:
    queue = world.queue(keepalive_timeout_in_seconds=43_200)
    world.put(queue, *"123456")
    first = take(world, queue)
    world.clock.forward((KEPT - timedelta(seconds=1)).total_seconds())
    assert leases(take(world, queue).tasks) == leases(first.tasks)
    world.clock.forward(1)

    anew = take(world, queue)
    again = take(world, queue)

    assert {task.id for task in anew.tasks}.isdisjoint(task.id for task in first.tasks)
    assert leases(again.tasks) == leases(anew.tasks)


def test_a_repeat_takes_no_token(world: World) -> None:
    rate = RateLimiting(3, 1, IntervalUnit.HOURS)
    queue = world.queue(dequeuing_settings=at_most(rate=rate))
    world.put(queue, *"12345")

    first = take(world, queue, count=2)
    again = take(world, queue, count=2)
    with pytest.raises(Unavailable):  # says that it is the first, and is not
        world.take(queue, 2, batch=batch(world, attempt=1))

    assert leases(again.tasks) == leases(first.tasks)
    assert len(world.take(queue, 5)) == 1


# ------------------------------------------------------------------------------------ group leases


def test_under_a_group_a_repeat_gives_what_that_call_leased(world: World, queue: str) -> None:
    group = opened(world)
    other = take(world, queue, "another", 2, lease_id=group)
    first = take(world, queue, lease_id=group)
    world.clock.forward(30)
    world.use.leases.extend(group)

    again = take(world, queue, lease_id=group)

    assert leases(again.tasks) == leases(first.tasks)
    assert [lease_name(task) for task in again.tasks] == [group] * 3
    assert again.tasks[0].lease_expires_at == world.clock() + timedelta(seconds=60 - 0.001)
    assert len(other.tasks) == 2
    assert len(world.take(queue, 25)) == 3
