"""One tenant's hundred thousand tasks, and another's single one: how long that waits."""

import pytest

from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.task_groups import GroupMode, GroupSettings
from headrace.store.sqlite import SqliteStore
from tests.contract.conftest import World, new_world
from tests.manual_clock import ManualClock

WAITING = 100_000
PER_SECOND = 100
BATCH = 10
TRIES = 100


def crowded(groups: int) -> World:
    """Return a queue in which *groups* have so many tasks waiting together."""
    world = new_world(SqliteStore(":memory:"), ManualClock())
    fair = GroupSettings(GroupMode.FAIR)
    world.use.queues.create("mail", QueueSettings(expires_in_seconds=0, groups=fair))
    for number in range(WAITING // 25):
        of = f"tenant-{number % groups}"
        world.use.tasks.enqueue("mail", [TaskSpec("1", group_key=of)] * 25)
        world.clock.forward(0.001)
    return world


def waited(world: World, key: str) -> float:
    """Enqueue one task of another tenant, and return after how many seconds it is delivered."""
    world.use.tasks.enqueue("mail", [TaskSpec("1", group_key=key)])
    seconds = 0.0
    while True:
        world.clock.forward(BATCH / PER_SECOND)
        seconds += BATCH / PER_SECOND
        taken = world.use.deliveries.dequeue("mail", batch_size=BATCH).tasks
        assert len(taken) == BATCH, "something waits, and is not delivered"
        for task in taken:
            world.say(task, "SUCCEEDED")
        if key in [task.group_key for task in taken]:
            return seconds


@pytest.mark.slow
@pytest.mark.parametrize("groups", [10, 100])
def test_a_single_task_is_not_behind_a_hundred_thousand(groups: int) -> None:
    world = crowded(groups)
    for _ in range(20):  # as it goes, not as it began
        world.use.deliveries.dequeue("mail", batch_size=BATCH)
    seconds = sorted(waited(world, f"quiet-{number}") for number in range(TRIES))
    assert round(seconds[-2], 3) <= 1.0, f"median {seconds[50]:.1f} s, the last {seconds[-1]:.1f} s"
