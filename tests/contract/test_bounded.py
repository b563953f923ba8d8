"""How much one call looks at: so much and no more, whatever is asked, and the cursor goes on."""

from collections import Counter
from typing import Any

import pytest

from headrace.domain.filters import TaskFilter
from headrace.domain.operate import BulkAction
from headrace.domain.task import Task
from headrace.ops.operators import visibility
from headrace.ops.shared.audit import AuditFilter
from headrace.store.base import Record, Store
from headrace.store.memory import MemoryStore
from tests.contract.conftest import World, new_world
from tests.contract.test_keys import principal
from tests.manual_clock import ManualClock

TASKS = 500
SHARDS = 16


class TimedStore:
    """A store that counts its calls, and lets a time pass at each."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store, self.clock = store, clock
        self.calls: Counter[str] = Counter()
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.store, name)

        def counted(*given: Any, **named: Any) -> Any:
            self.calls[name] += 1
            self.clock.forward(self.seconds)
            return found(*given, **named)

        return counted


@pytest.fixture
def counting(clock: ManualClock) -> TimedStore:
    return TimedStore(MemoryStore(), clock)


@pytest.fixture
def counted(counting: TimedStore, clock: ManualClock) -> World:
    """Give a service whose calls of the store are counted, and a queue with many tasks."""
    store: Any = counting
    world = new_world(store, clock)
    world.queue(shards=SHARDS)
    for _ in range(TASKS // 25):
        world.put("mail", *["{}"] * 25)
    world.put("mail", tags={"a": "1"}, delay_in_seconds=60)
    counting.calls.clear()
    return world


RARE = TaskFilter(("ENQUEUED",), {"a": "1"})


def test_a_list_over_a_slow_table_ends_in_seconds_and_its_cursor_goes_on(
    counted: World, counting: TimedStore
) -> None:
    counting.seconds = 0.5
    found: list[Task] = []
    cursor, calls, began = None, 0, counted.clock()
    while True:
        page = counted.use.inspect.list("mail", RARE, limit=1, cursor=cursor)
        took, began = counted.clock() - began, counted.clock()
        assert took.total_seconds() <= 5 + (SHARDS + 2) * 0.5
        found += page.tasks
        cursor = page.cursor
        calls += 1
        if cursor is None:
            break

    assert len(found) == 1
    assert calls > 2


def test_an_action_whose_filter_means_little_ends_in_time_and_its_cursor_goes_on(
    counted: World, counting: TimedStore
) -> None:
    counting.seconds = 0.5
    counted.use.bulk.patience = 10
    changed, cursor, calls = 0, None, 0
    while calls == 0 or cursor is not None:
        began = counted.clock()
        answer = counted.use.bulk.by_filter("mail", BulkAction.DELETE, RARE, limit=1, cursor=cursor)
        assert (counted.clock() - began).total_seconds() <= 10 + (SHARDS + 6) * 0.5
        changed += answer.changed
        cursor = answer.cursor
        calls += 1

    assert changed == 1
    assert calls > 2


def test_the_audit_over_a_slow_table_ends_in_seconds(counted: World, counting: TimedStore) -> None:
    for _ in range(600):
        with counted.use.audit.action("pause", queue="mail"):
            pass
    counting.seconds = 3
    began = counted.clock()

    page = counted.use.audit.list(AuditFilter(action="purge"), limit=1)

    assert (page.shown, page.cursor is None) == ((), False)
    assert (counted.clock() - began).total_seconds() == 6


@pytest.mark.parametrize("slow", [False, True])
def test_a_list_of_what_few_may_see_ends_in_time_and_its_cursor_goes_on(
    counted: World, counting: TimedStore, *, slow: bool
) -> None:
    """Queues, keys and workers of others are looked at too, so many and no more in one call."""
    use = counted.use
    by = principal(counted, "*.own")
    for number in range(4_500):
        name = f"q{number:05}.other"
        counting.store.put_record(Record("queue", name, {}), replaces=None)
    counted.queue("z.own")
    counting.seconds = 2 if slow else 0
    shown, cursor, calls = [], None, 0
    while calls == 0 or cursor is not None:
        began = counted.clock()
        counting.calls.clear()
        page = visibility.queues(use.queues, by, limit=1, cursor=cursor)
        assert counting.calls["records"] <= 10
        assert (counted.clock() - began).total_seconds() <= 6
        shown += [queue.name for queue in page.shown]
        cursor = page.cursor
        calls += 1
        assert calls < 20

    assert shown == ["z.own"]
    assert calls >= 3
