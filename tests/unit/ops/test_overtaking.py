"""How many tasks are delivered before one whose turn it is, when several processes take tasks.

Services with memories of their own over one store that is some milliseconds away; each seed gives
the same run.  Workers do nothing with their tasks, so that they ask as often as they can.
"""

import random
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from headrace.domain.queue_settings import PrioritySettings
from headrace.domain.task import Priority
from headrace.domain.task_groups import GroupMode, GroupSettings
from headrace.ops.delivery.reports import ReportStatus, TaskReport
from tests.contract.conftest import lease_name
from tests.fleet import Fleet

CROWDS = [  # the workers' batch sizes, and whether the workers name themselves
    ((1, 10, 25), True),
    pytest.param((1, 10, 25), False, marks=pytest.mark.slow),
    pytest.param((10,) * 6, True, marks=pytest.mark.slow),
]
RELEASED = 0.1  # of the deliveries
NEWCOMERS = 12
FAIR = {"groups": GroupSettings(GroupMode.FAIR)}
PRIORITIES = {"priority": PrioritySettings(300)}


def bound(sizes: Sequence[int]) -> int:
    """Return how many tasks may be delivered before one whose turn it is.

    3 G + 25 by the contract, with one other group.  And two chunks of each process: one that it was
    leasing already, one in which it left the task to another process.
    """
    return 3 + 25 + 2 * sum(sizes)


class Crowd:
    """A fleet whose workers release some of their tasks, until a fifth of the tasks is left."""

    def __init__(self, sizes: Sequence[int], *, named: bool, **settings: Any) -> None:
        self.sizes = sizes
        self.named = named
        self.fleet = Fleet(len(sizes), **settings)
        self.waiting = self.fleet.enqueue(
            100 * len(sizes) + 30 * sum(sizes), **self._busy(settings)
        )
        self.fleet.stage.sleep(1)
        if named:
            self.fleet.heartbeat()

    @staticmethod
    def _busy(settings: dict[str, Any]) -> dict[str, Any]:
        return {"group_key": "busy"} if "groups" in settings else {}

    @property
    def delivered(self) -> list[str]:
        return self.fleet.claimed.won

    def over(self) -> bool:
        return len(self.delivered) > 0.8 * len(self.waiting)

    def worker(self, place: int) -> Callable[[], None]:
        chance = random.Random(place)

        def act() -> None:
            while not self.over():
                tasks, service = self.fleet.take(place, self.sizes[place], named=self.named)
                reports = [
                    TaskReport(
                        task.id,
                        lease_name(task),
                        ReportStatus.RELEASED
                        if chance.random() < RELEASED
                        else ReportStatus.SUCCEEDED,
                    )
                    for task in tasks
                ]
                service.reports.report("mail", reports)

        return act

    def play(self, *others: Callable[[], None]) -> None:
        self.fleet.play([*map(self.worker, range(len(self.sizes))), *others])


def delivered_before_newcomers(crowd: Crowd, fields: Callable[[int], dict[str, Any]]) -> list[int]:
    """Return for each newcomer how many tasks were delivered from its enqueue to its delivery."""
    waits: list[int] = []

    def produce() -> None:
        crowd.fleet.stage.sleep(0.3)  # as it goes, not as it began
        for number in range(NEWCOMERS):
            if crowd.over():
                return
            (newcomer,) = crowd.fleet.enqueue(1, **fields(number))
            before = len(crowd.delivered)
            while newcomer not in crowd.delivered[before:] and not crowd.over():
                crowd.fleet.stage.sleep(0.01)
            rest = crowd.delivered[before:]
            waits.append(rest.index(newcomer) if newcomer in rest else len(rest))
            crowd.fleet.stage.sleep(crowd.fleet.stage.chance.uniform(0, 0.05))

    crowd.play(produce)
    return waits


@pytest.mark.parametrize(("sizes", "named"), CROWDS)
def test_a_busy_group_does_not_hold_up_a_newcomer(sizes: Sequence[int], *, named: bool) -> None:
    crowd = Crowd(sizes, named=named, **FAIR)

    waits = delivered_before_newcomers(crowd, lambda number: {"group_key": f"new-{number}"})

    assert len(waits) >= 5
    assert max(waits) <= bound(sizes), waits


@pytest.mark.parametrize(("sizes", "named"), CROWDS)
def test_a_task_of_high_priority_is_delivered_before_normal_ones(
    sizes: Sequence[int], *, named: bool
) -> None:
    crowd = Crowd(sizes, named=named, **PRIORITIES)

    waits = delivered_before_newcomers(crowd, lambda _: {"priority": Priority.HIGH})

    assert len(waits) >= 5
    assert max(waits) <= bound(sizes), waits


@pytest.mark.parametrize(("sizes", "named"), CROWDS)
def test_a_task_is_overtaken_by_few_that_fell_due_after_it(
    sizes: Sequence[int], *, named: bool
) -> None:
    crowd = Crowd(sizes, named=named)

    crowd.play()

    assert overtaken(crowd.waiting, crowd.delivered) <= bound(sizes)


def overtaken(due: Sequence[str], delivered: Sequence[str]) -> int:
    """Return the most tasks that were delivered before one that was *due* before them."""
    places = {task_id: place for place, task_id in enumerate(due)}
    seen: list[int] = []
    most = 0
    for task_id in dict.fromkeys(delivered):  # each by its first delivery
        most = max(most, len(seen) - bisect_left(seen, places[task_id]))
        insort(seen, places[task_id])
    return most
