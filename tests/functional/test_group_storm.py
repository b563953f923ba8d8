"""Workers that die at any call, lapse and come late: no group is above its limit, none is stuck.

64 workers in 8 processes, two hundred groups of which half may have one task in flight and half
three.  At any call of the store a process may die, before the call takes effect or after, and
others may go on in the middle of it.  `make test-slow` makes 3,000 deliveries of it, and
`make test-storm` 100,000; HEADRACE_STORM_DELIVERIES says how many else.
"""

import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from headrace.domain.fairness import GroupMode, GroupSettings
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import QueueSettings
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import State, Task
from headrace.store.memory import MemoryStore
from tests.contract.conftest import World, new_world
from tests.manual_clock import ManualClock

LONG = int(os.environ.get("HEADRACE_STORM_DELIVERIES", "3000"))
LIMITS = {"ones": 1, "threes": 3}
GROUPS_OF_EACH, PROCESSES, WORKERS = 100, 8, 64
KEEPALIVE, DEEPEST = 5, 2
DISTURBED = frozenset({"commit", "lines", "take_slot", "read", "entries"})


class Died(BaseException):
    """A process does nothing more."""


class Counted(MemoryStore):
    """Counts what is in flight, as each write is made."""

    def __init__(self) -> None:
        super().__init__()
        self.inflight: Counter[tuple[str, str | None]] = Counter()
        self.deliveries = 0
        self.most = dict.fromkeys(LIMITS, 0)

    def _put(self, before: Task | None, after: Task | None) -> None:
        super()._put(before, after)
        if before is not None and before.state is State.INFLIGHT:
            self.inflight[before.queue, before.group_key] -= 1
        if after is not None and after.state is State.INFLIGHT:
            key = (after.queue, after.group_key)
            self.inflight[key] += 1
            if before is not None and before.state is State.ENQUEUED:
                self.deliveries += 1
            assert self.inflight[key] <= LIMITS[after.queue], f"{key} is above its limit"
            self.most[after.queue] = max(self.most[after.queue], self.inflight[key])


class Disturbed:
    """The store as one process has it: calls may be its last, or take long."""

    def __init__(self, storm: "Storm") -> None:
        self._storm = storm

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._storm.store, name)
        return self._disturbed(found) if name in DISTURBED else found

    def _disturbed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def made(*given: Any, **how: Any) -> Any:
            self._storm.disturb()
            answer = call(*given, **how)
            self._storm.disturb()
            return answer

        return made


class Storm:
    """All processes, their workers, and the time."""

    def __init__(self, seed: int, deliveries: int) -> None:
        self.chance, self.deliveries = random.Random(seed), deliveries
        self.store, self.clock = Counted(), ManualClock()
        self.calm, self.depth, self.deaths = True, 0, 0
        self.processes = [self.process() for _ in range(PROCESSES)]
        self.held: list[list[Task]] = [[] for _ in range(WORKERS)]

    def process(self) -> World:
        world = new_world(Disturbed(self), self.clock)
        for one in (world.use.deliveries, world.use.deliveries.claims):
            one.chance = random.Random(self.chance.getrandbits(32))
        return world

    def disturb(self) -> None:
        """Let the process that calls die, or another go on meanwhile."""
        if self.calm:
            return
        luck = self.chance.random()
        if luck < 0.002:
            self.deaths += 1
            raise Died
        if luck < 0.03 and self.depth < DEEPEST:
            self.depth += 1
            try:
                self.step()
            finally:
                self.depth -= 1

    def step(self) -> None:
        """Let one worker report what it holds, or take something."""
        worker = self.chance.randrange(WORKERS)
        at = worker % PROCESSES
        self.clock.forward(self.chance.choice([0.001, 0.01, 0.05]))
        try:
            self.work(self.processes[at], self.held[worker])
        except Died:
            self.processes[at] = self.process()
            for of_it in range(at, WORKERS, PROCESSES):
                self.held[of_it].clear()

    def work(self, process: World, held: list[Task]) -> None:
        if not held:
            queue = self.chance.choice([*LIMITS])
            take = process.use.deliveries.dequeue
            held += take(queue, batch_size=self.chance.choice([1, 1, 4]), worker="").tasks
            return
        task, luck = held.pop(), self.chance.random()
        if self.calm or luck < 0.75:
            process.say(task, "SUCCEEDED")
        elif luck < 0.9:
            process.say(task, "FAILED")
        elif luck < 0.95:
            process.say(task, "RELEASED")  # and the others are silent: their leases lapse

    def produce(self) -> None:
        retry = RetryStrategy(Backoff.FIXED, 100, 1, 1, 0.0)
        made = 0
        for queue, limit in LIMITS.items():
            settings = QueueSettings(
                keepalive_timeout_in_seconds=KEEPALIVE,
                expires_in_seconds=0,
                history_retention_in_seconds=0,
                retry_strategy=retry,
                groups=GroupSettings(GroupMode.FAIR, max_inflight_per_group=limit),
            )
            self.processes[0].use.queues.create(queue, settings)
        while made < self.deliveries:
            queue = [*LIMITS][made // 25 % 2]
            tasks = [
                TaskSpec("1", group_key=f"g{self.chance.randrange(GROUPS_OF_EACH)}")
                for _ in range(25)
            ]
            self.processes[0].use.tasks.enqueue(queue, tasks)
            made += 25

    def waiting(self) -> int:
        places = (
            place
            for queue in LIMITS
            for state in (State.ENQUEUED, State.INFLIGHT)
            for place in self.processes[0].use.queues.get(queue).places(state)
        )
        return sum(self.store.count(place, now=None).number for place in places)


@pytest.mark.parametrize("deliveries", [150, pytest.param(LONG, marks=pytest.mark.slow)])
def test_however_many_workers_die_no_group_is_above_its_limit_or_stuck(deliveries: int) -> None:
    storm = Storm(7, deliveries)
    storm.produce()
    storm.calm = False
    quiet, before = 0, 0
    while storm.store.deliveries < deliveries:
        storm.step()
        quiet = 0 if storm.store.deliveries > before else quiet + 1
        before = storm.store.deliveries
        assert quiet < 5_000, "stuck"
        if quiet > WORKERS:
            storm.clock.forward(0.5)  # nothing is due, or those that hold it are gone
    storm.calm = True
    for _ in range(40 * deliveries):
        if not storm.waiting():
            break
        for _ in range(4 * WORKERS):
            storm.step()
        storm.clock.forward(1)
    assert not storm.waiting(), "stuck"
    assert storm.store.most == LIMITS
    assert storm.deaths > deliveries / 100
