"""Group leases on a bad day: an index that lags, answers that are lost, a table that throttles."""

from collections import Counter
from collections.abc import Callable

import pytest

from headrace.domain.errors import LeaseLost
from headrace.domain.lease import GroupState
from headrace.domain.task import State, Task
from headrace.ops.delivery.reports import ReportOutcome
from tests.contract.conftest import World
from tests.contract.faults.service import FaultyService, insisted, tasks_of
from tests.contract.groups import AT_ONCE, held, opened, settle


def test_a_closed_group_stays_until_a_lagging_index_shows_what_it_held(
    service: FaultyService, world: World
) -> None:
    queue = world.queue(keepalive_timeout_in_seconds=5)
    ids = world.put(queue, *["{}"] * 3)
    service.client.freeze_index(service.tables.tasks)
    group = opened(world, keepalive=3600)
    tasks = world.take(queue, 3, lease_id=group)
    settle(world, tasks[0], group, "SUCCEEDED")

    with service.suffering(stale=1):
        world.use.leases.close(group)
        assert world.use.reaping.run().released == 0
    assert {world.see(id_).state for id_ in ids[1:]} == {State.INFLIGHT}
    world.clock.forward(60)

    assert world.use.reaping.run().released == 2
    assert [(world.see(id_).state, world.see(id_).attempts) for id_ in ids[1:]] == [
        (State.ENQUEUED, 0)
    ] * 2


def test_a_group_that_lapsed_is_marked_though_the_index_shows_nothing_yet(
    service: FaultyService, world: World
) -> None:
    """A task that the index did not show to the first pass is taken back by a later one."""
    queue = world.queue(retry_strategy=AT_ONCE)
    world.put(queue, "1", "2")
    group = opened(world, keepalive=5)
    world.one(queue, lease_id=group)
    service.client.freeze_index(service.tables.tasks)
    late = world.one(queue, lease_id=group)
    world.clock.forward(6)

    with service.suffering(stale=1):
        assert world.use.reaping.run().retried == 1
    with pytest.raises(LeaseLost):
        world.use.leases.extend(group)

    assert world.use.reaping.run().retried == 1
    assert settle(world, late, group, "SUCCEEDED") is ReportOutcome.NOT_INFLIGHT


def test_a_lagging_index_takes_nothing_from_a_group_that_was_extended(
    service: FaultyService, world: World, new_service: Callable[[], FaultyService]
) -> None:
    queue = world.queue()
    world.put(queue, "1", "2")
    group = opened(world, keepalive=5)
    _, done = world.take(queue, 2, lease_id=group)
    reaper = new_service()
    reaper.client.freeze_index(service.tables.tasks)
    world.clock.forward(4)
    world.use.leases.extend(group)
    settle(world, done, group, "SUCCEEDED")
    world.clock.forward(4)

    with reaper.suffering(stale=1):
        assert reaper.world.use.reaping.run().retried == 0

    assert len(held(world, group, queue)) == 1


def test_what_was_leased_while_answers_were_lost_is_leased_once(
    service: FaultyService, world: World, new_service: Callable[[], FaultyService]
) -> None:
    queue = world.queue()
    ids = world.put(queue, *["{}"] * 20)
    other = new_service()
    with service.suffering(lost=1), other.suffering(lost=0.5):
        group = opened(world, "batch")
        handed_out: list[Task] = []
        for _ in range(4):
            handed_out += world.take(queue, 3, lease_id=group)
            handed_out += other.world.take(queue, 3, lease_id=group)
        world.use.leases.extend(group)
        done = [settle(world, task, group, "SUCCEEDED") for task in handed_out[:5]]
        failed = settle(world, handed_out[5], group, "FAILED")
        world.use.leases.close(group)

    assert Counter(task.id for task in handed_out) == Counter(ids)
    assert {*done, failed} == {ReportOutcome.OK}
    states = Counter(world.see(id_).state for id_ in ids)
    assert states == {State.SUCCEEDED: 5, State.ENQUEUED: 15}
    assert sum(world.see(id_).attempts for id_ in ids) == 6


def test_a_close_that_is_cut_short_is_finished_by_whoever_comes_next(
    service: FaultyService, world: World
) -> None:
    queue = world.queue()
    ids = world.put(queue, *["{}"] * 15)
    group = opened(world, keepalive=3600)
    with service.suffering(cut=0.2, away=0.1, throttled=0.2):
        for _ in range(40):
            tasks_of(lambda: world.take(queue, 5, lease_id=group))
        insisted(lambda: world.use.leases.close(group))
    world.use.reaping.run()

    stored = world.store.group(group)
    assert stored is not None
    assert stored.state is GroupState.CLOSED
    assert [(world.see(id_).state, world.see(id_).attempts) for id_ in ids] == [
        (State.ENQUEUED, 0)
    ] * 15
