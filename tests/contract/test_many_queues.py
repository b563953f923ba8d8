"""One dequeue of several queues: by preference, or whatever fell due first."""

from datetime import timedelta

import pytest

from headrace.domain.errors import LeaseLost, NotFound
from headrace.domain.queue_settings import IntervalUnit, RateLimiting
from headrace.domain.repeat import KeyedRequest
from headrace.domain.task import Task
from headrace.ops.delivery.dequeue import DequeueResult, Order
from headrace.ops.delivery.idempotency import DeliveryBatch
from tests.contract.conftest import World, lease_name
from tests.contract.groups import opened
from tests.contract.test_limits import at_most

NAMES = ("first", "second", "third")
ALL = list(NAMES)


def payloads(tasks: tuple[Task, ...]) -> list[str]:
    return [str(task.payload).strip('"') for task in tasks]


def by_due(world: World, count: int, queues: list[str] | None = None) -> list[str]:
    return payloads(world.take(queues or ALL, count, order=Order.DUE))


def take(world: World, count: int, **call: object) -> DequeueResult:
    world.clock.forward(0.001)
    return world.use.deliveries.dequeue(ALL, batch_size=count, **call)  # type: ignore[arg-type]  # as it is given


@pytest.fixture
def queues(world: World) -> list[str]:
    """Give three queues whose tasks fell due in turns: the last one's first, and so on."""
    for name in NAMES:
        world.queue(name)
    for number in range(3):
        for name in reversed(NAMES):
            world.put(name, f'"{name} {number}"')
            world.clock.forward(0.001)
    return ALL


@pytest.mark.gate
def test_a_later_queue_gives_what_those_before_do_not_have(world: World, queues: list[str]) -> None:
    found = take(world, 5, worker="ada:1")

    assert payloads(found.tasks) == ["first 0", "first 1", "first 2", "second 0", "second 1"]
    assert [task.queue for task in found.tasks] == ["first"] * 3 + ["second"] * 2
    for task in found.tasks:
        assert world.say(task, "SUCCEEDED").outcome == "OK"
    assert payloads(take(world, 25).tasks) == ["second 2", "third 0", "third 1", "third 2"]


def test_by_due_come_those_that_fell_due_first_of_all(world: World, queues: list[str]) -> None:
    assert by_due(world, 4) == ["third 0", "second 0", "first 0", "third 1"]
    assert by_due(world, 25) == ["second 1", "first 1", "third 2", "second 2", "first 2"]


def test_what_a_limited_queue_does_not_give_the_others_do(world: World) -> None:
    rate = RateLimiting(1, 1, IntervalUnit.HOURS)
    world.queue("first", dequeuing_settings=at_most(rate=rate))
    world.queue("second", dequeuing_settings=at_most(1))
    world.queue("third")
    for name in NAMES:
        world.put(name, *[f'"{name} {number}"' for number in range(5)])
        world.clock.forward(0.001)

    assert by_due(world, 4) == ["first 0", "second 0", "third 0", "third 1"]
    assert payloads(take(world, 4).tasks) == ["third 2", "third 3", "third 4"]


def test_where_one_queue_is_missing_nothing_is_leased(world: World, queues: list[str]) -> None:
    with pytest.raises(NotFound) as missing:
        world.use.deliveries.dequeue(["first", "nowhere"], batch_size=25, order=Order.DUE)

    assert [error.field for error in missing.value.errors] == ["queues[1]"]
    assert len(take(world, 25).tasks) == 9


def test_tasks_of_many_queues_go_under_one_lease(world: World, queues: list[str]) -> None:
    group = opened(world)

    found = take(world, 25, order=Order.DUE, lease_id=group)

    assert {lease_name(task) for task in found.tasks} == {group}
    assert len(found.tasks) == 9
    world.use.leases.close(group)
    assert len(take(world, 25).tasks) == 9
    with pytest.raises(LeaseLost):
        take(world, 25, lease_id=group)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("order", Order)
def test_a_repeat_gives_the_tasks_of_all_queues_in_the_same_order(
    world: World, queues: list[str], order: Order, *, grouped: bool
) -> None:
    group = {"lease_id": opened(world)} if grouped else {}

    def sent() -> DequeueResult:
        request = KeyedRequest("key_1", "k", "what")
        batch = DeliveryBatch(world.use, request, timedelta(seconds=9), grouped)
        return take(world, 5, order=order, batch=batch, **group)

    first, again = sent(), sent()

    assert again.replayed
    assert payloads(again.tasks) == payloads(first.tasks)
    assert [task.lease_id for task in again.tasks] == [task.lease_id for task in first.tasks]
