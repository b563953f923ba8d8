"""What every store promises about cancelling: a task ends where it is, once, and nobody has it."""

from datetime import timedelta

import pytest

from headrace.domain.errors import Finished, Unavailable
from headrace.domain.operate import BulkAction
from headrace.domain.queue_settings import DequeuingSettings
from headrace.domain.task import DeadReason, State
from headrace.ops.delivery.reports import ReportOutcome
from tests.contract.conftest import World, overtaken
from tests.contract.groups import opened

CANCEL = BulkAction.CANCEL


def cancel(world: World, task_id: str) -> State | None:
    """Cancel a task; None is one that its queue does not keep."""
    world.clock.forward(0.001)
    done = world.use.cancelling.cancel(task_id)
    return done.task.state if done.kept else None


@pytest.mark.gate
def test_a_waiting_task_that_is_cancelled_is_dead_and_never_delivered(world: World) -> None:
    queue = world.queue()
    (task_id,) = world.put(queue, '"x"')

    assert cancel(world, task_id) is State.DEAD

    task = world.see(task_id)
    assert (task.dead_reason, task.errors, task.attempts) == (DeadReason.CANCELLED, (), 0)
    assert task.finished_at == world.clock()
    assert task.payload == '"x"'
    assert world.take(queue, 5) == ()


@pytest.mark.parametrize("status", ["INFLIGHT", "SUCCEEDED"])
def test_the_worker_of_a_cancelled_task_has_no_say_any_more(world: World, status: str) -> None:
    queue = world.queue()
    world.put(queue)
    task = world.one(queue)

    assert cancel(world, task.id) is State.DEAD

    result = world.say(task, status)
    assert result.outcome is ReportOutcome.NOT_INFLIGHT
    assert result.task is not None
    assert result.task.dead_reason is DeadReason.CANCELLED
    assert world.see(task.id).state is State.DEAD


@pytest.mark.gate
@pytest.mark.parametrize("taken", [False, True], ids=["waiting", "in flight"])
def test_a_cancelled_task_gives_its_dedupe_key_back(world: World, *, taken: bool) -> None:
    queue = world.queue()
    (first,) = world.put(queue, dedupe_key="k")
    if taken:
        world.one(queue)

    cancel(world, first)

    (second,) = world.put(queue, dedupe_key="k")
    assert second != first


def test_a_cancelled_task_gives_its_place_in_flight_back(world: World) -> None:
    queue = world.queue(dequeuing_settings=DequeuingSettings(max_inflight_tasks=1))
    world.put(queue, "1", "2")
    first = world.one(queue)
    assert world.take(queue) == ()

    cancel(world, first.id)

    world.clock.forward(1)
    assert world.one(queue).id != first.id


def test_a_cancelled_task_can_be_restarted(world: World) -> None:
    queue = world.queue()
    (task_id,) = world.put(queue)
    cancel(world, task_id)

    world.use.bulk.by_ids(queue, BulkAction.RESTART, [task_id])

    task = world.one(queue)
    assert (task.id, task.dead_reason) == (task_id, None)


def test_the_holder_of_a_group_hears_which_of_its_tasks_were_cancelled(world: World) -> None:
    queue = world.queue()
    world.put(queue, "1", "2", "3", "4")
    group = opened(world)
    tasks = world.take(queue, 3, lease_id=group)
    (waiting,) = {task.id for task in world.use.inspect.list(queue).tasks} - {
        task.id for task in tasks
    }
    assert world.use.leases.extend(group).cancelled == frozenset()

    cancel(world, tasks[0].id)
    world.use.bulk.by_ids(queue, CANCEL, [tasks[1].id, waiting])

    expected = frozenset({tasks[0].id, tasks[1].id})
    assert world.use.leases.extend(group).cancelled == expected
    assert world.use.leases.extend(group).cancelled == expected, "until the group ends"
    assert world.say(tasks[2], "SUCCEEDED").outcome is ReportOutcome.OK


def test_a_task_that_keeps_changing_is_cancelled_by_nobody(world: World) -> None:
    """It is leased or released between each look at it and each try to end it."""
    queue = world.queue()
    (task_id,) = world.put(queue)

    def changes() -> None:
        task = world.see(task_id)
        if task.state is State.ENQUEUED:
            world.one(queue)
        else:
            world.say(task, "RELEASED")

    other = overtaken(world, "commit", changes)

    for cancelling in (other.use.cancelling.cancel, other.use.cancelling.end):
        with pytest.raises(Unavailable, match="the task keeps changing; try again"):
            cancelling(task_id)
    (outcome,) = other.use.bulk.by_ids(queue, CANCEL, [task_id]).results
    assert (outcome.outcome, outcome.detail) == ("SKIPPED", "the task keeps changing; try again")
    assert world.see(task_id).dead_reason is None


def test_what_has_expired_or_is_gone_is_not_cancelled(world: World) -> None:
    queue = world.queue()
    (task_id,) = world.put(queue, expires_at=world.clock() + timedelta(seconds=10))
    world.clock.forward(10)

    with pytest.raises(Finished, match="has expired"):
        cancel(world, task_id)
    assert not world.use.cancelling.end(task_id)
    assert not world.use.cancelling.end("nobody")
    (other,) = world.put(queue)
    assert world.use.cancelling.end(other)
    assert not world.use.cancelling.end(other)
