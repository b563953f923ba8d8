"""What every store promises about purges: they take what existed at the call, and all of it."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from headrace.domain.operate import BulkAction
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import DequeuingSettings, QueueSettings, RateLimiting
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import SHOWN_STATES, State, Task
from headrace.local.tables import TableNames
from headrace.ops.delivery.reports import ReportOutcome, ReportStatus, TaskReport
from headrace.ops.shared.audit import AuditFilter, AuditRecord
from headrace.runtime.wiring import Settings, build, utc_now
from headrace.store.dynamo import DynamoStore
from headrace.store.dynamo.raw_client import RawClient
from tests.contract.conftest import World, lease_name

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


def test_what_was_moved_here_after_the_call_survives(world: World) -> None:
    queue, _ = full(world)
    (elsewhere,) = world.put(world.queue("other"))
    purge_begun(world, queue, E)
    (task,) = world.take("other")
    assert world.say(task, "MOVED", to_queue=queue).outcome is ReportOutcome.OK

    world.use.reaping.run()

    assert world.see(elsewhere).queue == queue
    assert world.use.inspect.count(queue).count == 1


def test_what_waited_or_was_in_flight_is_purged_from_wherever_of_these_it_is(world: World) -> None:
    queue, _ = full(world)
    (held,) = world.take(queue)
    purge_begun(world, queue, E, F)
    world.say(held, "RELEASED")
    moved = world.take(queue, 25)

    world.use.reaping.run()

    assert world.use.inspect.count(queue).count == 0
    assert world.say(moved[0], "SUCCEEDED").outcome is ReportOutcome.NOT_FOUND


def test_a_delivery_that_began_after_the_call_is_purged_if_its_task_was_there(
    world: World,
) -> None:
    queue, _ = full(world)
    world.take(queue, 25)
    world.take(queue, 3)
    purge_begun(world, queue, F)
    late = world.one(queue)

    world.use.reaping.run()

    assert world.say(late, "SUCCEEDED").outcome is ReportOutcome.NOT_FOUND
    assert world.use.inspect.count(queue).by_state == {E: 1, F: 0, S: 0, D: 0}


def noted(world: World) -> AuditRecord:
    (entry,) = world.use.audit.list(AuditFilter(action="purge")).shown
    return entry


def test_the_audit_says_in_the_end_how_many_a_purge_removed_that_went_on(world: World) -> None:
    queue, _ = full(world)
    purge_begun(world, queue, E)
    assert noted(world).changed == PAGE

    world.use.reaping.run()

    assert (noted(world).matched, noted(world).changed) == (PAGE + 5, PAGE + 5)


def test_a_purge_goes_on_where_it_was_stopped_however_much_came_since(world: World) -> None:
    """Else what came later would be read again and again, and nothing behind it."""
    queue = world.queue()
    hidden = world.put(queue, delay_in_seconds=7200)
    world.put(queue, *["1"] * PAGE)
    world.put(queue, "1")
    purge_begun(world, queue, E)
    for _ in range(2):
        world.put(queue, *["1"] * PAGE, delay_in_seconds=3600)

    gone: set[str] = set()
    for _ in range(3):  # looks that are stopped after a page
        (removal,) = world.use.queues.removals.pending()
        next(world.use.queues.removals.pages(removal, gone), None)

    assert world.store.read(hidden) == {}
    assert world.use.inspect.count(queue).count == 2 * PAGE


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


@pytest.mark.slow
@pytest.mark.parametrize("states", [(E, F), SHOWN_STATES], ids="+".join)
def test_no_task_evades_a_purge_while_a_worker_takes_and_releases_it(
    raw_dynamodb: RawClient, tables: TableNames, states: Sequence[State]
) -> None:
    """One task, one worker, eight purges; half of them used to end with the task there."""
    store = DynamoStore(raw_dynamodb, tasks_table=tables.tasks, control_table=tables.control)
    working = threading.RLock()

    def between_deliveries() -> datetime:
        with working:
            return utc_now()

    use = build(Settings(admin_key="test"), store, now=utc_now)
    use.queues.now = between_deliveries

    def work(queue: str, stop: threading.Event) -> None:
        while not stop.is_set():
            with working:
                for task in use.deliveries.dequeue(queue).tasks:
                    report = TaskReport(task.id, str(lease_name(task)), ReportStatus.RELEASED)
                    use.reports.report(queue, [report])
            stop.wait(0.0001)  # or nobody else ever gets the lock

    finished = 0
    for number in range(8):
        queue = use.queues.create(f"mail-{number}", QueueSettings()).name
        (made,) = use.tasks.enqueue(queue, [TaskSpec("{}")])
        stop = threading.Event()
        worker = threading.Thread(target=work, args=(queue, stop))
        worker.start()
        try:
            purged = use.queues.purge(queue, tuple(states))
            there = store.read([str(made.id)])
        finally:
            stop.set()
            worker.join()
        finished += purged.finished
        assert (purged.finished, purged.deleted) == (not there, not there)
    assert finished > 2  # else nothing is shown


# -- queues that are deleted and created again -----------------------------------------------------


def deleted(world: World, queue: str) -> Any:
    """Delete *queue*; return what a process that has just read its settings goes on with."""
    stale = world.use.queues.cached(queue)
    assert world.use.queues.delete(queue)
    return stale


def put_by(world: World, stale: Any, *payloads: str) -> list[str]:
    """Enqueue as a process that does not know of the deletion yet."""
    queues = world.use.queues
    known = dict(queues._cache)  # noqa: SLF001  the other process has its own
    queues._cache[stale.name] = (world.clock(), stale)  # noqa: SLF001
    ids = world.put(stale.name, *payloads)
    queues._cache.clear()  # noqa: SLF001
    queues._cache.update(known)  # noqa: SLF001
    return ids


def test_latecomers_to_a_deleted_queue_are_swept_however_long_its_settings_may_be_cached(
    world: World,
) -> None:
    stale = deleted(world, world.queue(shards=2))
    world.clock.forward(31)
    world.use.reaping.run()
    world.clock.forward(28.9)
    ids = put_by(world, stale, "1", "2", "3")

    for _ in range(2):
        world.clock.forward(60)
        world.use.reaping.run()

    assert world.store.read(ids) == {}
    assert world.use.queues.removals.pending() == []


def test_latecomers_to_a_queue_that_was_created_again_are_seen_there(world: World) -> None:
    """With the shards of the old one, which the other process goes on using."""
    stale = deleted(world, world.queue(shards=5))
    world.clock.forward(1)
    queue = world.queue()
    world.clock.forward(1)
    ids = put_by(world, stale, *["1"] * 20)

    for _ in range(3):
        world.clock.forward(60)
        world.use.reaping.run()

    assert world.use.inspect.count(queue).count == 20
    assert sorted(task.id for task in world.take(queue, 25)) == sorted(ids)


def test_the_limits_of_a_queue_that_was_created_again_hold(world: World) -> None:
    """The last look at the old one must not take the new one's tokens for its own."""
    limits = DequeuingSettings(rate_limiting=RateLimiting(2, 3600))
    queue = world.queue(dequeuing_settings=limits)
    deleted(world, queue)
    world.clock.forward(1)
    world.queue(dequeuing_settings=limits)
    world.put(queue, *["1"] * 5)
    assert len(world.take(queue, 5)) == 2

    for _ in range(3):
        world.clock.forward(60)
        world.use.reaping.run()

    assert world.take(queue, 5) == ()


def test_they_hold_though_somebody_else_was_still_deleting_the_old_one(world: World) -> None:
    limits = DequeuingSettings(rate_limiting=RateLimiting(2, 3600))
    queue = world.queue(dequeuing_settings=limits)
    removals = world.use.queues.removals
    world.use.queues.removals = replace(removals, patience=0)
    assert not world.use.queues.delete(queue)
    (removal,) = removals.pending()
    straggler = removals.pages(removal, set())
    next(straggler)
    world.use.reaping.run()
    world.use.queues.removals = removals
    world.clock.forward(1)
    world.queue(dequeuing_settings=limits)
    world.put(queue, *["1"] * 5)
    assert len(world.take(queue, 5)) == 2

    for _ in straggler:
        pass

    assert world.take(queue, 5) == ()
