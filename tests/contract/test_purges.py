"""What every store promises about purges: they take what existed at the call, and all of it."""

from typing import Any

import pytest

from headrace.domain.operate import BulkAction
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import State, Task
from headrace.ops.delivery.reports import ReportOutcome
from headrace.ops.shared.audit import AuditFilter, AuditRecord
from tests.contract.conftest import World, new_world

AT_ONCE = RetryStrategy(Backoff.FIXED, max_retries=100, base_seconds=0, jitter=0)
E, D = State.ENQUEUED, State.DEAD
MANY = 275
"""More tasks than a purge without time removes."""


def purge_begun(world: World, queue: str, *states: State) -> None:
    """Ask for a purge that has no time: it is left to the reaper."""
    jobs = world.use.jobs
    patience, jobs.patience = jobs.patience, 0
    world.clock.forward(0.001)
    assert not world.use.queues.purge(queue, states).finished
    jobs.patience = patience
    world.clock.forward(0.001)


def full(world: World, **settings: Any) -> str:
    queue = world.queue(retry_strategy=AT_ONCE, **settings)
    for _ in range(MANY // 25):
        world.put(queue, *["1"] * 25)
    return queue


def died(world: World, task: Task) -> str:
    world.say(task, "FAILED", retryable=False)
    return task.id


@pytest.mark.gate
def test_what_is_restarted_after_the_call_survives_a_purge_that_goes_on(world: World) -> None:
    queue = full(world)
    dead = died(world, world.one(queue))
    purge_begun(world, queue, E)
    world.use.bulk.by_ids(queue, BulkAction.RESTART, [dead])

    world.use.reaping.run()

    assert world.see(dead).state is E
    assert world.use.inspect.count(queue).count == 1


def test_what_enters_a_named_state_before_the_purge_reaches_it_is_purged(world: World) -> None:
    """A task counts by its state when the purge reaches it, however it came there."""
    queue = full(world)
    dying, returned = world.take(queue, 2)
    purge_begun(world, queue, D, E)
    died(world, dying)
    assert world.say(returned, "RELEASED").outcome is ReportOutcome.OK

    world.use.reaping.run()

    assert world.use.inspect.count(queue).count == 0


@pytest.mark.parametrize("status", ["SUCCEEDED", "RELEASED"])
def test_what_a_worker_has_when_the_purge_reaches_it_is_kept(world: World, status: str) -> None:
    """The purge does not wait for it."""
    queue = full(world, keepalive_timeout_in_seconds=3600)
    purge_begun(world, queue, E)
    task = world.one(queue)
    world.use.reaping.run()
    assert world.use.inspect.count(queue).count == 1
    world.clock.forward(61)
    world.use.reaping.run()
    assert world.use.jobs.pending() == []

    assert world.say(task, status).outcome is ReportOutcome.OK

    assert world.use.inspect.count(queue).count == 1


def audited(world: World) -> AuditRecord:
    (entry,) = world.use.audit.list(AuditFilter(action="purge")).shown
    return entry


def test_the_audit_says_in_the_end_how_many_a_purge_removed_that_went_on(world: World) -> None:
    queue = full(world)
    purge_begun(world, queue, E)
    assert 0 < (audited(world).changed or 0) < MANY

    world.use.reaping.run()

    assert (audited(world).matched, audited(world).changed) == (MANY, MANY)


def test_latecomers_to_a_queue_that_was_created_again_are_seen_there(world: World) -> None:
    """With the shards of the old one, which the other process goes on using."""
    queue = world.queue(shards=5)
    other = new_world(world.store, world.clock)
    other.use.queues.cache_seconds = 60
    other.use.queues.cached(queue)
    world.use.queues.delete(queue)
    world.clock.forward(1)
    world.queue(queue)
    world.clock.forward(1)
    ids = other.put(queue, *["1"] * 20)
    for _ in range(3):
        world.clock.forward(60)
        world.use.reaping.run()
    assert sorted(task.id for task in world.take(queue, 25)) == sorted(ids)
