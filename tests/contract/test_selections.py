"""Sets of tasks that are looked at first and acted on after: what is touched is what was seen."""

from typing import Any

import pytest

from headrace.domain.errors import Unavailable
from headrace.domain.filters import TaskFilter
from headrace.domain.operate import BulkAction
from headrace.domain.task import State
from headrace.ops.delivery.reports import WorkerError
from headrace.store.records.actions import Action
from tests.contract.conftest import World, dies, hooked

DEAD = TaskFilter(states=("DEAD",))


def kill(world: World, queue: str, count: int, kind: str = "Timeout") -> list[str]:
    """Enqueue tasks where none is ready, and let them die."""
    ids = world.put(queue, *["{}"] * count)
    while tasks := world.take(queue, 25):
        for task in tasks:
            world.say(task, "FAILED", error=WorkerError(kind, "no", ""), retryable=False)
    return ids


def seen(world: World, found: Action) -> Action:
    """Have the service finish a dry run."""
    world.use.action_work.run()
    return world.use.actions.get(found.id, dry_run=True)


def act(world: World, found: Action, **more: Any) -> Action:
    """Begin an action on a set, have the service do it, and return how it ended."""
    run = world.use.actions.confirm(found, **more)
    world.use.action_work.run()
    return world.use.actions.get(run.id)


def look(
    world: World, queue: str, where: TaskFilter = DEAD, action: BulkAction = BulkAction.RESTART
) -> Action:
    return seen(world, world.use.actions.look(action, [queue], where))


@pytest.mark.gate
def test_what_was_seen_is_restarted_and_counted(world: World) -> None:
    queue = world.queue()
    ids = kill(world, queue, 7)
    found = look(world, queue)

    assert (found.found, found.at, found.started_at) == (7, 0, None)
    assert len(world.use.actions.samples(found)) == 5
    done = act(world, found)
    assert (done.status, done.changed, done.left) == ("DONE", 7, {})
    assert {world.see(task).state for task in ids} == {State.ENQUEUED}


def test_what_comes_after_the_look_is_never_touched(world: World) -> None:
    queue = world.queue()
    kill(world, queue, 3)
    found = look(world, queue)
    later = kill(world, queue, 4)
    act(world, found)

    assert {world.see(task).state for task in later} == {State.DEAD}


def test_a_task_that_left_and_came_back_is_left_alone(world: World) -> None:
    queue = world.queue()
    [task] = kill(world, queue, 1)
    found = look(world, queue)
    world.use.bulk.by_ids(queue, BulkAction.RESTART, [task])
    kill(world, queue, 0)  # it dies again
    assert world.see(task).state is State.DEAD
    done = act(world, found)

    assert (done.changed, done.left) == (0, {"the task has changed": 1})
    assert world.see(task).state is State.DEAD


def test_a_few_are_acted_on_and_the_others_are_left_alone(world: World) -> None:
    queue = world.queue()
    kill(world, queue, 8)
    done = act(world, look(world, queue), most=5)

    assert (done.status, done.total, done.changed, done.found) == ("DONE", 5, 5, 8)
    assert world.use.inspect.count(queue, DEAD).count == 3


def test_what_is_confirmed_while_another_process_looks_for_work_is_done(world: World) -> None:
    queue = world.queue()
    kill(world, queue, 1)
    found = look(world, queue)
    other = hooked(world, before_put_record=lambda *_: world.use.action_work.run())
    run = other.use.actions.confirm(found)
    world.use.action_work.run()

    assert world.use.actions.get(run.id).status == "DONE"


def test_a_look_that_was_cut_off_is_continued_by_one_process_at_a_time(world: World) -> None:
    queue = world.queue()
    for _ in range(32):
        world.put(queue, *["{}"] * 25)
    world.clock.forward(1)
    found = world.use.actions.look(BulkAction.DELETE, [queue], TaskFilter(states=("ENQUEUED",)))
    dying = hooked(world, after_put_record=dies)
    with pytest.raises(Unavailable):
        dying.use.action_work.run()
    assert seen(world, found).status == "LOOKING"
    world.clock.forward(600)

    assert seen(world, found).total == 800
    assert not world.use.actions.any_unfinished(), "it waits for an operator"


def test_a_queue_that_is_deleted_while_it_is_looked_at_is_told_as_trouble(world: World) -> None:
    queue = world.queue()
    found = world.use.actions.look(BulkAction.DELETE, [queue], TaskFilter(states=("ENQUEUED",)))
    world.use.queues.delete(queue)
    world.clock.forward(60)
    stopped = seen(world, found)

    assert (stopped.status, stopped.audit) == ("FAILED", None)
    assert f"no queue {queue}" in stopped.trouble
