"""Who may free a place and who may not: each of these was a way to exceed a limit, or lose it."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from headrace.domain.plan import TaskSpec
from headrace.domain.queue import DequeuingSettings, QueueSettings
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.slots import Reservation, ReservationStanding, places, pools
from headrace.domain.task import Task
from headrace.ops.delivery.reports import ReportOutcome, ReportStatus, TaskReport
from headrace.runtime.wiring import Settings, UseCases, build
from headrace.store.base import Store
from headrace.store.memory import MemoryStore
from tests.contract.conftest import lease_name
from tests.manual_clock import ManualClock

AT_ONCE = RetryStrategy(Backoff.FIXED, max_retries=9, base_seconds=0, jitter=0)


class InterruptedSlots:
    """A store that lets others act before one kind of call, once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.others: dict[str, Callable[[], object]] = {}

    def __getattr__(self, name: str) -> Any:
        others = self.others.pop(name, None)
        if others is not None:
            others()
        return getattr(self._store, name)


class SlotKilled(BaseException):
    """The process is gone."""


def killed() -> None:
    raise SlotKilled


class Places:
    """Services over one queue that allows so many in flight."""

    def __init__(self, limit: int, tasks: int = 25) -> None:
        self.store, self.clock = MemoryStore(), ManualClock()
        self.views: list[InterruptedSlots] = []
        self.first = self.service()
        self.first.queues.create("q", self.settings(limit))
        self.enqueue(tasks)

    def service(self) -> UseCases:
        self.views.append(InterruptedSlots(self.store))
        settings = Settings(admin_key="test", settings_ttl_seconds=0)
        return build(settings, cast("Store", self.views[-1]), now=self.clock)

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

    def take(self, use: UseCases, count: int = 25) -> list[Task]:
        self.clock.forward(0.01)
        return list(use.deliveries.dequeue("q", batch_size=count).tasks)

    def say(self, use: UseCases, task: Task, status: str) -> None:
        self.clock.forward(0.01)
        report = TaskReport(task.id, lease_name(task), ReportStatus(status))
        (result,) = use.reports.report("q", [report])
        assert result.outcome is ReportOutcome.OK

    def die_after_reserving(self, count: int = 1) -> None:
        use = self.service()
        self.views[-1].others["commit"] = killed
        with pytest.raises(SlotKilled):
            self.take(use, count)

    def held(self) -> int:
        return sum(map(len, self.store.pools("q", 0, 999).values()))


def test_places_are_sixteen_to_a_pool() -> None:
    assert [pools(limit) for limit in (1, 16, 17, 10_000)] == [1, 1, 2, 625]
    assert [places(20, pool) for pool in range(3)] == [16, 4, 0]
    assert sum(places(10_000, pool) for pool in range(625)) == 10_000


def test_a_reservation_is_what_it_says_in_pool_and_task() -> None:
    clock = ManualClock()
    made = Reservation.made("t-1", clock(), 7, now=clock(), token="abcd")

    assert Reservation.parse(made.text, 7) == made
    assert made.made_at == clock()
    assert made.standing(None, "q") is ReservationStanding.OVER
    assert len(Reservation.made("t" * 30, clock(), 624, now=clock(), token="abcd").text) <= 60


def test_a_place_reserved_is_not_free_before_its_task_is_delivered() -> None:
    world = Places(limit=1)
    slow, other = world.service(), world.service()
    taken: list[Task] = []

    def others() -> None:
        world.clock.forward(2)
        taken.extend(world.take(other))

    world.views[1].others["commit"] = others
    taken += world.take(slow, 1)

    assert len(taken) == 1


def test_a_place_whose_maker_died_goes_to_its_task_a_little_later() -> None:
    world = Places(limit=1, tasks=3)
    world.die_after_reserving()
    other = world.service()

    assert world.take(other) == []
    world.clock.forward(3)
    (task,) = world.take(other)
    assert world.take(other) == []
    world.say(other, task, "SUCCEEDED")
    assert len(world.take(other)) == 1


def test_a_place_whose_maker_died_is_free_when_its_task_is_gone() -> None:
    world = Places(limit=2, tasks=4)
    world.die_after_reserving(2)
    first, second = (text.split()[0] for text in world.store.pools("q", 0, 0)[0])
    for task_id in (first, second):
        world.first.tasks.delete(task_id)

    assert len(world.take(world.service())) == 2


def test_who_lost_a_race_does_not_free_the_place_that_the_task_was_delivered_under() -> None:
    world = Places(limit=1)
    slow, other = world.service(), world.service()
    taken: list[Task] = []

    def others() -> None:
        world.clock.forward(4)
        taken.extend(world.take(other))  # under the place that was reserved

    world.views[1].others["commit"] = others
    assert world.take(slow, 1) == []

    assert (len(taken), world.held()) == (1, 1)
    assert world.take(other) == []


def test_who_lost_a_race_frees_its_place() -> None:
    world = Places(limit=2, tasks=1)
    slow, other = world.service(), world.service()
    world.views[1].others["commit"] = lambda: world.take(other)

    assert world.take(slow, 1) == []

    assert world.held() == 1


def test_a_report_that_is_repeated_after_another_delivery_frees_nothing() -> None:
    world = Places(limit=1, tasks=1)
    (task,) = world.take(world.first)
    world.say(world.first, task, "FAILED")
    (again,) = world.take(world.first)
    assert again.id == task.id

    world.say(world.first, task, "FAILED")

    assert world.held() == 1


def test_what_is_given_back_never_waits_with_the_same_due_time_again() -> None:
    """Else a place that is over would stand once more."""
    world = Places(limit=25, tasks=0)
    payload = f'"{"x" * 255_000}"'
    world.first.tasks.enqueue("q", [TaskSpec(payload)] * 10)
    world.first.tasks.enqueue("q", [TaskSpec(payload)] * 10)
    world.clock.forward(1)
    before = {task.id: task.due_at for task in world.store.read(self_ids(world)).values()}

    taken = world.take(world.first)

    waiting = [
        task
        for task in world.store.read(self_ids(world)).values()
        if task.slot and not task.lease_id
    ]
    assert len(taken) + len(waiting) == 20
    assert waiting
    assert all(task.due_at > before[task.id] for task in waiting)
    assert world.held() == len(taken)


def self_ids(world: Places) -> list[str]:
    return [task.id for task in world.first.inspect.list("q").tasks]


@pytest.mark.parametrize(("before", "after"), [(40, 3), (20, 17), (0, 5), (0, 20), (33, 1)])
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


def test_a_place_kept_for_a_task_that_flies_without_one_stays_until_it_lands() -> None:
    """Reserved by a process that died, delivered while there was no limit."""
    world = Places(limit=1, tasks=2)
    world.die_after_reserving()
    world.limit(0)
    (task,) = world.take(world.first, 1)
    world.limit(1)
    other = world.service()
    for _ in range(3):
        world.clock.forward(2)
        assert world.take(other) == []

    world.say(other, task, "SUCCEEDED")
    world.clock.forward(60)  # before it is looked at again

    assert len(world.take(other)) == 1


def test_reservations_that_are_over_do_not_keep_a_lowered_limit_shut() -> None:
    world = Places(limit=20, tasks=25)
    world.die_after_reserving(5)
    for task in world.first.inspect.list("q", limit=5).tasks:
        world.first.tasks.delete(task.id)
    world.limit(3)

    other = world.service()
    for _ in range(4):
        world.clock.forward(1)
        world.take(other)

    assert world.first.inspect.count("q").by_state["INFLIGHT"] == 3  # type: ignore[index]
