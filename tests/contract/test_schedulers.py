"""Many schedulers at once, for long, by clocks that jump: each tick makes one task."""

import random
from bisect import bisect_right
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile

from headrace.domain.schedule import LOOK_AHEAD, LOOK_BACK, tick_id
from headrace.domain.ticks import cron_ticks, zone
from headrace.ops.scheduling.cron import read_cron
from headrace.ops.shared.stack_secret import IDS, StackSecret
from headrace.runtime.wiring import Settings, build
from headrace.store.base import Store
from tests.contract.conftest import new_world
from tests.contract.scheduling import NAME, schedule
from tests.manual_clock import ManualClock


@dataclass
class Wall:
    """A clock that the test moves, there and back; it stands still while schedulers run."""

    clock: ManualClock
    chance: random.Random
    jumped: float = 0.0

    def moments(self, hours: float) -> Iterator[datetime]:
        """Give the times at which the scheduler is started, for so many hours."""
        until = self.clock() + timedelta(hours=hours)
        while self.clock() - timedelta(seconds=self.jumped) < until:
            yield self.clock()
            self.clock.forward(self.chance.choice([0, 1, 60, 60, 61, 130, 170]))
            jump = self.chance.choice([0] * 100 + [7200, 600, 150, 30, -30, -150, -600, -7200])
            if abs(self.jumped + jump) < 9000:
                self.jumped += jump
                self.clock.time += timedelta(seconds=jump)  # wrong clocks go back, too


def wanted_by(moments: list[datetime], ticks: list[datetime]) -> set[datetime]:
    """Return the ticks that must have been enqueued by schedulers run at these moments."""
    wanted: set[datetime] = set()
    for now in moments:
        near = ticks[bisect_right(ticks, now - LOOK_BACK) : bisect_right(ticks, now + LOOK_AHEAD)]
        missed = [tick for tick in near if tick <= now]
        wanted |= {*(tick for tick in near if tick > now), *missed[-1:]}
    return wanted


def run_many(store: Store, hours: float, cron: str, seed: int) -> tuple[list[str], set[datetime]]:
    """Let four schedulers run at once beside a worker that leaves nothing behind.

    Return the ids of the tasks that ran, and the ticks that were to run.
    """
    clock = ManualClock()
    world = new_world(store, clock)
    queue = world.queue(history_retention_in_seconds=0, expires_in_seconds=0)
    schedule(world, queue, cron, timezone="Europe/Madrid")
    others = [build(Settings(), store, now=clock).ticking for _ in range(4)]
    began, moments, ran = clock(), [clock()], []
    wall = Wall(clock, random.Random(seed))

    def work() -> None:
        for task in world.use.deliveries.dequeue(queue, batch_size=25, worker="w").tasks:
            world.say(task, "SUCCEEDED")
            ran.append(task.id)

    with ThreadPoolExecutor(5) as pool:
        for now in wall.moments(hours):
            moments.append(now)
            jobs = [pool.submit(one.run) for one in others] + [pool.submit(work)]
            for job in jobs:
                job.result()
    clock.time = max(moments) + timedelta(minutes=10)
    for _ in range(20):
        work()
    stop = max(moments) + LOOK_AHEAD
    local = cron_ticks(read_cron(cron), zone("Europe/Madrid"), began)
    ticks = list(takewhile(lambda tick: tick <= stop, local))
    return ran, wanted_by(moments, ticks)


def check_each_once(store: Store, ran: list[str], wanted: set[datetime]) -> None:
    secret = StackSecret(store, IDS).value()
    assert len(ran) == len(set(ran))
    assert set(ran) == {tick_id(secret, "mail", NAME, tick) for tick in wanted}


def test_four_schedulers_at_once_make_each_tick_once(store: Store) -> None:
    ran, wanted = run_many(store, 1, "*/2 * * * *", seed=3)

    check_each_once(store, ran, wanted)
    assert len(wanted) > 12
