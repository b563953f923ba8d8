"""What every store promises of what is deleted with an undo: hidden, and back as it was."""

from datetime import timedelta

import pytest
from msgspec import structs

from headrace.domain.errors import NotFound
from headrace.domain.filters import TaskFilter
from headrace.domain.operate import BulkAction, Undo
from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.retry import RetryStrategy
from headrace.domain.task import SHOWN_STATES, DeadReason, State, Task
from headrace.ops.delivery.reports import ReportOutcome
from headrace.ops.operators.bulk import BulkAnswer
from headrace.store.call_scope import metered
from tests.contract.conftest import World, hooked

DAY = 86_400
ALL = TaskFilter()


def delete(world: World, task_id: str, seconds: float = DAY) -> str:
    """Delete a task, and return what brings it back."""
    world.clock.forward(0.001)
    undo = world.use.tasks.delete(task_id, undo_in_seconds=seconds)
    assert undo is not None
    return undo.id


def back(world: World, undo_id: str) -> BulkAnswer:
    """Undo all of it."""
    world.clock.forward(0.001)
    answer = world.use.undos.undo(undo_id)
    assert answer.cursor is None
    return answer


def outcomes(answer: BulkAnswer) -> list[str]:
    return [one.outcome for one in answer.results]


def in_each_state(world: World, queue: str, **fields: str) -> dict[State, Task]:
    """Bring a task into each state."""
    world.put(queue, "1", "2", "3", "4", **fields)
    inflight, done, dead = world.take(queue, 3)
    world.say(done, "SUCCEEDED", result='"r"')
    world.say(dead, "FAILED", retryable=False)
    found = {task.state: task for task in world.use.inspect.list(queue, payload=True).tasks}
    assert found.keys() == set(SHOWN_STATES)
    assert found[State.INFLIGHT].id == inflight.id
    return found


def as_kept(task: Task) -> Task:
    """Return *task* without what a deletion and an undo may change."""
    return structs.replace(
        task, version=0, last_move="", lease_id=None, lease_expires_at=None, lease_length=None
    )


@pytest.mark.gate
@pytest.mark.parametrize("state", [State.ENQUEUED, State.SUCCEEDED, State.DEAD])
def test_deleting_and_undoing_leaves_a_task_as_it_was(world: World, state: State) -> None:
    task = in_each_state(world, world.queue())[state]

    undo = delete(world, task.id)
    assert outcomes(back(world, undo)) == ["RESTORED"]

    assert as_kept(world.see(task.id)) == as_kept(task)


@pytest.mark.gate
def test_what_was_in_flight_waits_again_due_now_and_the_attempt_does_not_count(
    world: World,
) -> None:
    queue = world.queue()
    task = in_each_state(world, queue)[State.INFLIGHT]

    back(world, delete(world, task.id))

    found = world.see(task.id)
    assert (found.state, found.attempts, found.due_at) == (State.ENQUEUED, 0, world.clock())
    assert found.lease_id is None
    assert world.say(task, "SUCCEEDED").outcome is ReportOutcome.NOT_INFLIGHT
    again = next(one for one in world.take(queue, 5) if one.id == task.id)
    assert again.attempts == 1


@pytest.mark.parametrize("how", ["delete", "purge"])
def test_n_retries_are_n_plus_one_deliveries_though_one_was_interrupted(
    world: World, how: str
) -> None:
    queue = world.queue(retry_strategy=RetryStrategy(max_retries=1, base_seconds=0, jitter=0))
    (task_id,) = world.put(queue)
    world.say(world.one(queue), "FAILED")
    world.one(queue)
    world.clock.forward(0.001)
    undo: Undo | None
    if how == "delete":
        undo = world.use.tasks.delete(task_id, undo_in_seconds=60)
    else:
        undo = world.use.queues.purge(queue, (State.INFLIGHT,), undo_in_seconds=60).undo
    assert undo is not None
    back(world, undo.id)
    last = world.one(queue)
    assert last.attempts == 2
    world.say(last, "FAILED")
    assert world.see(task_id).dead_reason is DeadReason.EXHAUSTED


def test_a_deleted_task_is_hidden_from_everybody(world: World) -> None:
    queue = world.queue()
    tasks = in_each_state(world, queue)
    for task in tasks.values():
        delete(world, task.id)

    assert world.use.inspect.list(queue).tasks == ()
    assert set(world.use.inspect.count(queue).by_state.values()) == {0}
    assert world.use.inspect.count(queue).by_state.keys() == set(SHOWN_STATES)
    assert world.take(queue, 5) == ()
    assert world.say(tasks[State.INFLIGHT], "SUCCEEDED").outcome is ReportOutcome.NOT_FOUND
    for task in tasks.values():
        with pytest.raises(NotFound):
            world.see(task.id)
        with pytest.raises(NotFound):
            world.use.cancelling.cancel(task.id)
        with pytest.raises(NotFound):
            world.use.tasks.delete(task.id)
    for action in BulkAction:
        ids = [task.id for task in tasks.values()]
        named = world.use.bulk.by_ids(queue, action, ids, to_queue=None)
        assert set(outcomes(named)) == {"NOT_FOUND"}
    world.clock.forward(60)
    world.use.reaping.run()
    assert world.use.inspect.list(queue).tasks == ()


def test_an_undo_twice_is_an_undo_once(world: World) -> None:
    queue = world.queue()
    (task_id,) = world.put(queue)
    undo = delete(world, task_id)
    back(world, undo)
    before = world.see(task_id)

    again = back(world, undo)

    assert (again.changed, outcomes(again)) == (0, ["SKIPPED"])
    assert world.see(task_id) == before


def test_after_its_time_nothing_can_be_undone(world: World) -> None:
    queue = world.queue()
    (task_id,) = world.put(queue)
    undo = delete(world, task_id, seconds=60)
    world.clock.forward(60)

    with pytest.raises(NotFound, match="or it is over"):
        world.use.undos.undo(undo)
    with pytest.raises(NotFound):
        world.see(task_id)
    with pytest.raises(NotFound):
        world.use.undos.undo("und_nothing")


def test_its_id_is_free_and_a_new_task_under_it_is_left_alone(world: World) -> None:
    queue = world.queue()
    (task_id,) = world.put(queue, "1", id="order-1")
    undo = delete(world, task_id)
    made = world.use.tasks.enqueue(queue, [TaskSpec('"new"', id="order-1")])[0]
    assert made.outcome == "CREATED"
    assert outcomes(back(world, undo)) == ["SKIPPED"]
    assert (world.see("order-1").payload, world.see("order-1").state) == ('"new"', State.ENQUEUED)


def test_its_dedupe_key_is_free_and_a_new_holder_keeps_it(world: World) -> None:
    queue = world.queue()
    (task_id,) = world.put(queue, dedupe_key="k")
    undo = delete(world, task_id)
    (other,) = world.put(queue, dedupe_key="k")
    assert other != task_id

    answer = back(world, undo)
    assert [(one.outcome, one.detail) for one in answer.results] == [("SKIPPED", "dedupe_conflict")]

    world.use.tasks.delete(other)
    assert outcomes(back(world, undo)) == ["RESTORED"]
    (same,) = world.put(queue, dedupe_key="k")
    assert same == task_id, "it holds its key again"


def test_what_is_past_its_retention_meanwhile_stays_away(world: World) -> None:
    queue = world.queue(history_retention_in_seconds=100)
    (task_id,) = world.put(queue)
    world.say(world.one(queue), "SUCCEEDED")
    undo = delete(world, task_id)
    world.clock.forward(101)

    answer = back(world, undo)

    assert [(one.outcome, one.detail) for one in answer.results] == [
        ("SKIPPED", "the task is past its retention")
    ]


def test_many_are_brought_back_by_one_undo_over_all_pages(world: World) -> None:
    queue = world.queue(shards=2)
    ids = set(world.put(queue, *["1"] * 20))
    world.clock.forward(1)
    first = world.use.bulk.by_filter(queue, BulkAction.DELETE, ALL, limit=12, undo_in_seconds=DAY)
    world.clock.forward(1)
    rest = world.use.bulk.by_filter(queue, BulkAction.DELETE, ALL, cursor=first.cursor)
    assert (first.changed, rest.changed) == (12, 8)
    assert isinstance(first.undo, Undo)
    assert rest.undo == first.undo
    (other,) = world.put(queue)
    unrelated = delete(world, other)

    answer = back(world, first.undo.id)

    assert (answer.matched, answer.changed) == (20, 20)
    assert {one.id for one in answer.results} == ids
    assert {task.id for task in world.use.inspect.list(queue, limit=250).tasks} == ids
    again = back(world, first.undo.id)
    assert (again.matched, again.changed) == (0, 0)
    assert outcomes(back(world, unrelated)) == ["RESTORED"]


def test_a_purge_is_undone_too_whoever_has_finished_it(world: World) -> None:
    queue = world.queue()
    tasks = in_each_state(world, queue)
    purged = world.use.queues.purge(queue, (State.DEAD, State.SUCCEEDED), undo_in_seconds=DAY)
    assert (purged.deleted, purged.undo is not None) == (2, True)
    world.clock.forward(120)
    world.use.reaping.run()
    assert purged.undo is not None

    answer = back(world, purged.undo.id)

    assert answer.changed == 2
    for state in (State.DEAD, State.SUCCEEDED):
        assert as_kept(world.see(tasks[state].id)) == as_kept(tasks[state])


def test_a_deleted_queue_takes_along_what_could_be_undone(world: World) -> None:
    queue = world.queue()
    (task_id,) = world.put(queue)
    undo = delete(world, task_id)

    assert world.use.queues.delete(queue)

    assert world.store.tombstones([task_id]) == {}
    with pytest.raises(NotFound):
        world.use.undos.undo(undo)
    world.clock.forward(120)
    world.use.reaping.run()
    world.use.queues.create(queue, QueueSettings())
    with pytest.raises(NotFound, match="was deleted since"):
        world.use.undos.undo(undo)


def test_an_undo_costs_one_write_unit_more_for_each_task(world: World) -> None:
    queue = world.queue()
    ids = world.put(queue, *["1"] * 20)
    world.clock.forward(1)
    with metered() as plain:
        world.use.bulk.by_ids(queue, BulkAction.DELETE, ids[:10])
    with metered() as kept:
        world.use.bulk.by_ids(queue, BulkAction.DELETE, ids[10:], undo_in_seconds=DAY)

    # And one for the record of all; none where nobody counts them: in memory, and DynamoDB Local
    # of statements.
    assert kept.write - plain.write in (0, 1, 10 + 1)


def test_a_key_whose_new_holder_has_expired_goes_back_to_what_is_undone(world: World) -> None:
    queue = world.queue()
    (task_id,) = world.put(queue, dedupe_key="k")
    undo = delete(world, task_id)
    world.put(queue, dedupe_key="k", expires_at=world.clock() + timedelta(seconds=10))
    world.clock.forward(10)

    assert outcomes(back(world, undo)) == ["RESTORED"]
    assert world.put(queue, dedupe_key="k") == [task_id]


def test_an_undo_tells_whether_anything_is_left_of_it(world: World) -> None:
    queue, other = world.queue(), world.queue("other")
    remains = world.use.undos.remains
    world.put(other)
    (task_id,) = world.put(queue)
    named = delete(world, task_id)
    purged = world.use.queues.purge(other, (State.ENQUEUED,), undo_in_seconds=DAY).undo
    assert purged is not None
    assert not remains("und_nothing")
    assert remains(named)
    assert remains(purged.id)

    back(world, named)
    world.use.queues.delete(other)

    assert not remains(named)
    assert not remains(purged.id)
    world.clock.forward(120)
    world.use.reaping.run()
    world.queue(other)
    assert not remains(purged.id)


def test_a_task_that_moves_while_it_is_deleted_comes_back_where_it_was(world: World) -> None:
    queue, other = world.queue(), world.queue("other")
    (task_id,) = world.put(queue)
    task = world.one(queue)
    late = hooked(world, before_commit=lambda: world.say(task, "MOVED", to_queue=other))

    undo = late.use.tasks.delete(task_id, undo_in_seconds=DAY)

    assert undo is not None
    assert undo.queue == other
    assert outcomes(back(world, undo.id)) == ["RESTORED"]
    assert world.see(task_id).queue == other
