"""What every store promises about limits: never exceeded, and nothing leaks."""

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.domain.queue_settings import (
    DequeuingSettings,
    IntervalUnit,
    QueueSettings,
    RateLimiting,
)
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.runtime.wiring import Settings, build
from headrace.store.base import Store
from headrace.store.call_scope import metered
from tests.contract.conftest import World, hooked, new_world

AT_ONCE = RetryStrategy(kind=Backoff.FIXED, base_seconds=0, jitter=0, max_retries=100)


def at_most(inflight: int = 0, rate: RateLimiting | None = None) -> DequeuingSettings:
    return DequeuingSettings(max_inflight_tasks=inflight, rate_limiting=rate)


def filled(world: World, count: int, **settings: Any) -> str:
    queue = world.queue(**settings)
    for start in range(0, count, 25):
        world.put(queue, *["1"] * min(25, count - start))
    return queue


@pytest.mark.gate
def test_no_more_tasks_are_in_flight_than_the_queue_allows(world: World) -> None:
    queue = filled(world, 10, dequeuing_settings=at_most(3))

    first = world.take(queue, 5)

    assert len(first) == 3
    assert world.take(queue, 5) == ()
    assert world.use.deliveries.dequeue(queue).poll_after_seconds == 0.1  # nobody knows until when
    world.say(first[0], "SUCCEEDED")
    assert len(world.take(queue, 5)) == 1


@pytest.mark.parametrize("end", ["SUCCEEDED", "RELEASED", "MOVED", "delete", "die"])
def test_a_slot_is_free_again_however_a_delivery_ends(world: World, end: str) -> None:
    queue = filled(world, 2, dequeuing_settings=at_most(1), retry_strategy=AT_ONCE)
    world.queue("other")
    for _ in range(3):
        task = world.one(queue)
        assert world.take(queue) == ()
        if end == "delete":
            world.use.tasks.delete(task.id)
        elif end == "die":
            world.clock.forward(60)
        else:
            world.say(task, end, **({"to_queue": "other"} if end == "MOVED" else {}))
        world.put(queue)

    assert len(world.take(queue)) == 1


def test_a_lowered_limit_holds_as_tasks_end_and_a_raised_one_at_once(world: World) -> None:
    queue = filled(world, 20, dequeuing_settings=at_most(6))
    taken = list(world.take(queue, 6))
    world.use.queues.replace(queue, QueueSettings(dequeuing_settings=at_most(2)))

    for _ in range(4):
        assert world.take(queue, 5) == ()
        world.say(taken.pop(0), "SUCCEEDED")
    assert world.take(queue, 5) == ()
    world.say(taken.pop(), "SUCCEEDED")
    assert len(world.take(queue, 5)) == 1

    world.use.queues.replace(queue, QueueSettings(dequeuing_settings=at_most(5)))
    assert len(world.take(queue, 5)) == 3


@pytest.mark.parametrize(
    ("rate", "least", "most"),
    [
        (RateLimiting(1, 1, IntervalUnit.HOURS), 60, 60),
        (RateLimiting(4, 1), 1, 1),  # sooner, but each call costs
    ],
)
def test_the_service_says_when_the_rate_may_allow_a_task_again(
    world: World, rate: RateLimiting, least: float, most: float
) -> None:
    queue = filled(world, 9, dequeuing_settings=at_most(rate=rate))
    world.use.deliveries.poll_after_seconds = 1
    world.take(queue, rate.max_tokens)

    answer = world.use.deliveries.dequeue(queue)

    assert answer.tasks == ()
    assert least <= answer.poll_after_seconds <= most


@pytest.mark.gate
def test_tokens_allow_a_burst_and_then_the_rate(world: World) -> None:
    rate = RateLimiting(10, 5)
    queue = filled(world, 30, dequeuing_settings=at_most(rate=rate))

    assert len(world.take(queue, 25)) == 10
    answer = world.use.deliveries.dequeue(queue, batch_size=25)
    assert (answer.tasks, round(answer.poll_after_seconds, 3)) == ((), 0.5)
    world.clock.forward(0.5)
    assert len(world.take(queue, 25)) == 1
    world.clock.forward(2)
    assert len(world.take(queue, 25)) == 4
    world.clock.forward(3600)
    assert len(world.take(queue, 25)) == 10


def test_a_queue_without_limits_pays_nothing_for_them(world: World) -> None:
    queue = filled(world, 25)

    with metered() as meter:
        world.take(queue, 25)

    assert meter.read <= 1.5
    assert meter.write <= 75


def test_sixteen_callers_share_one_rate(store: Store) -> None:
    use = build(Settings(), store)
    rate = RateLimiting(20, 1)
    use.queues.create("q", QueueSettings(dequeuing_settings=at_most(rate=rate)))
    world = World(store, None, use)  # type: ignore[arg-type]  # real time passes here
    for _ in range(8):
        world.put("q", *["1"] * 25)
    started = datetime.now(UTC)
    until = time.monotonic() + 1

    def work(_: int) -> int:
        taken = 0
        while time.monotonic() < until:
            taken += len(use.deliveries.dequeue("q", batch_size=3).tasks)
        return taken

    with ThreadPoolExecutor(16) as pool:
        taken = sum(pool.map(work, range(16)))

    seconds = (datetime.now(UTC) - started).total_seconds()
    assert 20 <= taken <= 20 + 20 * seconds


def test_a_token_of_a_delivery_that_came_too_late_is_free_for_all(world: World) -> None:
    rate = RateLimiting(2, 1, IntervalUnit.HOURS)
    queue = world.queue(dequeuing_settings=at_most(rate=rate))
    (gone,) = world.put(queue)
    late = hooked(world, before_commit=lambda: world.use.cancelling.cancel(gone))
    assert late.take(queue) == ()

    world.put(queue, "1", "2")
    assert len(world.take(queue, 2)) == 2


def test_a_rate_that_is_changed_while_tokens_are_drawn_holds_at_once(world: World) -> None:
    queue = filled(world, 20, dequeuing_settings=at_most(rate=RateLimiting(10, 5)))
    other = new_world(world.store, world.clock)
    assert len(other.take(queue, 2)) == 2

    def changed() -> None:
        slower = QueueSettings(dequeuing_settings=at_most(rate=RateLimiting(3, 1)))
        world.use.queues.replace(queue, slower)
        world.take(queue)

    drawing = hooked(world, before_patch=changed)
    taken = drawing.take(queue, 10)
    world.clock.forward(60)
    assert len(taken) <= 8
    assert len(drawing.take(queue, 10)) == 3
    assert len(other.take(queue, 10)) == 0
