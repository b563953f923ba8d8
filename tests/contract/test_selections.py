"""Sets of tasks that are looked at first and acted on after: what is touched is what was seen."""

from functools import partial
from typing import Any

import pytest

from headrace.domain.errors import Forbidden, Unavailable
from headrace.domain.filters import TaskFilter
from headrace.domain.operate import BulkAction
from headrace.domain.task import State
from headrace.ops.delivery.reports import WorkerError
from headrace.store.records.actions import ActionRun
from headrace.store.records.selections import TaskSelection
from tests.contract.conftest import World, dies, hooked

DEAD = TaskFilter(states=("DEAD",))


def kill(world: World, queue: str, count: int, kind: str = "Timeout") -> list[str]:
    """Enqueue tasks where none is ready, and let them die."""
    ids = world.put(queue, *["{}"] * count)
    while tasks := world.take(queue, 25):
        for task in tasks:
            world.say(task, "FAILED", error=WorkerError(kind, "no", ""), retryable=False)
    return ids


def all_of(world: World, found: TaskSelection) -> TaskSelection:
    while found.looking:
        found = world.use.selections.resume(found.name)
    return found


def act(world: World, found: TaskSelection, at: int = 0, **more: Any) -> ActionRun:
    """Begin an action on a set, have the service do it, and return how it ended."""
    run = world.use.actions.begin(found.name, at=at, **more)
    world.use.action_work.run()
    return world.use.actions.get(run.id)


def look(world: World, queue: str, where: TaskFilter = DEAD, **more: Any) -> TaskSelection:
    call = {"action": BulkAction.RESTART, "by": "ada", **more}
    return all_of(world, world.use.selections.look(queues=[queue], where=where, **call))


@pytest.mark.gate
def test_what_was_seen_is_restarted_and_counted(world: World) -> None:
    queue = world.queue()
    ids = kill(world, queue, 7)
    found = look(world, queue)

    assert (found.count, found.at, found.begun) == (7, 0, False)
    assert len(found.samples) == 5
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

    assert (done.changed, done.left) == (0, {"the task has changed meanwhile": 1})
    assert world.see(task).state is State.DEAD


def test_a_set_is_checked_each_time_it_is_read_and_with_the_target_it_is_to_have(
    world: World,
) -> None:
    queue, target = world.queue("from"), world.queue("to")
    kill(world, queue, 3)
    found = look(world, queue, action=BulkAction.MOVE)
    requested: list[tuple[str, ...]] = []

    def check(seen: TaskSelection) -> None:
        requested.append(seen.touches)
        if target in seen.touches:
            raise Forbidden("not there")

    sets, begin = world.use.selections, world.use.actions.begin
    with pytest.raises(Forbidden):
        begin(found.name, at=0, most=1, to_queue=target, check=check)
    assert requested == [(queue,), (queue, target)]
    assert not sets.get(found.name).begun
    begin(found.name, at=0, most=1, to_queue=target)
    for step in (sets.get, sets.resume, partial(begin, at=1)):
        with pytest.raises(Forbidden):
            step(found.name, check=check)
    assert sets.get(found.name).at == 1


def test_a_look_that_was_cut_off_is_gone_on_with_and_by_one_caller_at_a_time(world: World) -> None:
    queue = world.queue()
    for _ in range(32):
        world.put(queue, *["{}"] * 25)
    waiting = TaskFilter(states=("ENQUEUED",))
    call: dict[str, Any] = {
        "queues": [queue],
        "where": waiting,
        "action": BulkAction.DELETE,
        "by": "ada",
    }
    world.clock.forward(1)
    found = world.use.selections.look(**call)
    assert found.looking
    dying = hooked(world, after_put_record=dies)
    with pytest.raises(Unavailable):
        dying.use.selections.resume(found.name)
    busy = world.use.selections.resume(found.name)
    assert (busy.looking, busy.count) == (True, found.count)
    world.clock.forward(600)

    assert all_of(world, world.use.selections.resume(found.name)).count == 800


def test_a_queue_that_is_deleted_while_it_is_looked_at_is_told_as_trouble(world: World) -> None:
    queue = world.queue()
    for _ in range(32):
        world.put(queue, *["{}"] * 25)
    world.clock.forward(1)
    found = world.use.selections.look(
        queues=[queue],
        where=TaskFilter(states=("ENQUEUED",)),
        action=BulkAction.DELETE,
        by="ada",
    )
    world.use.queues.delete(queue)
    world.clock.forward(60)
    stopped = world.use.selections.resume(found.name)
    assert (stopped.looking, stopped.busy_until) == (True, None)
    assert f"no queue {queue}" in stopped.trouble
