"""Shards that are given up are looked at until they are empty, and no longer."""

import pytest

from headrace.domain.queue import DequeuingSettings, QueueSettings
from headrace.domain.task import SHOWN_STATES, State
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


def test_a_queue_of_one_shard_again_costs_what_one_shard_costs(world: World) -> None:
    queue = resharded(world, 64, 1)
    world.clock.forward(SETTLED)

    world.use.reaping.run()

    stored = world.use.queues.get(queue)
    assert (stored.shards_in_use, stored.shards_ever, stored.version) == (1, 64, 2)
    assert reads(world, queue) <= 1.0


def test_no_shard_is_given_up_while_others_may_use_it_still(world: World) -> None:
    queue = resharded(world, 8, 1)

    world.clock.forward(SETTLED - 2)
    world.use.reaping.run()

    assert world.use.queues.get(queue).shards_in_use == 8


def test_shards_are_given_up_state_by_state(world: World) -> None:
    queue = world.queue(shards=8, keepalive_timeout_in_seconds=600)
    world.put(queue, *["1"] * 25)
    tasks = world.take(queue, 25)
    world.use.queues.replace(queue, QueueSettings(shards=1))
    kept = next(task for task in tasks if task.place.shard > 0)
    for task in tasks:
        if task is not kept:
            world.say(task, "SUCCEEDED")
    world.clock.forward(SETTLED)

    world.use.reaping.run()

    stored = world.use.queues.get(queue)
    assert {state for state in SHOWN_STATES if stored.shards_of(state) > 1} == {State.INFLIGHT}
    world.say(kept, "SUCCEEDED")
    world.use.reaping.run()
    assert world.use.queues.get(queue).shards_in_use == 1


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


def test_tasks_that_wait_on_old_shards_are_still_taken(world: World) -> None:
    queue = world.queue(shards=8)
    world.put(queue, *["1"] * 25)
    world.use.queues.replace(queue, QueueSettings(shards=2))
    world.clock.forward(SETTLED)
    world.use.reaping.run()

    assert len(world.take(queue, 25)) == 25


def test_a_task_put_on_an_old_shard_by_settings_that_are_out_of_date_is_found(
    world: World,
) -> None:
    queue = world.queue(shards=8)
    other = new_world(world.store, world.clock)
    other.use.queues.cache_seconds = 60
    other.use.queues.cached(queue)
    world.use.queues.replace(queue, QueueSettings(shards=1))
    world.clock.forward(59)
    other.put(queue, *["1"] * 25)
    world.clock.forward(62)
    world.use.reaping.run()

    assert len(world.take(queue, 25)) == 25


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


def test_a_change_of_the_settings_keeps_what_was_found_out(world: World) -> None:
    queue = resharded(world, 8, 1)
    world.clock.forward(SETTLED)
    world.use.reaping.run()

    paused = world.use.queues.pause(queue)
    assert (paused.shards_in_use, paused.shards_ever) == (1, 8)
    more = world.use.queues.replace(queue, QueueSettings(shards=4))
    assert (more.shards_in_use, more.shards_ever) == (4, 8)
    fewer = world.use.queues.replace(queue, QueueSettings(shards=2))
    assert fewer.shards_in_use == 4


def test_what_was_found_out_of_other_settings_counts_no_more(world: World) -> None:
    queue = resharded(world, 8, 1)
    world.clock.forward(SETTLED)
    look, upkeep = world.store.leave_note, world.use.reaping.upkeep

    def be_overtaken(kind: str, name: str, note: str, *, expects: str | None) -> bool:
        world.use.queues.replace(queue, QueueSettings(shards=4))
        return look(kind, name, note, expects=expects)

    world.store.leave_note = be_overtaken  # type: ignore[method-assign]
    upkeep.look(queue)

    assert world.use.queues.get(queue).shards_in_use == 8


def test_deleting_a_queue_removes_what_is_on_any_shard_it_ever_had(world: World) -> None:
    queue = resharded(world, 8, 1)
    other = new_world(world.store, world.clock)
    other.use.queues.cache_seconds = 1e9
    world.clock.forward(SETTLED)
    world.use.reaping.run()
    world.put(queue, *["1"] * 3)

    world.use.queues.delete(queue)

    assert world.store.read([]) == {}
    made = world.queue(queue)
    assert world.use.queues.get(made).shards_in_use == 8  # by those who have not heard of it yet


@pytest.mark.parametrize("waits", [119, 121])
def test_a_limit_counts_by_its_pools_alone_once_all_in_flight_are_counted(
    world: World, waits: int
) -> None:
    queue = world.queue()
    world.put(queue, *["1"] * 3)
    (task,) = world.take(queue)
    limits = DequeuingSettings(max_inflight_tasks=2)
    world.use.queues.replace(queue, QueueSettings(dequeuing_settings=limits))
    world.clock.forward(waits)
    world.say(task, "INFLIGHT", keepalive=300)
    world.use.reaping.run()
    assert world.use.queues.get(queue).uncounted_since is not None

    world.say(task, "SUCCEEDED")
    world.use.reaping.run()

    assert (world.use.queues.get(queue).uncounted_since is None) == (waits > 120)
