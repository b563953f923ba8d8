"""An index that lags: nothing is delivered twice, taken back or removed by what it remembers."""

from collections import Counter
from collections.abc import Callable

import pytest

from headrace.domain.plan import TaskSpec
from headrace.domain.task import State, Task
from headrace.ops.delivery.reports import ReportOutcome
from headrace.store.dynamo import Sender
from tests.contract.conftest import World
from tests.contract.faults.service import AN_HOUR, FaultyService, everything


@pytest.fixture
def sender() -> Sender:
    """Send as it is wired: what is listed hangs on no sender."""
    return "batch"


def test_a_lagging_index_never_delivers_twice(
    service: FaultyService, world: World, new_service: Callable[[], FaultyService]
) -> None:
    queue = world.queue()
    ids = world.put(queue, *["{}"] * 40)
    other = new_service()
    service.client.freeze_index(service.tables.tasks)
    other.client.freeze_index(service.tables.tasks)

    delivered: list[Task] = []
    with service.suffering(stale=1), other.suffering(stale=1):
        for _ in range(6):
            delivered += [*world.take(queue, 5), *other.world.take(queue, 5)]

    assert len({task.id for task in delivered}) == len(delivered)
    while tasks := [*world.take(queue, 25), *other.world.take(queue, 25)]:
        delivered += tasks
    assert Counter(task.id for task in delivered) == Counter(ids)
    assert {task.attempts for task in delivered} == {1}


def test_a_lagging_index_hides_no_task_for_good(service: FaultyService, world: World) -> None:
    queue = world.queue()
    service.client.freeze_index(service.tables.tasks)
    world.put(queue, "1")

    with service.suffering(stale=1):
        assert world.take(queue) == ()

    assert world.one(queue).payload == "1"


def test_what_came_back_for_later_is_not_delivered_by_an_index_that_lags(
    service: FaultyService, world: World, new_service: Callable[[], FaultyService]
) -> None:
    queue = world.queue()
    world.put(queue)
    other = new_service()
    other.client.freeze_index(service.tables.tasks)
    world.say(world.one(queue), "RELEASED", delay_in_seconds=60)

    with other.suffering(stale=1):
        assert other.world.take(queue) == ()


def test_the_reaper_takes_back_nothing_that_only_a_lagging_index_has_lapse(
    service: FaultyService, world: World, new_service: Callable[[], FaultyService]
) -> None:
    queue = world.queue(keepalive_timeout_in_seconds=5)
    world.put(queue, "1", "2", "3")
    renewed, done, again = world.take(queue, 3)
    reaper = new_service()
    reaper.client.freeze_index(service.tables.tasks)
    world.clock.forward(4)
    world.say(renewed, "INFLIGHT")
    world.say(done, "SUCCEEDED")
    world.say(again, "RELEASED")
    world.clock.forward(2)
    (again,) = world.take(queue)
    before = everything(service)

    with reaper.suffering(stale=1):
        assert reaper.world.use.reaping.run().retried == 0

    assert everything(service) == before
    assert again.attempts == 1


@pytest.mark.parametrize(("at_first", "then"), [(1, 3), (3, 1)])
def test_an_expiry_that_was_overwritten_counts_though_the_index_lags(
    service: FaultyService,
    world: World,
    new_service: Callable[[], FaultyService],
    at_first: int,
    then: int,
) -> None:
    queue = world.queue()
    world.put(queue, "1", dedupe_key="k", expires_at=world.clock() + at_first * AN_HOUR)
    other = new_service()
    other.client.freeze_index(service.tables.tasks)
    expires_at = world.clock() + then * AN_HOUR
    new = TaskSpec("1", dedupe_key="k", expires_at=expires_at, overwrite=frozenset({"expires_at"}))
    world.use.tasks.enqueue(queue, [new])
    world.clock.forward(2 * AN_HOUR.total_seconds())

    with other.suffering(stale=1):
        assert other.world.use.reaping.run().expired == 0
        assert other.world.take(queue) == ()  # by its index, or by the condition of the write

    delivered = world.take(queue)
    assert len(delivered) == (then == 3)


def test_a_purge_by_an_index_that_lags_removes_only_what_is_in_the_states_named(
    service: FaultyService, world: World, new_service: Callable[[], FaultyService]
) -> None:
    queue = world.queue()
    world.put(queue, "1", "2")
    other = new_service()
    other.client.freeze_index(service.tables.tasks)
    task = world.one(queue)

    with other.suffering(stale=1):
        assert other.world.use.queues.purge(queue, (State.ENQUEUED,)).deleted == 1

    assert world.say(task, "SUCCEEDED").outcome is ReportOutcome.OK


def test_a_purge_counts_nothing_that_only_a_lagging_index_still_shows(
    service: FaultyService, world: World, new_service: Callable[[], FaultyService]
) -> None:
    queue = world.queue(history_retention_in_seconds=0)
    world.put(queue, *["{}"] * 5)
    other = new_service()
    other.client.freeze_index(service.tables.tasks)
    for task in world.take(queue, 3):
        world.say(task, "SUCCEEDED")

    with other.suffering(stale=1):
        purged = [other.world.use.queues.purge(queue, (State.ENQUEUED,)) for _ in range(2)]

    assert [(of.deleted, of.finished) for of in purged] == [(2, True), (0, True)]


def test_a_purge_finds_what_the_index_did_not_show_at_first(
    service: FaultyService, world: World
) -> None:
    queue = world.queue()
    service.client.freeze_index(service.tables.tasks)
    hidden = world.put(queue)
    world.clock.forward(0.001)

    with service.suffering(stale=1):
        assert world.use.queues.purge(queue, (State.ENQUEUED,)).deleted == 0
    world.clock.forward(0.001)
    (later,) = world.put(queue)
    world.clock.forward(60)
    assert world.use.reaping.run().purged == 1

    assert set(world.store.read([*hidden, later])) == {later}


def test_a_list_by_an_index_that_lags_shows_nothing_in_a_state_it_is_not_in(
    service: FaultyService, world: World
) -> None:
    queue = world.queue()
    world.put(queue, "1", "2")
    service.client.freeze_index(service.tables.tasks)
    world.one(queue)

    with service.suffering(stale=1):
        listed = world.use.inspect.list(queue).tasks

    assert [(task.payload, task.state) for task in listed if task.payload] == []
    assert [task.state for task in listed] == [State.ENQUEUED]
