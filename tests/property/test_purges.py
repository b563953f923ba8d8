"""Purges while producers, workers and operators go on, between any two calls of the store.

The model keeps for each task what it was, when: nothing but what a purge named may go, and all of
it must be gone when the purge says that it is finished.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from headrace.domain.change import Change
from headrace.domain.operate import BulkAction
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import SHOWN_STATES, State, Task
from headrace.store.base import EntryPage, Outcome
from headrace.store.memory import MemoryStore
from headrace.testing.conditions import Faults
from headrace.testing.stores import LaggingStore
from tests.contract.conftest import World, new_world
from tests.manual_clock import ManualClock
from tests.property.stores import LaggingSqlite
from tests.property.walks import in_part

AT_ONCE = RetryStrategy(Backoff.FIXED, max_retries=100, base_seconds=0, jitter=0)
E, F, S, D = State.ENQUEUED, State.INFLIGHT, State.SUCCEEDED, State.DEAD
STEPS = ("enqueue", "take", "take", "release", "fail", "beat", "succeed", "die", "restart")
NAMED = [(E,), (F,), (D,), (S,), (E, F), (E, D), (D, S), (E, F, S, D)]


class Meddling:
    """Lets others act before each call of a store, as long as there is something for them to do."""

    def __init__(self, faults: Faults) -> None:
        beside: Any = super()
        beside.__init__(faults)
        self.meanwhile: list[Callable[[], None]] = []

    def _let_others_act(self) -> None:
        if self.meanwhile:
            waiting, self.meanwhile = self.meanwhile, []
            act, *rest = waiting
            act()
            self.meanwhile = rest

    def commit(self, changes: Iterable[Change], **how: Any) -> list[Outcome]:
        self._let_others_act()
        beside: Any = super()
        outcomes: list[Outcome] = beside.commit([*changes], **how)
        return outcomes

    def read(self, task_ids: Iterable[str], **how: bool) -> dict[str, Task]:
        self._let_others_act()
        beside: Any = super()
        found: dict[str, Task] = beside.read(task_ids, **how)
        return found

    def entries(self, *place: Any, **how: Any) -> EntryPage:
        self._let_others_act()
        beside: Any = super()
        page: EntryPage = beside.entries(*place, **how)
        return page


class Meddled(Meddling, LaggingStore):
    """In memory."""


class MeddledSqlite(Meddling, LaggingSqlite):
    """On SQLite, in memory too."""


@dataclass
class TaskLife:
    """What a task was since when: its latest life, and in which states."""

    number: int
    stays: list[tuple[datetime, State]]

    def at(self, moment: datetime) -> State | None:
        known = [state for since, state in self.stays if since <= moment]
        return known[-1] if known else None


@dataclass
class Purge:
    """What there was when a purge was asked for: the state of each task, and which life it was."""

    requested_at: datetime
    states: tuple[State, ...]
    was: dict[str, tuple[int, State]]
    lagged: bool
    noted_at: datetime


class Purges(RuleBasedStateMachine):
    """Rules are calls, and those that others make while a purge is under way."""

    meddled: type[Meddled | MeddledSqlite] = Meddled

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.faults = Faults(7)
        self.store = self.meddled(self.faults)
        self.world = new_world(self.store, self.clock)
        self.lives: dict[str, TaskLife] = {}
        self.held: list[Task] = []
        self.purges: list[Purge] = []

    @initialize(shards=st.sampled_from([1, 2]))
    def begin(self, shards: int) -> None:
        self.queue = self.world.queue(
            retry_strategy=AT_ONCE, keepalive_timeout_in_seconds=40_000, shards=shards
        )
        self.do("enqueue", 0)
        self.do("enqueue", 0)

    # -- what others do ------------------------------------------------------------------------

    def do(self, step: str, which: int) -> None:
        self.clock.forward(0.001)
        if step == "enqueue":
            (task_id,) = self.world.put(self.queue)
            self.lives[task_id] = TaskLife(0, [(self.clock(), E)])
        elif step == "take":
            for task in self.world.use.deliveries.dequeue(self.queue).tasks:
                self.held.append(task)
                self.lives[task.id].stays.append((self.clock(), F))
        elif step == "restart":
            self._restart(which)
        elif self.held:
            task = self.held[which % len(self.held)]
            status, more, state = {
                "release": ("RELEASED", {}, E),
                "fail": ("FAILED", {}, E),
                "beat": ("INFLIGHT", {}, None),
                "succeed": ("SUCCEEDED", {}, S),
                "die": ("FAILED", {"retryable": False}, D),
            }[step]
            result = self.world.say(task, status, **more)
            if state is None:
                return
            self.held.remove(task)
            if result.outcome == "OK":
                self.lives[task.id].stays.append((self.clock(), state))

    def _restart(self, which: int) -> None:
        over = [task for task in self.store.everything() if task.state in (S, D)]
        if not over:
            return
        task = sorted(over, key=lambda task: task.id)[which % len(over)]
        answer = self.world.use.bulk.by_ids(self.queue, BulkAction.RESTART, [task.id])
        if answer.changed:
            number = self.lives[task.id].number + 1
            self.lives[task.id] = TaskLife(number, [(self.clock(), E)])

    @rule(step=st.sampled_from(STEPS), which=st.integers(0, 7))
    def step(self, step: str, which: int) -> None:
        self.do(step, which)

    @rule()
    def come_and_go(self) -> None:
        """What is in flight comes back, goes and comes back again."""
        for step in ("release", "take", "release"):
            for _ in range(len(self.held) or 1):
                self.do(step, 0)

    @rule(seconds=st.sampled_from([0.1, 3, 8, 61]))
    def pass_time(self, seconds: float) -> None:
        self.clock.forward(seconds)
        if self.faults.requested:
            self.faults.when_index_slows()  # it lags, but not for ever

    @rule()
    def lag(self) -> None:
        self.faults.clear()
        self.faults.slow_index(rate=1)

    @precondition(lambda self: self.faults.requested)
    @rule()
    def lag_no_more(self) -> None:
        self.faults.clear()

    # -- purges --------------------------------------------------------------------------------

    steps = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 7)), max_size=12)

    def _meanwhile(self, steps: list[tuple[str, int]]) -> None:
        self.store.meanwhile = [partial(self.do, step, which) for step, which in steps]

    @rule(states=st.sampled_from(NAMED), patience=st.sampled_from([0, 20]), steps=steps)
    def purge(self, states: tuple[State, ...], patience: int, steps: list[tuple[str, int]]) -> None:
        self.purge_now(states, patience, steps)

    def purge_now(
        self, states: tuple[State, ...], patience: int, steps: list[tuple[str, int]]
    ) -> None:
        self.clock.forward(0.001)
        there = {task.id: task.state for task in self.store.everything()}
        was = {task_id: (self.lives[task_id].number, state) for task_id, state in there.items()}
        purge = Purge(self.clock(), states, was, bool(self.faults.requested), self.clock())
        self.purges.append(purge)
        removals = self.world.use.queues.removals
        self.world.use.queues.removals = replace(removals, patience=patience)
        self._meanwhile(steps)

        done = self.world.use.queues.purge(self.queue, states)

        self.store.meanwhile = []
        self.world.use.queues.removals = removals
        purge.noted_at = self.clock()
        gone = there.keys() - {task.id for task in self.store.everything()}
        assert done.deleted <= len(gone)  # as many as it removed, whatever the index showed
        if done.finished and not purge.lagged:
            self._is_gone(purge)

    @rule(steps=steps)
    def reap(self, steps: list[tuple[str, int]]) -> None:
        self.reap_now(steps)

    def reap_now(self, steps: list[tuple[str, int]]) -> None:
        self._meanwhile(steps)
        self.world.use.reaping.run()
        self.store.meanwhile = []

    @invariant()
    def nothing_goes_that_no_purge_named(self) -> None:
        there = {task.id for task in self.store.everything()}
        for task_id in [*self.lives.keys() - there]:
            assert any(self._may_take(purge, task_id) for purge in self.purges), task_id
            del self.lives[task_id]

    def _may_take(self, purge: Purge, task_id: str) -> bool:
        """Tell whether the task's life began before the purge, and it was since in its states."""
        life = self.lives[task_id]
        number, state = purge.was.get(task_id, (-1, None))
        since = {state, *(state for at, state in life.stays if at > purge.requested_at)}
        return number == life.number and not since.isdisjoint(purge.states)

    def _is_gone(self, purge: Purge) -> None:
        for task in self.store.everything():
            life = self.lives[task.id]
            number, state = purge.was.get(task.id, (-1, None))
            since = {state, *(state for at, state in life.stays if at > purge.requested_at)}
            stayed = number == life.number and since <= {*purge.states}
            assert not stayed, (purge, task)

    @rule(states=st.sampled_from(NAMED))
    def purge_and_look_again(self, states: tuple[State, ...]) -> None:
        self.purge_now(states, 20, [])
        self.come_and_go()
        self.pass_time(61)
        self.reap_now([])

    def teardown(self) -> None:
        """All comes to an end: the index catches up, and workers give back what they have."""
        self.faults.clear()
        while self.held:
            self.do("release", 0)
        for _ in range(3):
            self.clock.forward(61)
            self.world.use.reaping.run()
        assert self.world.use.queues.removals.pending() == []
        self.nothing_goes_that_no_purge_named()
        for purge in self.purges:
            self._is_gone(purge)


QUICK = settings(
    max_examples=6,
    stateful_step_count=25,
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
LONGER = settings(QUICK, max_examples=in_part(300))


class PurgesOfSqlite(Purges):
    """The same on SQLite."""

    meddled = MeddledSqlite


@pytest.mark.parametrize(
    ("machine", "some"),
    [
        (Purges, QUICK),
        pytest.param(Purges, LONGER, marks=pytest.mark.slow),
        (PurgesOfSqlite, settings(QUICK, max_examples=2)),
        pytest.param(
            PurgesOfSqlite, settings(QUICK, max_examples=in_part(120)), marks=pytest.mark.slow
        ),
    ],
)
def test_a_purge_takes_what_it_named_and_nothing_else_whatever_goes_on_meanwhile(
    machine: type[Purges], some: settings
) -> None:
    run_state_machine_as_test(machine, settings=some)


class InStep(MemoryStore):
    """A store where a worker does its next step before each look at the index but its own."""

    def __init__(self) -> None:
        super().__init__()
        self.works: Callable[[], None] | None = None

    def entries(self, *place: Any, **how: Any) -> EntryPage:
        if self.works is not None:
            works, self.works = self.works, None
            works()
            self.works = works
        return super().entries(*place, **how)


RHYTHMS = [(waits, works) for waits in range(1, 6) for works in range(1, 6) if waits + works > 2]


@pytest.mark.parametrize(
    "states",
    [(E, F), pytest.param(SHOWN_STATES, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize(("waits", "works"), RHYTHMS)
def test_no_worker_is_so_in_step_with_a_purge_that_its_task_evades_it(
    states: tuple[State, ...], waits: int, works: int
) -> None:
    """Not even if there were no pauses.

    The task waits for so many looks at the index, and is worked on for so many.  Only one that is
    written before every look would evade.
    """
    for begins in range(waits + works):
        store = InStep()
        world = new_world(store, ManualClock())
        worker = Worker(world, world.queue(retry_strategy=AT_ONCE), waits, works)
        (task_id,) = world.put(worker.queue)
        for _ in range(begins):
            worker.step()
        world.clock.forward(0.001)
        store.works = worker.step

        finished = world.use.queues.purge(worker.queue, states).finished

        store.works = None
        assert finished
        assert task_id not in store.read([task_id])


@dataclass
class Worker:
    """Leaves a task alone for so many steps, and has it for so many."""

    world: World
    queue: str
    waits: int
    works: int
    steps: int = 0
    held: list[Task] = field(default_factory=list)

    def step(self) -> None:
        self.steps += 1
        at = self.steps % (self.waits + self.works)
        if at == self.waits:
            self.held += self.world.take(self.queue)
        while at == 0 and self.held:
            self.world.say(self.held.pop(), "RELEASED")
