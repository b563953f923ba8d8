"""How much one call looks at: so much and no more, whatever is asked, and the cursor goes on."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from headrace.domain.filters import TaskFilter
from headrace.domain.task import Place, State, Task
from headrace.ops.tasks.inspect import Counted
from headrace.store.base import CountPage, Position, Store
from headrace.store.sqlite import SqliteStore
from headrace.testing.clock import START
from tests.contract.conftest import World, new_world
from tests.manual_clock import ManualClock
from tests.wrapped_store import WrappedStore

TASKS = 200
SHARDS = 16


def slowed(world: World, seconds: float) -> World:
    """Return a service over the same store, in which each call of the store takes *seconds*."""

    def around(_name: str, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        world.clock.forward(seconds)
        return call(*args, **named)

    return new_world(cast("Store", WrappedStore(world.store, around)), world.clock)


def full_queue(world: World) -> str:
    """Return a queue of many shards with one task that has a tag, among many without."""
    queue = world.queue(shards=SHARDS)
    for _ in range(TASKS // 25):
        world.put(queue, *["{}"] * 25)
    world.put(queue, tags={"a": "1"}, delay_in_seconds=60)
    return queue


RARE = TaskFilter(("ENQUEUED",), {"a": "1"})


@pytest.mark.in_process
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


TAGGED = TaskFilter(tags={"kind": "even"})
READY = TaskFilter(states=("READY",))
FILTERS = {"by index": READY, "one by one": TAGGED}


def steps(world: World, queue: str, where: TaskFilter) -> Iterator[Counted]:
    """Count in the smallest steps."""
    world.use.inspect.patience = -1
    cursor = None
    while True:
        step = world.use.inspect.count(queue, where, cursor=cursor)
        yield step
        cursor = step.cursor
        if cursor is None:
            return
        world.clock.forward(10)


def total(found: list[Counted]) -> Counter[State]:
    return sum((Counter(step.by_state) for step in found), Counter())


@pytest.fixture
def queue(world: World) -> str:
    """Give a queue of three shards with tasks in each state, every other one of a kind."""
    queue = world.queue(shards=3)
    for number in range(24):
        world.put(queue, tags={"kind": "odd" if number % 2 else "even"})
    for number, task in enumerate(world.take(queue, 12)):
        if number < 8:
            world.say(task, "SUCCEEDED" if number % 2 else "FAILED", retryable=False)
    world.put(queue, delay_in_seconds=60, tags={"kind": "even"})
    return queue


@pytest.mark.gate
@pytest.mark.parametrize("where", FILTERS.values(), ids=FILTERS)
def test_the_steps_of_a_count_add_up_to_what_one_call_counts(
    world: World, queue: str, where: TaskFilter
) -> None:
    whole = world.use.inspect.count(queue, where)

    found = list(steps(world, queue, where))

    assert len(found) > 2
    assert total(found) == +Counter(whole.by_state)
    assert [step.partial for step in found] == [True] * (len(found) - 1) + [False]
    # All steps count what was so when the first was: what has fallen due since is not ready.
    assert {step.as_of for step in found} == {whole.as_of}


class Endless(SqliteStore):
    """A store whose partitions have no end."""

    requested = 0

    def count(self, place: Place, **_given: Any) -> CountPage:
        self.requested += 1
        return CountPage(7_000, Position(START, str(self.requested)))


def test_a_call_counts_a_quarter_of_a_million_and_no_more(clock: ManualClock) -> None:
    store = Endless()
    world = new_world(store, clock)
    step = world.use.inspect.count(world.queue())

    assert (step.count, step.partial) == (252_000, True)
    assert store.requested == 36
