"""Priorities on one shard, whatever happens: never early, overtaken within the bound, none starves.

Tasks come with any priority, due at once or later; workers take, fail, give back and die, before
and after their write; settings change, and are switched off and on; the index lags.  The model
knows of each task its level, its lane and its due time, and what that makes of its turn: nothing of
how the service finds them.

The faults at the end are planted, and each is caught: so the machine is one that could fail.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from headrace.domain.change import Change
from headrace.domain.lifecycle import Action
from headrace.domain.operate import BulkAction
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import PrioritySettings, QueueSettings
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import Place, Priority, State, Task
from headrace.ops.tasks.enqueue import EnqueueOutcome
from headrace.store.base import EntryPage, Outcome, Record, Refused
from headrace.store.memory import MemoryStore
from tests.contract.conftest import World, new_world
from tests.manual_clock import ManualClock
from tests.property.walks import walk_far

KEEPALIVE, BACKOFF = 20, 7
STEPS = {Priority.HIGH: -1, Priority.NORMAL: 0, Priority.LOW: 1}
LANES = {Priority.NORMAL: 0, Priority.HIGH: 1, Priority.LOW: 2}
BY_LANE = {lane: STEPS[level] for level, lane in LANES.items()}
AGINGS = st.sampled_from([None, 5, 60, 300])

EARLY = "the boost is in the sort key"
RANKLESS = "retries lose their rank"
FORGOTTEN = "lanes are forgotten when priorities are switched off"
UNBOUNDED = "the high all go first"


class ProcessDied(BaseException):
    """It does nothing more."""


class FaultyStore(MemoryStore):
    """A store whose index may lag, whose callers may die, and with a planted *fault*."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.past: MemoryStore | None = None
        self.dies: str | None = None
        self.refused = 0

    def freeze(self) -> None:
        """Let the index show from now on what it shows now."""
        self.past = MemoryStore()
        self.past._tasks = dict(self._tasks)  # noqa: SLF001  its own kind
        index = {place: [*keys] for place, keys in self._index.items()}
        self.past._index.update(index)  # noqa: SLF001  likewise

    def entries(self, place: Place, **how: Any) -> EntryPage:
        return MemoryStore.entries(self.past or self, place, **how)

    def commit(self, changes: Sequence[Change], **how: Any) -> list[Outcome]:
        dies = self.dies if any(one.rule.action is Action.DEQUEUE for one in changes) else None
        if dies == "before":
            raise ProcessDied
        outcomes = super().commit([self._planted(one) for one in changes], **how)
        self.refused += sum(isinstance(one, Refused) for one in outcomes)
        if dies == "after":
            raise ProcessDied
        return outcomes

    def record(self, kind: str, name: str) -> Record | None:
        found = super().record(kind, name)
        if found is None or kind != "queue":
            return found
        body = {**found.body}
        if self.fault == FORGOTTEN:
            used = [0, 1, 2] if body["settings"].get("priority") else [0]
            body |= {"lanes_in_use": used, "lanes_ever": used}
        if self.fault == UNBOUNDED and body["settings"].get("priority"):
            body["settings"] = {**body["settings"], "priority": {"aging_in_seconds": 86_400}}
        return replace(found, body=body)

    def _planted(self, change: Change) -> Change:
        place = change.insert.place if change.insert else change.put.get("place")
        if place is None or place.state is not State.ENQUEUED:
            return change
        if self.fault == EARLY and place.lane == LANES[Priority.HIGH]:
            boost = timedelta(seconds=60)
            new = change.insert
            if new and new.scheduled_at > new.created_at:
                return replace(change, insert=replace(new, scheduled_at=new.scheduled_at - boost))
        if self.fault == RANKLESS and change.rule.action in (Action.FAIL, Action.RECLAIM):
            return replace(change, put={**change.put, "place": replace(place, lane=0)})
        return change


@dataclass
class ModelTask:
    """What the model knows of a task that is not done."""

    level: Priority | None
    lane: int
    due: datetime
    leased_until: datetime | None = None


@dataclass
class Model:
    """Every task that is not done, and the queue's setting."""

    aging: int | None = 60
    tasks: dict[str, ModelTask] = field(default_factory=dict)

    def lane_of(self, level: Priority | None) -> int:
        return 0 if self.aging is None or level is None else LANES[level]

    def turn(self, task: ModelTask) -> datetime:
        step = BY_LANE[task.lane] if self.aging is not None else 0
        return task.due + step * timedelta(seconds=self.aging or 0)

    def waits_again(self, task: ModelTask, due: datetime) -> None:
        task.lane, task.due, task.leased_until = self.lane_of(task.level), due, None


class Priorities(RuleBasedStateMachine):
    """One queue of one shard, and workers of which each call is a process of its own."""

    fault = ""

    def __init__(self) -> None:
        super().__init__()
        self.store, self.clock, self.model = FaultyStore(self.fault), ManualClock(), Model()
        self.leased: dict[str, Task] = {}
        self.made = 0
        self.process().use.queues.create("mail", self.settings())

    def process(self) -> World:
        world = new_world(self.store, self.clock)
        world.use.deliveries.chance = world.use.deliveries.claims.chance = random.Random(1)
        return world

    def settings(self) -> QueueSettings:
        aging = self.model.aging
        return QueueSettings(
            keepalive_timeout_in_seconds=KEEPALIVE,
            expires_in_seconds=0,
            retry_strategy=RetryStrategy(Backoff.FIXED, 100, BACKOFF, BACKOFF, 0.0),
            priority=None if aging is None else PrioritySettings(aging),
        )

    # -- what happens ------------------------------------------------------------------------------

    @rule(level=st.sampled_from([None, *Priority]), delay=st.sampled_from([0, 0, 0, 3, 40, 200]))
    def enqueue(self, level: Priority | None, delay: int) -> None:
        self.made += 1  # ids that are drawn would decide who is first of two with one turn
        name = f"task-{self.made:05}"
        new = TaskSpec("1", id=name, priority=level, delay_in_seconds=delay)
        (made,) = self.process().use.tasks.enqueue("mail", [new])
        if level is not None and self.model.aging is None:
            assert made.outcome is EnqueueOutcome.INVALID
            return
        level = None if self.model.aging is None else level or Priority.NORMAL
        due = self.clock() + timedelta(seconds=delay)
        self.model.tasks[name] = ModelTask(level, self.model.lane_of(level), due)
        self.clock.forward(0.001)

    @rule(seconds=st.sampled_from([0.01, 1, 5, 21, 70, 130, 400]))
    def pass_time(self, seconds: float) -> None:
        self.store.past = None  # no lag lasts for seconds
        self.clock.forward(seconds)

    @rule(count=st.integers(1, 4), dies=st.sampled_from([None, None, None, "before", "after"]))
    def take(self, count: int, dies: str | None) -> None:
        places = [Place("mail", State.ENQUEUED, 0, lane) for lane in LANES.values()]
        shown = {
            (entry.task_id, entry.place.lane, entry.scheduled_at)
            for place in places
            for entry in self.store.entries(place, limit=999).entries
        }
        there = {
            name
            for name, task in self.model.tasks.items()
            if task.leased_until is None
            and task.due <= self.clock()
            and (name, task.lane, task.due) in shown
        }
        self.store.dies, self.store.refused = dies, 0
        try:
            taken = self.process().use.deliveries.dequeue("mail", batch_size=count).tasks
        except ProcessDied:
            self.look_at_leases()
            return
        finally:
            self.store.dies = None
        self.found_lapsed()
        for task in taken:
            known = self.model.tasks[task.id]
            assert known.due <= self.clock(), "delivered early"
            assert task.priority == known.level
        # An index that lags shows one that came back in its turn of before, and it is taken so.
        as_shown = self.store.refused == 0 and {task.id for task in taken} <= there
        if as_shown:
            self.check_order([task.id for task in taken], there, count)
        for task in taken:
            self.leased[task.id] = task
            known = self.model.tasks[task.id]
            known.leased_until = self.clock() + timedelta(seconds=KEEPALIVE)

    def check_order(self, taken: list[str], there: set[str], count: int) -> None:
        """Nothing that was left was overtaken by what falls due later than the bound allows."""
        assert len(taken) == min(count, len(there | {*taken})), "due, and not found"
        known = [self.model.tasks[name] for name in taken]
        turns = [(self.model.turn(task), task.due) for task in known]
        assert turns == sorted(turns), "not in the order of turns"
        for left in there - {*taken}:
            for name in taken:
                self.check_bound(self.model.tasks[left], self.model.tasks[name])

    def check_bound(self, left: ModelTask, taken: ModelTask) -> None:
        """Check that *left* may have been overtaken by what was *taken*."""
        aging = timedelta(seconds=self.model.aging or 0)
        higher = BY_LANE[left.lane] - BY_LANE[taken.lane]
        later = taken.due - left.due
        assert later <= timedelta() or later < higher * aging, "overtaken beyond the bound"
        if higher < 0:
            assert -later >= -higher * aging, "a lower one went first too soon"

    @precondition(lambda self: self.leased)
    @rule(data=st.data(), status=st.sampled_from(["SUCCEEDED", "FAILED", "RELEASED"]))
    def report(self, data: st.DataObject, status: str) -> None:
        self.say_of(data.draw(st.sampled_from(sorted(self.leased))), status)

    def say_of(self, name: str, status: str) -> None:
        task, known = self.leased.pop(name), self.model.tasks[name]
        said = self.process().say(task, status)
        if said.outcome != "OK":  # its lease has lapsed, and was taken back
            assert self.store.read([name])[name].lease_id != task.lease_id
            return
        if status == "SUCCEEDED":
            del self.model.tasks[name]
        else:
            wait = BACKOFF if status == "FAILED" else 0
            self.model.waits_again(known, self.clock() + timedelta(seconds=wait))

    @rule()
    def reap(self) -> None:
        self.process().use.reaping.run()
        self.found_lapsed()

    @rule(aging=AGINGS)
    def change_the_setting(self, aging: int | None) -> None:
        self.model.aging = aging
        self.process().use.queues.replace("mail", self.settings())

    @rule()
    def index_lags(self) -> None:
        self.store.freeze()

    @rule(data=st.data())
    def run_now(self, data: st.DataObject) -> None:
        later = [
            name
            for name, task in self.model.tasks.items()
            if task.leased_until is None and task.due > self.clock()
        ]
        if not later:
            return
        name = data.draw(st.sampled_from(sorted(later)))
        answer = self.process().use.bulk.by_ids("mail", BulkAction.RUN, [name])
        if answer.changed:
            self.model.waits_again(self.model.tasks[name], self.clock())

    # -- what the model hears of -------------------------------------------------------------------

    def found_lapsed(self) -> None:
        """Learn which lapsed leases were taken back: each waits again, with the usual backoff."""
        found = self.store.read(self.model.tasks)
        for name, known in self.model.tasks.items():
            stored = found.get(name)
            assert stored is not None, "lost"
            if known.leased_until is not None and stored.state is State.ENQUEUED:
                assert known.leased_until <= self.clock()
                self.model.waits_again(known, stored.due_at)

    def look_at_leases(self) -> None:
        """Learn what a process had leased when it died."""
        self.found_lapsed()
        for name, known in self.model.tasks.items():
            stored = self.store.read([name])[name]
            if known.leased_until is None and stored.state is State.INFLIGHT:
                assert known.due <= self.clock(), "delivered early"
                known.leased_until = stored.lease_expires_at

    @invariant()
    def every_task_is_in_its_lane(self) -> None:
        found = self.store.read(self.model.tasks)
        for name, known in self.model.tasks.items():
            stored = found.get(name)
            assert stored is not None, "lost"
            if known.leased_until is None:
                assert stored.state is State.ENQUEUED
                shown = (stored.priority, stored.place.lane)
                assert shown == (known.level, known.lane), "rank lost"

    def teardown(self) -> None:
        """Nothing starves: workers that go on come to everything."""
        self.store.past = None
        for _ in range(2 * len(self.model.tasks) + 3):
            if not self.model.tasks:
                break
            self.clock.forward(401)
            self.reap()
            self.take(25, None)
            for name, task in [*self.leased.items()]:
                if self.process().say(task, "SUCCEEDED").outcome == "OK":
                    del self.model.tasks[name]
                del self.leased[name]
        assert not self.model.tasks, "starved"


MEMORY = settings(
    max_examples=4,
    stateful_step_count=60,
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


def test_whatever_happens_priorities_keep_their_promises() -> None:
    run_machine(Priorities, settings=MEMORY)


@pytest.mark.slow
def test_priorities_keep_their_promises_for_very_many_steps() -> None:
    walk_far(Priorities)


# ---------------------------------------------------------------------- faults that must be found


def one_is_due_later(machine: Priorities) -> None:
    machine.enqueue(Priority.HIGH, 40)
    machine.take(1, None)


def one_fails(machine: Priorities) -> None:
    machine.enqueue(Priority.HIGH, 0)
    machine.take(1, None)
    machine.say_of(next(iter(machine.leased)), "FAILED")
    machine.every_task_is_in_its_lane()


def priorities_are_switched_off(machine: Priorities) -> None:
    machine.enqueue(Priority.HIGH, 0)
    machine.change_the_setting(None)
    machine.take(1, None)


def a_high_one_comes_after_the_bound(machine: Priorities) -> None:
    machine.enqueue(Priority.NORMAL, 0)
    machine.pass_time(130)
    machine.enqueue(Priority.HIGH, 0)
    machine.take(2, None)


@pytest.mark.parametrize(
    ("fault", "story", "found"),
    [
        (EARLY, one_is_due_later, "delivered early"),
        (RANKLESS, one_fails, "rank lost"),
        (FORGOTTEN, priorities_are_switched_off, "due, and not found"),
        (UNBOUNDED, a_high_one_comes_after_the_bound, "not in the order of turns"),
    ],
)
def test_a_planted_fault_is_found(
    fault: str, story: Callable[[Priorities], None], found: str
) -> None:
    right = Priorities()
    story(right)
    right.teardown()

    wrong = type("Planted", (Priorities,), {"fault": fault})()
    with pytest.raises(AssertionError, match=found):
        story(wrong)
