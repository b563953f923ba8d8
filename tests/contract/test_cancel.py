"""What every store promises about cancelling: a task ends where it is, once, and nobody has it."""

import pytest

from headrace.domain.operate import BulkAction
from headrace.domain.queue import DequeuingSettings
from headrace.domain.task import DeadReason, State
from headrace.ops.delivery.reports import ReportOutcome
from tests.contract.conftest import World
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
