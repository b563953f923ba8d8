"""Group leases on a bad day: an index that lags, answers that are lost, a table that throttles."""

from headrace.domain.task import State
from tests.contract.conftest import World
from tests.contract.faults.service import FaultyService
from tests.contract.groups import opened, settle


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
