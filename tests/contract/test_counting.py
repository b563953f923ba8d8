"""Counts are bounded: each step counts so much and no more, and the sum of the steps is right."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.domain.filters import TaskFilter
from headrace.domain.task import Place, State
from headrace.ops.tasks.inspect import Counted
from headrace.store.base import CountPage, Position
from headrace.store.sqlite import SqliteStore
from headrace.testing.conditions import START
from tests.contract.conftest import World, new_world
from tests.manual_clock import ManualClock

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
