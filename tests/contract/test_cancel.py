"""What every store promises about cancelling: a task ends where it is, once, and nobody has it."""

import pytest

from headrace.domain.errors import Finished, NotFound
from headrace.domain.filters import TaskFilter
from headrace.domain.operate import BulkAction
from headrace.domain.queue import DeadLetterConfig, DequeuingSettings
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


def test_what_has_ended_otherwise_is_not_cancelled(world: World) -> None:
    queue = world.queue()
    world.put(queue, "1", "2")
    done, dead = world.take(queue, 2)
    world.say(done, "SUCCEEDED")
    world.say(dead, "FAILED", retryable=False)

    with pytest.raises(Finished, match="SUCCEEDED"):
        cancel(world, done.id)
    with pytest.raises(Finished, match="rejected"):
        cancel(world, dead.id)
    with pytest.raises(NotFound):
        cancel(world, "nobody")


def test_where_no_dead_are_kept_a_cancelled_task_is_gone(world: World) -> None:
    queue = world.queue(dead_letter_queue_config=DeadLetterConfig(enable=False))
    world.put(queue)
    task = world.one(queue)

    assert cancel(world, task.id) is None

    assert world.say(task, "INFLIGHT").outcome is ReportOutcome.NOT_FOUND
    with pytest.raises(NotFound):
        world.see(task.id)


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


def test_many_are_cancelled_by_their_ids_or_by_a_filter(world: World) -> None:
    queue = world.queue()
    world.put(queue, "1", "2", "3", tags={"customer": "acme"})
    world.clock.forward(1)
    world.put(queue, "4", "5", tags={"customer": "other"})
    taken, done = world.take(queue, 2)
    world.say(done, "SUCCEEDED")

    named = world.use.bulk.by_ids(queue, CANCEL, [taken.id, done.id, "nobody"])
    assert [one.outcome for one in named.results] == ["CANCELLED", "SKIPPED", "NOT_FOUND"]

    where = TaskFilter(tags={"customer": "acme"})
    foreseen = world.use.bulk.by_filter(queue, CANCEL, where, dry_run=True)
    assert (foreseen.matched, foreseen.changed) == (1, 0)
    assert world.use.bulk.by_filter(queue, CANCEL, where).changed == 1
    assert world.use.bulk.by_filter(queue, CANCEL, TaskFilter()).changed == 2
    counts = world.use.inspect.count(queue).by_state
    assert (counts[State.DEAD], counts[State.SUCCEEDED]) == (4, 1)
