"""What reaper and recorder tell of themselves, for metrics: on every store."""

import pytest

from headrace.history.transitions import Event
from headrace.store.base import Store
from tests.contract.conftest import World
from tests.contract.test_recording import Recorder, new_recorder
from tests.manual_clock import ManualClock


@pytest.fixture
def it(store: Store, clock: ManualClock) -> Recorder:
    return new_recorder(store, clock)


def oldest_ready(world: World) -> float:
    return world.use.reaping.run().oldest_ready_seconds


def test_the_reaper_tells_how_long_the_oldest_ready_task_of_all_queues_has_waited(
    world: World,
) -> None:
    world.put(world.queue("mail"))
    world.clock.forward(40)
    world.put(world.queue("other"))
    world.clock.forward(2)

    assert oldest_ready(world) == pytest.approx(42)


def test_the_recorder_tells_what_happened_once_however_often_it_comes(it: Recorder) -> None:
    queue = it.world.queue()
    it.world.put(queue, "{}", "{}")
    it.world.say(it.world.one(queue), "FAILED", retryable=False)
    changes = it.stream.taken()

    assert it.record(changes).events == {
        Event.ENQUEUED: 2,
        Event.STARTED: 1,
        Event.FAILED: 1,
        Event.DEAD: 1,
    }
    assert it.record(changes).events == {}
