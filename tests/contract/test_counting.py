"""Counts are bounded: each step counts so much and no more, and the sum of the steps is right."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.domain.errors import InvalidRequest
from headrace.domain.filters import EVERY_TASK, TaskFilter
from headrace.domain.task import Place, State
from headrace.ops.tasks.inspect import Counted
from headrace.store.base import CountPage, Position
from headrace.store.memory import MemoryStore
from headrace.testing.conditions import START
from tests.contract.conftest import World, new_world
from tests.contract.test_bounded import TimedStore
from tests.contract.test_bounded import counted as counted_world
from tests.contract.test_bounded import counting as counting_store
from tests.manual_clock import ManualClock

counting, many = counting_store, counted_world

TAGGED = TaskFilter(tags={"kind": "even"})
READY = TaskFilter(states=("READY",))
FILTERS = {"all": EVERY_TASK, "by index": READY, "one by one": TAGGED}


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


def test_a_cursor_is_good_for_its_own_count_only(world: World, queue: str) -> None:
    world.queue("other")
    first = next(steps(world, queue, EVERY_TASK))
    listed = world.use.inspect.list(queue, limit=1)

    for name, where, cursor in (
        ("other", EVERY_TASK, first.cursor),
        (queue, READY, first.cursor),
        (queue, EVERY_TASK, listed.cursor),
        (queue, EVERY_TASK, "forged"),
    ):
        with pytest.raises(InvalidRequest) as refused:
            world.use.inspect.count(name, where, cursor=cursor)
        assert [error.field for error in refused.value.errors] == ["cursor"]


def test_a_count_over_a_slow_table_ends_in_seconds(many: World, counting: TimedStore) -> None:
    counting.seconds = 0.5
    numbers, cursor = 0, None
    while True:
        began = many.clock()
        step = many.use.inspect.count("mail", cursor=cursor)
        assert (many.clock() - began).total_seconds() <= 5 + 2 * 0.5
        numbers += step.count
        cursor = step.cursor
        if cursor is None:
            break

    assert numbers == 501


class Endless(MemoryStore):
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
