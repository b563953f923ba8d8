"""Whole shards handed out at a time under a group, and many writes of one commit abreast."""

from datetime import timedelta

import pytest

from headrace.domain.errors import InvalidRequest, NotFound
from headrace.domain.push import Target
from headrace.domain.queue_settings import DequeuingSettings
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import State, Task
from headrace.domain.task_groups import GroupMode, GroupSettings
from headrace.ops.delivery.shard_deliveries import ShardDeliveries
from tests.contract.conftest import World

AT_ONCE = RetryStrategy(Backoff.FIXED, 3, 0)


@pytest.fixture
def shards(world: World) -> ShardDeliveries:
    return world.use.shard_deliveries


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


@pytest.mark.gate
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


def test_a_paused_queue_hands_out_no_shard_and_nothing_is_due(
    world: World, shards: ShardDeliveries
) -> None:
    world.put(world.queue(), "1")
    world.clock.forward(1)
    assert shards.contended("mail", 0)
    world.use.queues.pause("mail")
    world.clock.forward(60)

    assert not shards.due("mail")
    assert taken(world, shards) == []
    assert not shards.contended("mail", 0)


def test_a_shard_tells_how_many_tasks_wait_in_it(world: World, shards: ShardDeliveries) -> None:
    world.put(world.queue(), "1", "2")
    world.put("mail", "3", delay_in_seconds=600)
    world.clock.forward(1)

    assert shards.waiting("mail") == [2]
    assert shards.queries("mail") >= 1


def test_the_shards_of_a_queue_that_pushes_are_handed_out_to_nobody(
    world: World, shards: ShardDeliveries
) -> None:
    world.queue(target=Target(url="https://example.com/hook"))
    with pytest.raises(InvalidRequest, match="queue mail has a target"):
        shards.due("mail")


def test_a_task_of_a_shard_that_has_expired_is_dead_lettered(
    world: World, shards: ShardDeliveries
) -> None:
    world.queue()
    (late,) = world.put("mail", "1", expires_at=world.clock() + timedelta(seconds=10))
    (good,) = world.put("mail", "2")
    world.clock.forward(20)

    pages = taken(world, shards)

    assert [task.id for page in pages for task in page] == [good]
    assert world.see(late).state is State.DEAD


def test_a_shard_of_a_queue_whose_limit_is_reached_gives_no_more(
    world: World, shards: ShardDeliveries
) -> None:
    world.queue(dequeuing_settings=DequeuingSettings(max_inflight_tasks=2))
    world.put("mail", *"1234")

    assert [len(page) for page in taken(world, shards)] == [2]
    assert not shards.contended("mail", 0)


def test_what_is_due_in_a_fair_queue_is_found_behind_what_is_not(
    world: World, shards: ShardDeliveries
) -> None:
    world.queue(groups=GroupSettings(GroupMode.FAIR))
    world.put("mail", "1", group_key="a")
    world.clock.forward(10)
    before = world.clock() - timedelta(hours=1)

    assert shards.due("mail")
    assert not shards.due("mail", by=before)
    assert shards.waiting("mail") == [1]
