"""An index that lags: nothing is delivered twice, taken back or removed by what it remembers."""

from collections.abc import Callable

import pytest

from headrace.domain.task import State
from headrace.store.dynamo import Sender
from tests.contract.conftest import World
from tests.contract.faults.service import FaultyService


@pytest.fixture
def sender() -> Sender:
    """Send as it is wired: what is listed hangs on no sender."""
    return "batch"


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
