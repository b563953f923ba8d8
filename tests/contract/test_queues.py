"""What every store promises about queues, lists, counts, purges and deletions."""

import itertools
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.domain.errors import InvalidRequest, NotFound, QueueExists, VersionMismatch
from headrace.domain.filters import TaskFilter
from headrace.domain.queue_settings import DeadLetterConfig, QueueSettings
from headrace.domain.task import SHOWN_STATES, State
from headrace.domain.task_groups import GroupMode, GroupSettings, OnDead
from headrace.ops.delivery.reports import ReportOutcome
from headrace.ops.tasks.inspect import TaskListing
from headrace.store.call_scope import Timed, in_time
from tests.contract.conftest import World, new_world


@pytest.mark.gate
def test_settings_are_replaced_if_the_version_is_the_one_that_was_seen(world: World) -> None:
    queue = world.queue()

    changed = world.use.queues.replace(queue, QueueSettings(description="new"), version=1)

    assert (changed.version, changed.settings.description) == (2, "new")
    with pytest.raises(VersionMismatch):
        world.use.queues.replace(queue, QueueSettings(), version=1)
    assert world.use.queues.replace(queue, QueueSettings()).version == 3


def test_a_pause_may_end_by_itself(world: World) -> None:
    queue = world.queue()
    world.put(queue)
    world.use.queues.pause(queue, resume_in_seconds=3)
    assert world.use.deliveries.dequeue(queue).poll_after_seconds == 3
    assert world.take(queue) == ()

    world.clock.forward(3)

    assert len(world.take(queue)) == 1
    assert not world.use.queues.get(queue).settings.dequeuing_settings.dequeuing_paused


def test_a_pause_stops_neither_reclaim_nor_expiry(world: World) -> None:
    queue = world.queue(keepalive_timeout_in_seconds=5)
    world.put(queue, "1")
    world.put(queue, "2", delay_in_seconds=2, expires_at=world.clock() + timedelta(seconds=4))
    world.take(queue)
    world.use.queues.pause(queue)
    world.clock.forward(6)

    reaped = world.use.reaping.run()

    assert (reaped.retried, reaped.expired) == (1, 1)


def test_a_dequeue_may_wait_for_the_first_task(world: World) -> None:
    queue = world.queue()
    world.put(queue, delay_in_seconds=4)
    before = world.clock()

    answer = world.use.deliveries.dequeue(queue, wait_seconds=10)

    assert len(answer.tasks) == 1
    assert world.clock() - before == timedelta(seconds=4)
    assert world.use.deliveries.dequeue(queue, wait_seconds=2).tasks == ()
    assert world.clock() - before == timedelta(seconds=6)


def everything(world: World, queue: str, **call: object) -> list[str]:
    listed, cursor = [], None
    while True:
        page: TaskListing = world.use.inspect.list(queue, cursor=cursor, **call)  # type: ignore[arg-type]
        listed += [task.id for task in page.tasks]
        cursor = page.cursor
        if cursor is None:
            return listed


def filled(world: World, **settings: Any) -> tuple[str, dict[str, list[str]]]:
    """Fill a queue with five tasks in each state people know."""
    queue = world.queue(**settings)
    ids: dict[str, list[str]] = {"SUCCEEDED": [], "DEAD": [], "INFLIGHT": []}
    world.put(queue, *["1"] * 15)
    taken = world.take(queue, 15)
    for task in taken[:5]:
        world.say(task, "SUCCEEDED")
    for task in taken[5:10]:
        world.say(task, "FAILED", retryable=False)
    for name, tasks in zip(ids, (taken[:5], taken[5:10], taken[10:]), strict=True):
        ids[name] = [task.id for task in tasks]
    ids["SCHEDULED"] = world.put(queue, *["1"] * 5, delay_in_seconds=60)
    ids["READY"] = world.put(queue, *["1"] * 5)
    world.clock.forward(1)
    return queue, ids


@pytest.mark.gate
@pytest.mark.parametrize(("shards", "limit"), [(1, 50), (4, 2)])
def test_lists_go_state_by_state_in_order(world: World, shards: int, limit: int) -> None:
    queue, ids = filled(world, shards=shards)
    expected = {
        ("READY",): ids["READY"],
        ("SCHEDULED",): ids["SCHEDULED"],
        ("ENQUEUED",): ids["READY"] + ids["SCHEDULED"],
        ("READY", "SCHEDULED"): ids["READY"] + ids["SCHEDULED"],
        ("pending",): ids["READY"] + ids["SCHEDULED"] + ids["INFLIGHT"],
        ("failed", "running"): ids["INFLIGHT"] + ids["DEAD"],
        ("SUCCEEDED", "DEAD", "INFLIGHT"): ids["INFLIGHT"] + ids["DEAD"] + ids["SUCCEEDED"],
    }
    expected[()] = ids["READY"] + ids["SCHEDULED"] + expected["SUCCEEDED", "DEAD", "INFLIGHT"]

    for states, tasks in expected.items():
        listed = everything(world, queue, where=TaskFilter(states), limit=limit)
        # Equal times (one report call, one instant) come in the order of their ids.
        assert sorted(listed) == sorted(tasks)
        assert world.use.inspect.count(queue, TaskFilter(states)).count == len(tasks)
        if shards == 1 or states in (("READY",), ("SCHEDULED",), ("ENQUEUED",)):
            waiting = [task for task in listed if task in ids["READY"] + ids["SCHEDULED"]]
            assert waiting == [task for task in tasks if task in waiting]
    assert (
        everything(world, queue, where=TaskFilter(("ENQUEUED",)), limit=limit, descending=True)
        == expected["ENQUEUED",][::-1]
    )
    assert world.use.inspect.count(queue).by_state == {
        State.ENQUEUED: 10,
        State.INFLIGHT: 5,
        State.SUCCEEDED: 5,
        State.DEAD: 5,
    }


def test_a_purge_removes_the_states_it_names_and_nothing_later(world: World) -> None:
    queue, ids = filled(world, shards=2)

    purged = world.use.queues.purge(queue, (State.DEAD, State.ENQUEUED))

    assert (purged.deleted, purged.finished) == (15, True)
    assert sorted(everything(world, queue)) == sorted(ids["INFLIGHT"] + ids["SUCCEEDED"])
    world.put(queue)
    assert world.use.inspect.count(queue).count == 11


def test_a_task_purged_while_in_flight_answers_not_found(world: World) -> None:
    queue = world.queue()
    world.put(queue)
    task = world.one(queue)
    world.use.queues.purge(queue, SHOWN_STATES)

    assert world.say(task, "SUCCEEDED").outcome is ReportOutcome.NOT_FOUND


def test_a_deleted_queue_is_gone_with_its_tasks_and_its_name_is_free(world: World) -> None:
    queue, ids = filled(world, shards=2)

    assert world.use.queues.delete(queue)

    with pytest.raises(NotFound):
        world.use.queues.get(queue)
    assert world.store.read([task for tasks in ids.values() for task in tasks]) == {}
    world.queue(queue)
    assert world.use.inspect.count(queue).count == 0


def test_what_a_purge_leaves_undone_the_reaper_finishes(world: World) -> None:
    queue = world.queue()
    for _ in range(12):
        world.put(queue, *["1"] * 25)
    kept = world.queue("kept")
    world.put(kept)
    world.use.jobs.patience = 0

    assert not world.use.queues.delete(queue)
    with pytest.raises(QueueExists, match="still being deleted"):
        world.queue(queue)
    assert world.use.reaping.run().purged > 0

    world.queue(queue)
    assert world.use.inspect.count(queue).count == 0
    assert world.use.inspect.count(kept).count == 1


def test_latecomers_to_a_deleted_queue_are_swept_and_those_to_a_new_one_stay(world: World) -> None:
    """Another process may enqueue with settings it read just before the deletion."""
    queue = world.queue()
    other = new_world(world.store, world.clock)
    other.use.queues.cache_seconds = 60
    other.use.queues.cached(queue)
    world.use.queues.delete(queue)
    (late,) = other.put(queue)
    world.clock.forward(20)
    world.queue(queue)
    (fresh,) = world.put(queue)
    world.clock.forward(100)
    world.use.reaping.run()
    assert [task.id for task in world.use.inspect.list(queue).tasks] == [fresh]
    with pytest.raises(NotFound):
        world.see(late)


def test_shards_may_grow_and_shrink_and_strand_nothing(world: World) -> None:
    queue = world.queue(shards=4)
    world.put(queue, *["1"] * 25)
    world.use.queues.replace(queue, QueueSettings(shards=1))
    world.put(queue, *["2"] * 25)

    taken = [*world.take(queue, 25), *world.take(queue, 25)]

    assert sorted(str(task.payload) for task in taken) == ["1"] * 25 + ["2"] * 25
    for task in taken:
        assert world.say(task, "SUCCEEDED").outcome is ReportOutcome.OK
    assert world.use.inspect.count(queue).by_state[State.SUCCEEDED] == 50


def client_that_hangs_up_after(checks: int) -> Timed:
    """Return the context of a call whose client has disconnected after so many checks."""
    numbers = itertools.count()
    return cast(
        "Timed",
        SimpleNamespace(
            get_remaining_time_in_millis=lambda: 0, client_gone=lambda: next(numbers) >= checks
        ),
    )


@pytest.mark.gate
def test_what_was_leased_meanwhile_goes_back_with_no_attempt_used(world: World) -> None:
    queue = world.queue()
    ids = world.put(queue, *["1"] * 3)

    with in_time(client_that_hangs_up_after(1)):
        found = world.use.deliveries.dequeue(queue, batch_size=3, wait_seconds=20)

    assert found.tasks == ()
    assert {world.see(one).state for one in ids} == {State.ENQUEUED}
    assert [(task.id, task.attempts) for task in world.take(queue, 3)] == [(one, 1) for one in ids]


def test_settings_of_groups_that_cannot_be_are_refused(world: World) -> None:
    halting = GroupSettings(GroupMode.STRICT, on_dead=OnDead.HALT)
    with pytest.raises(InvalidRequest, match=r"groups\.on_dead"):
        world.queue(groups=halting, dead_letter_queue_config=DeadLetterConfig(enable=False))
    with pytest.raises(InvalidRequest, match="name"):
        world.queue("no name")
    world.queue("plain")
    with pytest.raises(InvalidRequest, match=r"groups\.mode"):
        world.use.queues.replace("plain", QueueSettings(groups=halting))
