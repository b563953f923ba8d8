"""Limits of a queue that many services share: tasks in flight and rates."""

import random
from datetime import timedelta

import pytest

from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import DequeuingSettings, QueueSettings, RateLimiting
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import Task
from headrace.ops.delivery.reports import ReportOutcome, ReportStatus, TaskReport
from headrace.runtime.service import Service
from headrace.runtime.wiring import Settings, build
from headrace.store.sqlite import SqliteStore
from tests.contract.conftest import lease_name
from tests.manual_clock import ManualClock

AT_ONCE = RetryStrategy(Backoff.FIXED, max_retries=9, base_seconds=0, jitter=0)


class Places:
    """Services over one queue that allows so many in flight."""

    def __init__(self, limit: int, tasks: int = 25) -> None:
        self.store, self.clock = SqliteStore(":memory:"), ManualClock()
        self.first = self.service()
        self.first.queues.create("q", self.settings(limit))
        self.enqueue(tasks)

    def service(self) -> Service:
        settings = Settings(admin_key="test", settings_ttl_seconds=0)
        return build(settings, self.store, now=self.clock)

    def settings(self, limit: int) -> QueueSettings:
        limits = DequeuingSettings(max_inflight_tasks=limit)
        return QueueSettings(
            dequeuing_settings=limits, retry_strategy=AT_ONCE, keepalive_timeout_in_seconds=600
        )

    def enqueue(self, count: int) -> None:
        self.first.tasks.enqueue("q", [TaskSpec("1")] * count)
        self.clock.forward(1)

    def limit(self, limit: int) -> None:
        self.first.queues.replace("q", self.settings(limit))

    def take(self, use: Service, count: int = 25) -> list[Task]:
        self.clock.forward(0.01)
        return list(use.deliveries.dequeue("q", batch_size=count).tasks)

    def say(self, use: Service, task: Task, status: str) -> None:
        self.clock.forward(0.01)
        report = TaskReport(task.id, lease_name(task), ReportStatus(status))
        (result,) = use.reports.report("q", [report])
        assert result.outcome is ReportOutcome.OK


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (40, 3),
        (0, 5),
        (33, 1),
    ],
)
def test_a_limit_that_is_new_or_lowered_counts_what_is_in_flight(before: int, after: int) -> None:
    world = Places(limit=before, tasks=75)
    services = [world.service() for _ in range(3)]
    flying = [
        task for use in services for task in world.take(use, before // 3 + 1 if before else 8)
    ]
    world.limit(after)

    while len(flying) > after:
        assert all(world.take(use) == [] for use in services)
        world.say(services[len(flying) % 3], flying.pop(), "SUCCEEDED")
    assert all(world.take(use) == [] for use in services)
    for number in range(3):
        world.say(services[number], flying.pop(0), "SUCCEEDED") if flying else None
        world.clock.forward(1)
        flying += world.take(services[(number + 1) % 3])
        assert len(flying) == after


# -- rates under many services ---------------------------------------------------------------------


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
