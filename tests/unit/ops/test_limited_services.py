"""Queues with limits under many services, each with a memory of its own, over one store."""

import random
from datetime import timedelta

import pytest

from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import DequeuingSettings, QueueSettings, RateLimiting
from headrace.runtime.service import Service
from headrace.runtime.wiring import Settings, build
from headrace.store.sqlite import SqliteStore
from tests.manual_clock import ManualClock


def services(count: int, clock: ManualClock, limits: DequeuingSettings) -> list[Service]:
    """Return *count* services over one store, with a queue named mail."""
    store = SqliteStore(":memory:")
    made = [build(Settings(admin_key="test"), store, now=clock) for _ in range(count)]
    made[0].queues.create("mail", QueueSettings(dequeuing_settings=limits))
    return made


def fill(use: Service, count: int) -> None:
    for _ in range(count // 25):
        use.tasks.enqueue("mail", [TaskSpec("{}")] * 25)


@pytest.mark.parametrize("count", [1, 16])
def test_deliveries_come_at_the_rate_from_however_many_services(count: int) -> None:
    clock, chance = ManualClock(), random.Random(3)
    rate = RateLimiting(40, 2)
    use = services(count, clock, DequeuingSettings(rate_limiting=rate))
    fill(use[0], 300)
    clock.forward(1)
    start, delivered = clock(), list[float]()

    while (passed := (clock() - start).total_seconds()) < 8:
        who = chance.choice(use)
        tasks = who.deliveries.dequeue("mail", batch_size=chance.randint(1, 5)).tasks
        delivered += [passed] * len(tasks)
        clock.forward(timedelta(seconds=0.5 / count if count > 4 else 0.05))

    assert len(delivered) >= 0.9 * (40 + 8 * 20)
    for first, begin in enumerate(delivered):
        for last, end in enumerate(delivered[first:], first):
            assert last - first + 1 <= 40 + 20 * (end - begin) + 1e-6
