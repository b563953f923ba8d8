"""Shards that are given up are looked at until they are empty, and no longer."""

import pytest

from headrace.domain.queue_settings import QueueSettings
from headrace.domain.task import State
from headrace.store.call_scope import metered
from tests.contract.conftest import World, new_world

SETTLED = 121  # seconds: the longest cache, a call under way, and an index that lags


def resharded(world: World, before: int, after: int) -> str:
    queue = world.queue(shards=before)
    world.use.queues.replace(queue, QueueSettings(shards=after))
    return queue


def reads(world: World, queue: str) -> float:
    world.use.queues.get(queue)  # that it is in the cache
    with metered() as meter:
        assert world.take(queue, 25) == ()
    return meter.read


@pytest.mark.gate
def test_a_queue_of_one_shard_again_costs_what_one_shard_costs(world: World) -> None:
    queue = resharded(world, 64, 1)
    world.clock.forward(SETTLED)

    world.use.reaping.run()

    stored = world.use.queues.get(queue)
    assert (stored.shards_in_use, stored.shards_ever, stored.version) == (1, 64, 2)
    assert reads(world, queue) <= 1.0


def test_history_on_old_shards_costs_a_dequeue_nothing(world: World) -> None:
    queue = world.queue(shards=8)
    world.put(queue, *["1"] * 25)
    for task in world.take(queue, 25):
        world.say(task, "SUCCEEDED")
    world.use.queues.replace(queue, QueueSettings(shards=1))
    world.clock.forward(SETTLED)

    world.use.reaping.run()

    stored = world.use.queues.get(queue)
    assert [stored.shards_of(state) for state in (State.ENQUEUED, State.INFLIGHT)] == [1, 1]
    assert stored.shards_of(State.SUCCEEDED) == 8
    assert len(world.use.inspect.list(queue).tasks) == 25
    assert world.use.inspect.count(queue).count == 25
    assert reads(world, queue) <= 1.0


def test_what_turns_up_on_a_shard_after_all_is_found_within_an_hour(world: World) -> None:
    queue = world.queue(shards=8)
    other = new_world(world.store, world.clock)
    other.use.queues.cache_seconds = 1e9
    other.use.queues.cached(queue)
    world.use.queues.replace(queue, QueueSettings(shards=1))
    world.clock.forward(SETTLED)
    world.use.reaping.run()
    assert world.use.queues.get(queue).shards_in_use == 1
    other.put(queue, *["1"] * 25)
    world.clock.forward(1)
    found = {task.id for task in world.take(queue, 25)}

    for _ in range(60):
        world.clock.forward(60)
        world.use.reaping.run()

    assert len(found | {task.id for task in world.take(queue, 25)}) == 25
