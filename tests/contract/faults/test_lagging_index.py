"""An index that lags: nothing is delivered twice, taken back or removed by what it remembers."""

from collections.abc import Callable

import pytest

from headrace.domain.plan import TaskSpec
from headrace.domain.task import State
from headrace.store.dynamo import Sender
from tests.contract.conftest import World
from tests.contract.faults.service import AN_HOUR, FaultyService


@pytest.fixture
def sender() -> Sender:
    """Send as it is wired: what is listed hangs on no sender."""
    return "batch"


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
