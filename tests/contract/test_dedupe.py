"""What every store promises about dedupe keys: one live holder per queue and key."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from headrace.domain import limits
from headrace.domain.errors import Unavailable
from headrace.domain.operate import BulkAction
from headrace.domain.plan import TaskSpec
from headrace.domain.retry import RetryStrategy
from headrace.domain.task import DeadReason, DedupeUntil, State
from headrace.ops.delivery.reports import ReportOutcome
from headrace.ops.tasks.enqueue import EnqueueOutcome, EnqueueResult
from headrace.store.sqlite import SqliteStore
from tests.contract.conftest import World, new_world, overtaken

CREATED, DUPLICATE = EnqueueOutcome.CREATED, EnqueueOutcome.DUPLICATE


def put(
    world: World, queue: str, payload: str = "{}", key: str = "k", **fields: Any
) -> EnqueueResult:
    entry = TaskSpec(payload, dedupe_key=key, **fields)
    return world.use.tasks.enqueue(queue, [entry])[0]


def with_fickle_key(world: World, queue: str) -> World:
    """Return another process that finds the key held at each write, and free when it looks."""
    held: list[EnqueueResult] = []

    def frees() -> None:
        if held:
            world.use.tasks.delete(str(held.pop().id))

    def takes() -> None:
        frees()
        held.append(put(world, queue))

    return overtaken(overtaken(world, "commit", takes), "key_lock", frees)


@pytest.mark.gate
def test_a_live_holder_keeps_others_out_and_is_named(world: World) -> None:
    queue, other = world.queue(), world.queue("other")
    first = put(world, queue)

    again = put(world, queue)

    assert (first.outcome, again.outcome, again.id) == (CREATED, DUPLICATE, first.id)
    assert put(world, queue, key="another").outcome is CREATED
    assert put(world, other).outcome is CREATED
    world.take(queue)
    assert put(world, queue).id == first.id  # in flight it still holds


@pytest.mark.parametrize("end", ["SUCCEEDED", "MOVED", "delete", "expire"])
@pytest.mark.gate
def test_the_key_is_free_the_moment_its_holder_lives_no_more(world: World, end: str) -> None:
    queue = world.queue()
    world.queue("other")
    first = put(world, queue, expires_at=world.clock() + timedelta(seconds=60))
    if end in ("SUCCEEDED", "MOVED"):
        world.say(world.one(queue), end, **({"to_queue": "other"} if end == "MOVED" else {}))
    elif end == "delete":
        world.use.tasks.delete(str(first.id))
    else:
        world.clock.forward(60)
        world.use.reaping.run()
        assert world.see(str(first.id)).dead_reason is DeadReason.EXPIRED

    second = put(world, queue)
    assert second.outcome is CREATED
    assert put(world, queue).id == second.id


def test_an_expired_holder_does_not_block_even_before_the_sweep(world: World) -> None:
    queue = world.queue()
    first = put(world, queue, expires_at=world.clock() + timedelta(seconds=10))
    world.clock.forward(10)

    second = put(world, queue)

    assert second.outcome is CREATED
    world.use.reaping.run()  # buries the first, which must not free what is the second's
    assert world.see(str(first.id)).state is State.DEAD
    assert put(world, queue).id == second.id


def test_a_duplicate_may_overwrite_what_it_names_while_the_holder_waits(world: World) -> None:
    queue = world.queue()
    first = put(world, queue, '"old"', tags={"a": "1"}, delay_in_seconds=100)

    result = put(
        world,
        queue,
        '"new"',
        tags={"b": "2"},
        delay_in_seconds=5,
        overwrite=frozenset({"payload", "scheduled_at"}),
    )

    assert (result.outcome, result.id) == (EnqueueOutcome.OVERWRITTEN, first.id)
    task = world.see(str(first.id))
    assert (task.payload, task.tags) == ('"new"', {"a": "1"})
    assert task.due_at == world.clock() + timedelta(seconds=5)
    world.clock.forward(5)
    world.one(queue)
    held = put(world, queue, '"newer"', overwrite=frozenset({"payload"}))
    assert (held.outcome, world.see(str(first.id)).payload) == (DUPLICATE, '"new"')


def test_sixteen_callers_with_one_key_make_one_holder(world: World) -> None:
    queue = world.queue()
    with ThreadPoolExecutor(16) as pool:
        for number in range(3):
            results = list(pool.map(lambda _: put(world, queue, key=f"{number}"), range(16)))  # noqa: B023
            assert sorted(result.outcome for result in results) == [CREATED] + [DUPLICATE] * 15
            assert len({result.id for result in results}) == 1
    assert world.use.inspect.count(queue).count == 3


def start(world: World, queue: str, **fields: Any) -> str:
    """Put a task whose key is free from its first delivery on; return its id."""
    made = put(world, queue, dedupe_until=DedupeUntil.START, **fields)
    assert made.outcome is CREATED
    return str(made.id)


def test_a_key_that_is_held_until_the_start_is_free_from_the_first_delivery_on(
    world: World,
) -> None:
    queue = world.queue()
    first = start(world, queue)
    waiting = put(world, queue, dedupe_until=DedupeUntil.START)
    assert (waiting.outcome, waiting.id) == (DUPLICATE, first)

    running = world.one(queue)

    second = start(world, queue)  # an event that came while the first ran
    assert (running.id, world.see(first).dedupe_key) == (first, "k")
    assert world.say(running, "SUCCEEDED").outcome is ReportOutcome.OK
    assert put(world, queue).id == second  # the first has not freed what is the second's
    world.say(world.one(queue), "SUCCEEDED")


@pytest.mark.parametrize("how", ["FAILED", "lapse"])
def test_a_retry_does_not_take_back_a_key_that_was_held_until_the_start(
    world: World, how: str
) -> None:
    queue = world.queue(retry_strategy=RetryStrategy(base_seconds=0, jitter=0))
    first = start(world, queue)
    task = world.one(queue, keepalive=10)
    if how == "lapse":
        world.clock.forward(10)
        world.use.reaping.run()
    else:
        world.say(task, how)

    assert world.see(first).state is State.ENQUEUED
    second = start(world, queue)
    assert {one.id for one in world.take(queue, 2)} == {first, second}


@pytest.mark.parametrize("how", ["restart", "undo"])
def test_a_restart_and_an_undo_take_a_key_that_was_held_until_the_start_again(
    world: World, how: str
) -> None:
    queue = world.queue()
    first = start(world, queue)
    task = world.one(queue)
    world.clock.forward(0.001)

    def again() -> str | None:
        if how == "restart":
            (done,) = world.use.bulk.by_ids(queue, BulkAction.RESTART, [first]).results
        else:
            (done,) = world.use.undos.undo(undo_id).results
        return done.detail

    if how == "restart":
        world.say(task, "SUCCEEDED")
    else:
        undo = world.use.tasks.delete(first, undo_in_seconds=600)
        undo_id = undo.id if undo else ""
    second = start(world, queue)
    world.clock.forward(0.001)
    assert again() == "dedupe_conflict"

    world.say(world.one(queue), "SUCCEEDED")
    assert world.see(second).state is State.SUCCEEDED
    assert again() is None
    assert put(world, queue).id == first
    world.use.tasks.delete(first)  # in its second life it has not started
    assert not world.store.key_locks(f"dedupe:{queue}")


def test_a_task_that_did_not_fit_the_answer_still_holds_its_key(world: World) -> None:
    queue = world.queue()
    large = f'"{"x" * (limits.PAYLOAD_BYTES - 2)}"'
    ids = [start(world, queue, payload=large, key=str(number)) for number in range(20)]
    given = {task.id for task in world.take(queue, 20)}
    assert 0 < len(given) < 20
    returned = next(number for number, name in enumerate(ids) if name not in given)
    assert put(world, queue, key=str(returned)).id == ids[returned]


# ------------------------------------------------------------------------------- unique in a window


def unique(world: World, queue: str, seconds: float = 3600, **fields: Any) -> EnqueueResult:
    return put(world, queue, unique_for=seconds, **fields)


def test_in_a_window_one_task_is_made_even_after_it_has_ended(world: World) -> None:
    queue, other = world.queue(), world.queue("other")
    first = unique(world, queue)
    assert (first.outcome, unique(world, queue).outcome) == (CREATED, EnqueueOutcome.EXISTING)
    world.say(world.one(queue), "SUCCEEDED")

    again = unique(world, queue)
    assert (again.outcome, again.id) == (EnqueueOutcome.EXISTING, first.id)
    assert unique(world, other).outcome is CREATED
    assert unique(world, queue, key="another").outcome is CREATED
    assert unique(world, queue, seconds=7200).outcome is CREATED
    world.clock.forward(3600)
    world.say(world.one(queue), "SUCCEEDED")
    world.say(world.one(queue), "SUCCEEDED")
    assert unique(world, queue).outcome is CREATED


def test_the_id_of_a_window_cannot_be_computed_without_the_secret(world: World) -> None:
    queue = world.queue()
    id_ = str(unique(world, queue).id)
    other = new_world(SqliteStore(), world.clock)
    other.queue(queue)

    assert unique(other, queue).id != id_


def test_a_task_of_another_queue_that_has_the_id_of_a_window_keeps_none_out(world: World) -> None:
    queue, other = world.queue(), world.queue("other")
    taken = str(unique(world, queue).id)
    world.use.tasks.delete(taken)
    world.put(other, id=taken)

    first, again = unique(world, queue), unique(world, queue)

    assert (first.outcome, again.outcome) == (CREATED, EnqueueOutcome.EXISTING)
    assert taken != first.id == again.id
    world.use.bulk.by_ids(queue, BulkAction.MOVE, [str(first.id)], to_queue=other)
    assert unique(world, queue).outcome is EnqueueOutcome.EXISTING  # it was there


def test_a_spawned_task_is_unique_in_its_window_too(world: World) -> None:
    queue = world.queue()
    world.put(queue, "1", "2")
    spawn = (("left", TaskSpec("1", dedupe_key="k", unique_for=3600)),)
    world.queue("left")
    one, two = world.take(queue, 2)

    first = world.say(one, "SUCCEEDED", spawn=spawn)
    world.say(world.one("left"), "SUCCEEDED")
    second = world.say(two, "SUCCEEDED", spawn=spawn)
    again = world.say(one, "SUCCEEDED", spawn=spawn)

    assert [child.outcome for child in first.spawned] == [CREATED]
    assert [child.outcome for child in second.spawned] == [EnqueueOutcome.EXISTING]
    assert [child.id for child in again.spawned] == [child.id for child in first.spawned]
    assert world.use.inspect.count("left").count == 1


def test_what_would_expire_before_it_is_due_is_not_overwritten(world: World) -> None:
    queue = world.queue()
    first = put(world, queue, '"old"', expires_at=world.clock() + timedelta(seconds=60))

    wrong = put(world, queue, '"new"', delay_in_seconds=100, overwrite=frozenset({"scheduled_at"}))

    assert (wrong.outcome, wrong.id) == (EnqueueOutcome.INVALID, first.id)
    assert "expires_at would not be after scheduled_at" in str(wrong.detail)


def test_a_task_whose_key_keeps_changing_hands_is_not_enqueued(world: World) -> None:
    queue = world.queue()
    with pytest.raises(Unavailable, match="the dedupe key keeps changing hands; try again"):
        put(with_fickle_key(world, queue), queue, "1")


def test_a_holder_that_keeps_changing_is_not_overwritten_and_keeps_its_key(world: World) -> None:
    queue = world.queue()
    first = put(world, queue, '"old"')
    other = overtaken(world, "commit", lambda: world.say(world.one(queue), "RELEASED"))

    with pytest.raises(Unavailable, match="the dedupe key keeps changing hands; try again"):
        put(other, queue, '"new"', overwrite=frozenset({"payload"}))

    assert world.use.inspect.count(queue).count == 1
    assert put(world, queue).id == first.id
