"""A dequeue takes lapsed leases back, whatever the process knows of them."""

import pytest

from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import Task
from headrace.store.sqlite import SqliteStore
from tests.contract.conftest import World, new_world
from tests.manual_clock import ManualClock

AT_ONCE = RetryStrategy(Backoff.FIXED, max_retries=9, base_seconds=0, jitter=0)


@pytest.fixture
def world() -> World:
    made = new_world(SqliteStore(":memory:"), ManualClock())
    made.queue(keepalive_timeout_in_seconds=5, retry_strategy=AT_ONCE)
    return made


def in_flight(world: World, count: int) -> list[Task]:
    tasks: list[Task] = []
    while len(tasks) < count:
        world.put("mail", *["1"] * min(25, count - len(tasks)))
        tasks += world.take("mail", 25)
    return tasks


def another(world: World) -> World:
    """Return another process over the same store."""
    return new_world(world.store, world.clock)


def test_all_leases_that_a_process_gave_out_and_heard_no_more_of_are_taken_back(
    world: World,
) -> None:
    in_flight(world, 20)
    world.clock.forward(5)

    assert len(world.take("mail", 25)) == 20


def test_a_process_that_knows_nothing_takes_a_few_back_at_once(world: World) -> None:
    in_flight(world, 3)
    world.clock.forward(5)

    assert len(another(world).take("mail", 25)) == 3


def test_of_many_that_it_does_not_know_it_takes_the_lapsed_back_at_its_second_call(
    world: World,
) -> None:
    in_flight(world, 20)
    world.clock.forward(5)
    other = another(world)

    assert [len(other.take("mail", 25)) for _ in range(2)] == [0, 20]


def test_a_lapsed_lease_among_long_tasks_is_found_by_who_gave_it_out(world: World) -> None:
    tasks = in_flight(world, 60)
    for task in tasks[:-1]:
        world.say(task, "INFLIGHT", keepalive=600)
    world.clock.forward(10)

    assert [task.id for task in world.take("mail", 25)] == [tasks[-1].id]
