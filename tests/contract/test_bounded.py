"""How much one call looks at: so much and no more, whatever is asked, and the cursor goes on."""

import tracemalloc
from typing import Any

import pytest

from headrace.domain.filters import TaskFilter
from headrace.domain.task import Task
from headrace.ops.shared.audit import AuditFilter
from headrace.store.base import Store
from tests.contract.conftest import World, new_world
from tests.manual_clock import ManualClock

TASKS = 500
SHARDS = 16


class SlowStore:
    """A store in which each call takes *seconds*."""

    def __init__(self, store: Store, clock: ManualClock, seconds: float) -> None:
        self.store, self.clock, self.seconds = store, clock, seconds

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.store, name)
        if not callable(found):
            return found

        def call(*given: Any, **named: Any) -> Any:
            self.clock.forward(self.seconds)
            return found(*given, **named)

        return call


def slowed(world: World, seconds: float) -> World:
    """Return a service over the same store, in which each call of the store takes *seconds*."""
    store: Any = SlowStore(world.store, world.clock, seconds)
    return new_world(store, world.clock)


def full_queue(world: World) -> str:
    """Return a queue of many shards with one task that has a tag, among many without."""
    queue = world.queue(shards=SHARDS)
    for _ in range(TASKS // 25):
        world.put(queue, *["{}"] * 25)
    world.put(queue, tags={"a": "1"}, delay_in_seconds=60)
    return queue


def test_a_count_over_a_slow_table_ends_in_seconds_and_its_cursor_goes_on(world: World) -> None:
    queue = full_queue(world)
    slow = slowed(world, 0.5)
    numbers, cursor, calls = 0, None, 0
    while calls == 0 or cursor is not None:
        began = world.clock()
        step = slow.use.inspect.count(queue, cursor=cursor)
        assert (world.clock() - began).total_seconds() <= 5 + 2 * 0.5
        numbers, cursor, calls = numbers + step.count, step.cursor, calls + 1
    assert (numbers, calls > 1) == (TASKS + 1, True)


RARE = TaskFilter(("ENQUEUED",), {"a": "1"})


def test_a_list_over_a_slow_table_ends_in_seconds_and_its_cursor_goes_on(world: World) -> None:
    queue = full_queue(world)
    slow = slowed(world, 0.5)
    found: list[Task] = []
    cursor, calls = None, 0
    while calls == 0 or cursor is not None:
        began = world.clock()
        page = slow.use.inspect.list(queue, RARE, limit=1, cursor=cursor)
        assert (world.clock() - began).total_seconds() <= 5 + (SHARDS + 2) * 0.5
        found += page.tasks
        cursor, calls = page.cursor, calls + 1
    assert (len(found), calls > 2) == (1, True)


@pytest.mark.slow
def test_a_list_takes_the_same_memory_however_many_tasks_there_are(world: World) -> None:
    queue = world.queue(shards=2)
    for _ in range(100):
        world.put(queue, *["1"] * 25)

    def peak(pages: int) -> int:
        tracemalloc.start()
        cursor = None
        for _ in range(pages):
            cursor = world.use.inspect.list(queue, limit=100, cursor=cursor).cursor
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(2)  # warms up
    assert peak(25) < 2 * peak(2)


def test_the_audit_over_a_slow_table_ends_in_seconds(world: World) -> None:
    for _ in range(600):
        with world.use.audit.action("pause", queue="mail"):
            pass
    slow = slowed(world, 3)
    began = world.clock()
    page = slow.use.audit.list(AuditFilter(action="purge"), limit=1)
    assert (page.shown, page.cursor is None) == ((), False)
    assert (world.clock() - began).total_seconds() == 6
