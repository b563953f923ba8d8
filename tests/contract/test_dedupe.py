"""What every store promises about dedupe keys: one live holder per queue and key."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from headrace.domain import limits
from headrace.domain.plan import TaskSpec
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import DeadReason, State
from headrace.ops.delivery.reports import ReportOutcome
from headrace.ops.tasks.enqueue import EnqueueOutcome, EnqueueResult
from tests.contract.conftest import World

CREATED, DUPLICATE = EnqueueOutcome.CREATED, EnqueueOutcome.DUPLICATE


def put(
    world: World, queue: str, payload: str = "{}", key: str = "k", **fields: Any
) -> EnqueueResult:
    entry = TaskSpec(payload, dedupe_key=key, **fields)
    return world.use.tasks.enqueue(queue, [entry])[0]


def test_a_live_holder_keeps_others_out_and_is_named(world: World) -> None:
    queue, other = world.queue(), world.queue("other")
    first = put(world, queue)

    again = put(world, queue)

    assert (first.outcome, again.outcome, again.id) == (CREATED, DUPLICATE, first.id)
    assert put(world, queue, key="another").outcome is CREATED
    assert put(world, other).outcome is CREATED
    world.take(queue)
    assert put(world, queue).id == first.id  # in flight it still holds


@pytest.mark.parametrize("end", ["SUCCEEDED", "FAILED", "MOVED", "delete", "purge", "expire"])
def test_the_key_is_free_the_moment_its_holder_lives_no_more(world: World, end: str) -> None:
    queue = world.queue()
    world.queue("other")
    first = put(world, queue, expires_at=world.clock() + timedelta(seconds=60))
    fields: dict[str, Any] = {"FAILED": {"retryable": False}, "MOVED": {"to_queue": "other"}}
    if end in ("SUCCEEDED", "FAILED", "MOVED"):
        world.say(world.one(queue), end, **fields.get(end, {}))
    elif end == "delete":
        world.use.tasks.delete(str(first.id))
    elif end == "purge":
        world.use.queues.purge(queue, (State.ENQUEUED,))
    else:
        world.clock.forward(60)
        world.use.reaping.run()
        assert world.see(str(first.id)).dead_reason is DeadReason.EXPIRED

    assert world.store.key_locks(f"dedupe:{queue}") == {}
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


def test_a_retry_keeps_the_key(world: World) -> None:
    queue = world.queue(retry_strategy=RetryStrategy(Backoff.FIXED, base_seconds=10, jitter=0))
    first = put(world, queue)
    world.say(world.one(queue), "FAILED")
    assert put(world, queue).id == first.id

    world.clock.forward(10)
    world.one(queue)
    world.clock.forward(60)
    world.use.reaping.run()

    assert put(world, queue).id == first.id


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


def test_an_overwrite_that_would_expire_before_it_is_due_is_invalid(world: World) -> None:
    queue = world.queue()
    first = put(world, queue, '"old"', expires_at=world.clock() + timedelta(seconds=60))

    result = put(world, queue, delay_in_seconds=90, overwrite=frozenset({"scheduled_at"}))

    assert result.outcome is EnqueueOutcome.INVALID
    assert world.see(str(first.id)).due_at < world.clock() + timedelta(seconds=1)


def test_a_clients_id_is_looked_at_before_the_key(world: World) -> None:
    queue = world.queue()
    first = put(world, queue, id="order-1")

    assert put(world, queue, id="order-1").outcome is EnqueueOutcome.EXISTING
    assert put(world, queue, id="order-2").outcome is DUPLICATE
    assert put(world, queue, id="order-2").id == first.id
    assert "order-2" not in world.store.read(["order-2"])


def test_two_entries_of_one_call_with_one_key_are_one_task(world: World) -> None:
    queue = world.queue()

    results = world.use.tasks.enqueue(queue, [TaskSpec("1", dedupe_key="k")] * 2)

    assert [result.outcome for result in results] == [CREATED, DUPLICATE]
    assert world.use.inspect.count(queue).count == 1


def test_sixteen_callers_with_one_key_make_one_holder(world: World) -> None:
    queue = world.queue()
    with ThreadPoolExecutor(16) as pool:
        for number in range(3):
            results = list(pool.map(lambda _: put(world, queue, key=f"{number}"), range(16)))  # noqa: B023
            assert sorted(result.outcome for result in results) == [CREATED] + [DUPLICATE] * 15
            assert len({result.id for result in results}) == 1
    assert world.use.inspect.count(queue).count == 3


@pytest.mark.parametrize("spawned", [False, True], ids=["enqueued", "spawned"])
@pytest.mark.parametrize("kept", [60, 0], ids=["past its retention", "not kept"])
def test_an_id_that_nobody_sees_any_more_is_free_though_an_expired_task_holds_the_key(
    world: World, kept: int, *, spawned: bool
) -> None:
    """Neither has been swept up yet: the table takes its time, and the reaper comes each minute."""
    queue, parents = world.queue(history_retention_in_seconds=kept), world.queue("parents")
    put(world, queue, key="another", id="order-1")
    assert world.say(world.one(queue), "SUCCEEDED").outcome is ReportOutcome.OK
    world.clock.forward(limits.SPENT_SECONDS + 1)
    put(world, queue, expires_at=world.clock() + timedelta(seconds=10))
    world.clock.forward(10)
    new = TaskSpec('"new"', id="order-1", dedupe_key="k")

    if spawned:
        world.put(parents)
        (result,) = world.say(world.one(parents), "SUCCEEDED", spawn=((queue, new),)).spawned
    else:
        (result,) = world.use.tasks.enqueue(queue, [new])

    assert result.outcome is CREATED
    assert world.one(queue).payload == '"new"'
    twin = put(world, queue)
    assert (twin.outcome, twin.id) == (DUPLICATE, "order-1")
