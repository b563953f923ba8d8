"""What every store promises of reports under a group lease, and of what else is in the queue."""

from collections.abc import Callable

import pytest

from headrace.domain.plan import TaskSpec
from headrace.domain.task import State, Task
from headrace.ops.delivery.reports import ReportOutcome, ReportStatus
from tests.contract.conftest import World, hooked
from tests.contract.groups import AT_ONCE, held, opened, settle


@pytest.mark.gate
def test_children_of_tasks_under_one_group_are_different_tasks(world: World) -> None:
    queue = world.queue()
    world.put(queue, "1", "2")
    group = opened(world)
    tasks = world.take(queue, 2, lease_id=group)
    spawn = ((queue, TaskSpec("{}")),)

    born = [
        world.say(task, "SUCCEEDED", lease=group, spawn=spawn).spawned[0]
        for task in (*tasks, *tasks)
    ]

    first, second, *repeated = [child.id for child in born]
    assert first != second
    assert repeated == [first, second]
    assert world.use.inspect.count(queue).by_state[State.ENQUEUED] == 2


def test_a_repeated_report_does_not_touch_the_next_delivery_under_the_same_group(
    world: World,
) -> None:
    queue = world.queue(retry_strategy=AT_ONCE)
    world.put(queue)
    group = opened(world)
    first = world.one(queue, lease_id=group)
    assert settle(world, first, group, "RELEASED") is ReportOutcome.OK
    again = world.one(queue, lease_id=group)
    before = world.see(again.id)

    for status in ("RELEASED", "SUCCEEDED", "FAILED"):
        assert settle(world, first, group, status) is ReportOutcome.STALE_LEASE
    assert world.see(again.id) == before

    assert world.say(again, "SUCCEEDED").outcome is ReportOutcome.OK


def by_another_lease(world: World, queue: str) -> None:
    world.say(world.one(queue), "RELEASED")


def by_two_moves(world: World, queue: str) -> None:
    world.queue("other")
    world.say(world.one(queue), "MOVED", to_queue="other")
    world.say(world.one("other"), "MOVED", to_queue=queue)


@pytest.mark.parametrize(
    "between",
    [by_another_lease, by_two_moves],
)
def test_a_late_report_does_not_touch_a_delivery_that_came_after_others(
    world: World, between: Callable[[World, str], None]
) -> None:
    queue = world.queue(retry_strategy=AT_ONCE)
    world.put(queue)
    group = opened(world)
    first = world.one(queue, lease_id=group)
    assert settle(world, first, group, "RELEASED") is ReportOutcome.OK
    between(world, queue)
    again = world.one(queue, lease_id=group)
    before = world.see(again.id)

    for status in ("RELEASED", "SUCCEEDED", "FAILED", "INFLIGHT", "MOVED"):
        outcome = settle(world, first, group, status, to_queue=queue if status == "MOVED" else None)
        assert outcome is ReportOutcome.STALE_LEASE
    assert world.see(again.id) == before

    assert world.say(again, "SUCCEEDED").outcome is ReportOutcome.OK


@pytest.mark.gate
def test_two_that_work_under_one_group_never_get_the_same_task(world: World) -> None:
    """What another has won looks much like a write of one's own whose answer was lost."""
    queue = world.queue()
    world.put(queue)
    group = opened(world)
    taken: list[Task] = []

    def other() -> None:
        taken.extend(world.take(queue, lease_id=group))

    assert hooked(world, before_commit=other).take(queue, lease_id=group) == ()
    assert len(taken) == 1


@pytest.mark.parametrize("status", [ReportStatus.SUCCEEDED, ReportStatus.MOVED])
def test_zombies_lose(world: World, status: ReportStatus) -> None:
    queue = world.queue(retry_strategy=AT_ONCE)
    world.queue("other")
    world.put(queue)
    group = opened(world)
    old = world.one(queue, lease_id=group)
    world.clock.forward(61)
    world.use.reaping.run()
    fields = {"to_queue": "other"} if status is ReportStatus.MOVED else {}

    waiting = world.see(old.id)
    assert settle(world, old, group, status, **fields) is ReportOutcome.NOT_INFLIGHT
    assert world.see(old.id) == waiting

    new = world.one(queue, lease_id=opened(world))
    assert settle(world, old, group, status, **fields) is ReportOutcome.STALE_LEASE
    assert world.see(old.id) == new


# -- together with everything else ------------------------------------------------------------


def test_a_retried_read_finds_what_its_first_attempt_leased(world: World) -> None:
    queue = world.queue(shards=2)
    ids = world.put(queue, *["{}"] * 30)
    group = opened(world)
    first = [task.id for task in world.take(queue, 25, lease_id=group)]
    world.clock.forward(30)
    world.use.leases.extend(group)
    world.clock.forward(31)

    recovered = [*held(world, group, queue, 0), *held(world, group, queue, 1)]
    rest = [task.id for task in world.take(queue, 25, lease_id=group)]

    assert sorted(recovered) == sorted(first)
    assert sorted([*recovered, *rest]) == sorted(ids)
    (task, *_) = world.use.leases.held(group, queue, 0)
    assert task.payload == "{}"
