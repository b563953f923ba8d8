"""What every store promises about purges: they take what existed at the call, and all of it."""

from dataclasses import replace
from typing import Any

import pytest

from headrace.domain.operate import BulkAction
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import State, Task
from headrace.ops.delivery.reports import ReportOutcome
from headrace.ops.shared.audit import AuditFilter, AuditRecord
from tests.contract.conftest import World, new_world

AT_ONCE = RetryStrategy(Backoff.FIXED, max_retries=100, base_seconds=0, jitter=0)
E, F, D, S = State.ENQUEUED, State.INFLIGHT, State.DEAD, State.SUCCEEDED
PAGE = 25


@pytest.fixture(autouse=True)
def _short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let purges look at a few tasks at a time: what is about pages needs few tasks then."""
    monkeypatch.setattr("headrace.ops.shared.removals._PAGE", PAGE)


def purge_begun(world: World, queue: str, *states: State) -> None:
    """Ask for a purge that has no time: it is left to the reaper."""
    removals = world.use.queues.removals
    world.use.queues.removals = replace(removals, patience=0)
    world.clock.forward(0.001)
    assert not world.use.queues.purge(queue, states).finished
    world.use.queues.removals = removals
    world.clock.forward(0.001)


def full(world: World, **settings: Any) -> tuple[str, list[str]]:
    """Fill a queue with more than one page of the index."""
    queue = world.queue(retry_strategy=AT_ONCE, **settings)
    return queue, [*world.put(queue, *["1"] * PAGE), *world.put(queue, *["1"] * 5)]


def died(world: World, task: Task) -> str:
    world.say(task, "FAILED", retryable=False)
    return task.id


def restart(world: World, queue: str, *ids: str) -> None:
    world.clock.forward(0.001)
    answer = world.use.bulk.by_ids(queue, BulkAction.RESTART, ids)
    assert answer.changed == len(ids)


@pytest.mark.gate
def test_what_is_restarted_after_the_call_survives_a_purge_that_goes_on(world: World) -> None:
    queue, _ = full(world)
    dead = died(world, world.one(queue))
    purge_begun(world, queue, E)
    restart(world, queue, dead)

    world.use.reaping.run()

    assert world.see(dead).state is E
    assert world.use.inspect.count(queue).count == 1


def test_what_enters_a_named_state_before_the_purge_reaches_it_is_purged(world: World) -> None:
    """A task counts by its state when the purge reaches it, however it came there."""
    queue, _ = full(world)
    tasks = [*world.take(queue, 25), *world.take(queue, 5)]
    for task in tasks[:-2]:
        died(world, task)
    purge_begun(world, queue, D, E)
    late = died(world, tasks[-2])
    assert world.say(tasks[-1], "RELEASED").outcome is ReportOutcome.OK

    world.use.reaping.run()

    assert world.store.read([late, tasks[-1].id]) == {}
    assert world.use.inspect.count(queue).count == 0


@pytest.mark.parametrize("status", ["SUCCEEDED", "RELEASED"])
def test_what_a_worker_has_when_the_purge_reaches_it_is_kept(world: World, status: str) -> None:
    """The purge does not wait for it."""
    queue, _ = full(world, keepalive_timeout_in_seconds=3600)
    purge_begun(world, queue, E)
    task = world.one(queue)
    world.use.reaping.run()
    assert world.use.inspect.count(queue).count == 1
    world.clock.forward(61)
    world.use.reaping.run()
    assert world.use.queues.removals.pending() == []

    assert world.say(task, status).outcome is ReportOutcome.OK

    assert world.use.inspect.count(queue).count == 1


def noted(world: World) -> AuditRecord:
    (entry,) = world.use.audit.list(AuditFilter(action="purge")).shown
    return entry


def test_the_audit_says_in_the_end_how_many_a_purge_removed_that_went_on(world: World) -> None:
    queue, _ = full(world)
    purge_begun(world, queue, E)
    assert noted(world).changed == PAGE

    world.use.reaping.run()

    assert (noted(world).matched, noted(world).changed) == (PAGE + 5, PAGE + 5)


def test_a_purge_comes_to_its_end_though_no_pass_has_time_for_all_of_it(world: World) -> None:
    """Else looks that found nothing are begun anew, minute after minute."""
    queue = world.queue(shards=16)
    purge_begun(world, queue, E)
    (removal,) = world.use.queues.removals.pending()

    passes = 0
    while not removal.swept:
        passes += 1
        for _ in zip(range(25), world.use.queues.removals.pages(removal, set()), strict=False):
            pass
        (removal,) = world.use.queues.removals.pending()
        assert passes < 20


# -- queues that are deleted and created again -----------------------------------------------------


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
