"""The storm of test_group_storm on strict queues: no task overtakes, and no group is stuck.

Tasks come in and are deleted all the while, by processes that may die in the middle of it, and the
index shows each up to four seconds late.
"""

import sys
from contextlib import suppress

import pytest

from headrace.domain.errors import NotFound
from headrace.domain.fairness import GroupMode, GroupSettings
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import QueueSettings
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import Task
from tests.contract.conftest import World
from tests.functional.test_group_storm import KEEPALIVE, LONG, WORKERS, Storm
from tests.manual_clock import ManualClock
from tests.property.strict_store import InOrder

QUEUE, GROUPS = "line", 60
MOST = 5_000


class StrictStorm(Storm):
    """All processes, their workers, and the time."""

    def __init__(self, seed: int, deliveries: int) -> None:
        self.order = InOrder(ManualClock())
        super().__init__(seed, deliveries)
        self.order = InOrder(self.clock)
        self.store = self.order  # type: ignore[assignment]
        self.processes = [self.process() for _ in self.processes]
        self.made = 0

    def create(self) -> None:
        settings = QueueSettings(
            keepalive_timeout_in_seconds=KEEPALIVE,
            expires_in_seconds=0,
            history_retention_in_seconds=0,
            retry_strategy=RetryStrategy(Backoff.FIXED, 100, 1, 1, 0.0),
            groups=GroupSettings(GroupMode.STRICT),
            shards=2,
        )
        self.processes[0].use.queues.create(QUEUE, settings)

    def work(self, process: World, held: list[Task]) -> None:
        if held:
            super().work(process, held)
            return
        if self.made < self.deliveries and self.chance.random() < 0.1:
            self.enqueue(process)
        if not self.calm and self.chance.random() < 0.1:
            self.delete(process)
        count = self.chance.choice([1, 1, 4])
        held += process.use.deliveries.dequeue(QUEUE, batch_size=count, worker="").tasks

    def enqueue(self, process: World) -> None:
        name, call = self.order.call()
        keys = [f"g{self.chance.randrange(GROUPS)}" for _ in range(self.chance.choice([1, 5, 25]))]
        self.made += len(keys)
        tasks = [TaskSpec("1", group_key=key, tags={"call": name}) for key in keys]
        process.use.tasks.enqueue(QUEUE, tasks)
        self.order.acknowledge(call)

    def delete(self, process: World) -> None:
        """Delete one that came lately, and that nobody has had."""
        late = [task for group in self.order.live.values() for task in [*group.values()][-3:]]
        fresh = [task for task in late if task.started_at is None]
        if fresh:
            with suppress(NotFound):
                process.use.tasks.delete(self.chance.choice(fresh).id)

    def left(self) -> int:
        return sum(map(len, self.order.live.values()))


def storm(deliveries: int, seed: int) -> StrictStorm:
    storm = StrictStorm(seed, deliveries)
    storm.create()
    storm.calm = False
    quiet, before = 0, 0
    while storm.made < deliveries:
        storm.step()
        quiet = 0 if storm.order.deliveries > before else quiet + 1
        before = storm.order.deliveries
        if quiet > WORKERS:
            storm.clock.forward(0.5)
    storm.calm = True
    for _ in range(40 * deliveries):
        if not storm.left():
            break
        for _ in range(4 * WORKERS):
            storm.step()
        storm.clock.forward(1)
    assert not storm.left(), "stuck"
    return storm


@pytest.mark.parametrize("deliveries", [60, pytest.param(LONG, marks=pytest.mark.slow)])
def test_however_many_workers_die_no_task_overtakes_and_none_is_stuck(deliveries: int) -> None:
    """Storms of 5,000 at most: what has happened in one makes each step of it slower."""
    delivered = deaths = seed = 0
    while delivered < deliveries:
        done = storm(min(deliveries - delivered, MOST), seed)
        delivered, deaths = delivered + done.order.deliveries, deaths + done.deaths
        seed += 1
        sys.stderr.write(f"{delivered:,} deliveries, {deaths:,} deaths\n")
    assert deaths > deliveries / 200
