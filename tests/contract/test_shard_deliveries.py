"""Whole shards handed out at a time under a group, and many writes of one commit abreast."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from headrace.domain import settle
from headrace.domain.errors import LeaseLost, NotFound, Unavailable
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import DequeuingSettings, IntervalUnit, QueueSettings, RateLimiting
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.settle import Held
from headrace.domain.task import State, Task
from headrace.local.tables import DynamoDBClient, TableNames
from headrace.ops.delivery.shard_deliveries import ShardDeliveries
from headrace.runtime.wiring import Settings, build
from headrace.store.base import Done
from headrace.store.dynamo import DynamoStore
from tests.contract.conftest import World

AT_ONCE = RetryStrategy(Backoff.FIXED, 3, 0)


@pytest.fixture
def shards(world: World) -> ShardDeliveries:
    use = world.use
    return ShardDeliveries(
        world.store, use.queues, use.reaping, use.deliveries, use.leases, use.now
    )


def taken(
    world: World, shards: ShardDeliveries, *, count: int = 100, page: int = 7, lease: str = ""
) -> list[list[Task]]:
    """Return the pages that shard 0 of `mail` gives under a new group, or that of *lease*."""
    world.clock.forward(1)
    group = lease or world.use.leases.open(None, keepalive=30).id
    given = shards.dequeue(
        "mail", 0, count=count, worker="ada:1", lease_id=group, page=lambda: page
    )
    return list(given)


def test_a_shard_is_handed_out_in_order_page_by_page_and_no_further_than_asked(
    world: World, shards: ShardDeliveries
) -> None:
    ids = world.put(world.queue(), *("{}" for _ in range(25)))

    first = taken(world, shards, count=16)
    rest = taken(world, shards)

    assert [len(page) for page in first] == [7, 7, 2]
    assert [task.id for page in (*first, *rest) for task in page] == ids
    assert {task.attempts for page in rest for task in page} == {1}
    assert taken(world, shards) == []


def test_only_an_open_group_is_given_tasks(world: World, shards: ShardDeliveries) -> None:
    world.put(world.queue())
    group = world.use.leases.open(None, keepalive=30)
    world.use.leases.close(group.id)

    with pytest.raises(LeaseLost):
        taken(world, shards, lease=group.id)


def test_tasks_are_taken_by_id_whether_due_or_not_unless_something_has_changed_them(
    world: World, shards: ShardDeliveries
) -> None:
    queue = world.queue()
    changed, due = world.put(queue, "1", "2")
    (later,) = world.put(queue, delay_in_seconds=600)
    read = world.store.read([changed, due, later])
    world.say(world.one(queue), "RELEASED")
    world.use.queues.pause(queue)
    world.clock.forward(60)
    group = world.use.leases.open(None, keepalive=30).id

    mine = shards.take(queue, list(read.values()), worker="ada:1", lease_id=group)

    assert {task.id for task in mine} == {due, later}
    assert {(task.state, task.attempts) for task in mine} == {(State.INFLIGHT, 1)}
    assert (world.see(changed).state, world.see(changed).attempts) == (State.ENQUEUED, 0)


def test_tasks_are_taken_by_id_past_the_rate_of_their_queue_and_within_its_limit_in_flight(
    world: World, shards: ShardDeliveries
) -> None:
    slow = DequeuingSettings(3, RateLimiting(1, 3_600))
    world.use.queues.create("slow", QueueSettings(dequeuing_settings=slow))
    tasks = world.store.read(world.put("slow", *("{}" for _ in range(5))))
    world.clock.forward(1)
    group = world.use.leases.open(None, keepalive=30).id

    mine = shards.take("slow", list(tasks.values()), worker="ada:1", lease_id=group)

    assert len(mine) == 3


def test_what_expired_is_buried_and_not_handed_out(world: World, shards: ShardDeliveries) -> None:
    world.queue(expires_in_seconds=60)
    (old,) = world.put("mail")
    world.clock.forward(61)
    (new,) = world.put("mail")

    assert [task.id for page in taken(world, shards) for task in page] == [new]
    assert world.see(old).state is State.DEAD


def test_pauses_and_limits_hold_for_whole_shards_too(world: World, shards: ShardDeliveries) -> None:
    bucket = DequeuingSettings(rate_limiting=RateLimiting(5, 1, IntervalUnit.HOURS))
    world.put(world.queue(dequeuing_settings=bucket), *("{}" for _ in range(20)))

    limited = taken(world, shards)
    world.use.queues.pause("mail")

    assert sum(map(len, limited)) == 5
    assert taken(world, shards) == []
    assert not shards.due("mail")


def test_something_is_due_when_it_waits_or_its_lease_has_lapsed(
    world: World, shards: ShardDeliveries
) -> None:
    world.queue(retry_strategy=AT_ONCE)
    with pytest.raises(NotFound):
        shards.due("nowhere")
    assert not shards.due("mail")
    world.put("mail", delay_in_seconds=10)
    assert not shards.due("mail")

    world.clock.forward(11)
    assert shards.due("mail")
    assert not shards.due("mail", by=world.clock() - timedelta(hours=1))
    world.one("mail")
    assert not shards.due("mail")
    world.clock.forward(31)
    assert shards.due("mail")


class Lossy:
    """A client that lets down each call whose text names a task of *victims*."""

    def __init__(self, client: DynamoDBClient, victims: set[str]) -> None:
        self._client = client
        self.victims = victims

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def batch_execute_statement(self, **given: Any) -> Any:
        if any(victim in str(given) for victim in self.victims):
            raise Unavailable("away")
        return self._client.batch_execute_statement(**given)


@pytest.fixture
def abreast(dynamodb: DynamoDBClient, tables: TableNames) -> Callable[[set[str]], DynamoStore]:
    """Give a function that makes a store of four lanes that loses what names some tasks."""
    return lambda victims: DynamoStore(
        Lossy(dynamodb, victims),
        tasks_table=tables.tasks,
        control_table=tables.control,
        lanes=4,
    )


def test_many_changes_go_out_abreast_and_are_answered_in_order(
    abreast: Callable[[set[str]], DynamoStore],
) -> None:
    use = build(Settings(), abreast(set()))
    use.queues.create("mail", QueueSettings())

    results = use.tasks.enqueue("mail", [TaskSpec(str(n), id=f"t{n}") for n in range(130)])
    again = use.tasks.enqueue("mail", [TaskSpec(str(n), id=f"t{n}") for n in range(120, 140)] * 2)

    assert [result.id for result in results] == [f"t{n}" for n in range(130)]
    assert {str(result.outcome) for result in results} == {"CREATED"}
    assert [str(result.outcome) for result in again].count("CREATED") == 10


def test_when_one_of_several_requests_is_lost_the_caller_is_told_or_given_the_others(
    abreast: Callable[[set[str]], DynamoStore],
) -> None:
    lossy = abreast({"t130"})
    use = build(Settings(), abreast(set()))
    use.queues.create("mail", QueueSettings())
    use.tasks.enqueue("mail", [TaskSpec("1", id=f"t{n}") for n in range(100, 160)])
    tasks = use.deliveries.dequeue("mail", batch_size=60).tasks
    queue = use.queues.get("mail")
    changes = [settle.succeed(Held.of(task), queue, now=use.now(), result=None) for task in tasks]

    with pytest.raises(Unavailable):
        lossy.commit(changes)
    outcomes = lossy.commit(changes, partly=True)

    done = [isinstance(outcome, Done) for outcome in outcomes]
    assert not all(done)
    assert any(done)
