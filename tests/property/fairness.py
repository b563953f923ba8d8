"""Groups of one queue on one shard, whatever happens: each gets its turn within the bound.

Tasks of several groups come at once or later; workers take, fail, give back and die; producers die
between the write of a line and that of their tasks, and repeat themselves; the index lags; each
process has its own, old, idea of the highest turn delivered.  The model knows of each group which
of its tasks wait for their turn, in the order in which they were acknowledged, and counts what is
delivered before the first of them: nothing of lines or of how the service finds tasks.
"""

import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.domain.fairness import (
    GroupMode,
    GroupSettings,
)
from headrace.domain.operate import BulkAction
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import QueueSettings
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import RETURN_LANE, TURN_LANE, State, Task
from tests.contract.conftest import World, new_world
from tests.manual_clock import ManualClock
from tests.property.fair_store import WEIGHTS, CallerDied, LineStore

KEEPALIVE, BACKOFF, PROCESSES = 20, 7, 3
KEYS = ("noisy", "quiet", "heavy", "light", None)
LIGHTEST = min(WEIGHTS.values())
SELDOM = st.sampled_from([False] * 11 + [True])
LANES = (0, TURN_LANE, RETURN_LANE)


@dataclass
class FairTask:
    """What the model knows of a task that is not done."""

    key: str | None
    lane: int
    due: datetime
    leased_until: datetime | None = None


@dataclass
class FairGroup:
    """The tasks of a group that wait for their turn, as acknowledged; ``ahead`` of the first.

    ``ahead`` counts by group what was delivered by turn since the first one is the first;
    ``wasted`` are turns that were taken for nothing before each, and since the last.
    """

    line: list[str] = field(default_factory=list)
    ahead: dict[str | None, int] = field(default_factory=dict)
    wasted: dict[str, int] = field(default_factory=dict)
    since: int = 0


class Fairness(RuleBasedStateMachine):
    """One queue of one shard, and processes that each know what they know."""

    fault = ""
    largest = 4  # of a batch, and of a call

    def __init__(self) -> None:
        super().__init__()
        self.store, self.clock = LineStore(self.fault), ManualClock()
        self.tasks: dict[str, FairTask] = {}
        self.groups = {key: FairGroup() for key in KEYS}
        self.leased: dict[str, Task] = {}
        self.made = 0
        self.sound = self.calm = True
        self.unknown = self.lately = 0  # what was delivered and somebody may not know of
        self.unserved: dict[int, int] = dict.fromkeys(LANES, 0)
        self.processes = [self.process() for _ in range(PROCESSES)]
        self.processes[0].use.queues.create("mail", self.settings())

    def process(self) -> World:
        world = new_world(self.store, self.clock)
        world.use.deliveries.chance = world.use.deliveries.claims.chance = random.Random(1)
        return world

    def settings(self) -> QueueSettings:
        return QueueSettings(
            keepalive_timeout_in_seconds=KEEPALIVE,
            expires_in_seconds=0,
            retry_strategy=RetryStrategy(Backoff.FIXED, 100, BACKOFF, BACKOFF, 0.0),
            groups=GroupSettings(GroupMode.FAIR, WEIGHTS),
        )

    # -- what happens ------------------------------------------------------------------------------

    @rule(
        key=st.sampled_from(KEYS),
        count=st.sampled_from([1, 1, 2, 4, 12]),
        delay=st.sampled_from([0, 0, 0, 0, 3, 40]),
        by=st.integers(0, PROCESSES - 1),
        dies=SELDOM,
        repeats=SELDOM,
        haste=SELDOM,
    )
    def enqueue(
        self,
        key: str | None,
        count: int,
        delay: int,
        by: int,
        *,
        dies: bool,
        repeats: bool,
        haste: bool,
    ) -> None:
        self.let_others_know(haste=haste)
        self.unknown += self.lately if haste else 0
        names = [f"task-{self.made + number:05}" for number in range(count)]
        self.made += count
        new = [
            TaskSpec("1", id=name, group_key=key, delay_in_seconds=delay or None) for name in names
        ]
        group = self.groups[key]
        if dies and not delay:
            self.store.dies = "in line"
            try:
                self.processes[by].use.tasks.enqueue("mail", new)
            except CallerDied:
                self.processes[by] = self.process()
                group.since += count
            finally:
                self.store.dies = None
            if not repeats:
                return
        due = self.clock() + timedelta(seconds=delay)
        for _ in range(1 + repeats):
            results = self.processes[by].use.tasks.enqueue("mail", new)
            again = any(result.outcome != "CREATED" for result in results)
            group.since += count if again and not delay else 0
            if not again and not delay:
                group.wasted[names[0]], group.since = group.since, 0
            for name, result in zip(names, results, strict=True):
                if result.outcome == "CREATED":
                    self.tasks[name] = FairTask(key, 0 if delay else TURN_LANE, due)
        if not delay:
            if not group.line:
                group.ahead.clear()
            group.line += names
        self.clock.forward(0.001)

    def let_others_know(self, *, haste: bool) -> None:
        """Let so much time pass that everybody may know what is delivered, unless in *haste*."""
        if not haste:
            self.pass_time(1.1)

    @rule(seconds=st.sampled_from([5, 21, 70]))
    def pass_time(self, seconds: float) -> None:
        self.store.past = None  # no lag lasts for seconds
        self.clock.forward(seconds)

    @rule(
        count=st.integers(1, 4),
        by=st.integers(0, PROCESSES - 1),
        dies=st.sampled_from([None] * 12 + ["before", "after"]),
        haste=SELDOM,
    )
    def take(self, count: int, by: int, dies: str | None, *, haste: bool) -> None:
        self.let_others_know(haste=haste)
        due = self.due_by_lane()
        # Who has lost a race, as a lagging index lets one, takes only a part for a while.
        part = self.processes[by].use.deliveries.claims.part("mail", self.clock())
        self.calm = self.store.past is None and part.of == 1
        self.store.dies = dies
        try:
            taken = self.processes[by].use.deliveries.dequeue("mail", batch_size=count).tasks
        except CallerDied:
            self.processes[by] = self.process()
            self.look_at_leases()
            self.unknown += count
            return
        finally:
            self.store.dies = None
        self.lately = count
        self.unknown += count if haste else 0
        self.sound = False  # until all of it is looked at
        self.found_lapsed()
        if self.calm:  # what is due is had, whatever lane it is in
            assert len(taken) >= min(count, sum(map(len, due.values()))), "due, and left"
            self.check_lanes([self.tasks[task.id].lane for task in taken], due)
        for task in sorted(taken, key=lambda task: (task.turn or task.due_at, task.id)):
            known = self.tasks[task.id]
            assert known.due <= self.clock(), "delivered early"
            self.delivered(task.id)
            self.leased[task.id] = task
            known.leased_until = self.clock() + timedelta(seconds=KEEPALIVE)
        self.sound = True

    def due_by_lane(self) -> dict[int, set[str]]:
        due: dict[int, set[str]] = {lane: set() for lane in LANES}
        for name, known in self.tasks.items():
            if known.leased_until is None and known.due <= self.clock():
                due[known.lane].add(name)
        return due

    def check_lanes(self, taken: list[int], due: dict[int, set[str]]) -> None:
        """No lane with something due goes without for more than each process' turn of others."""
        for lane in LANES:
            if lane in taken or not due[lane] or not taken:
                self.unserved[lane] = 0
            else:
                self.unserved[lane] += len(taken)
            # Each process lets the lanes take turns by itself, so each may skip it twice.
            assert self.unserved[lane] <= 2 * PROCESSES * self.largest, "a lane starves"

    def delivered(self, name: str) -> None:
        """Learn that a task is with a worker; if it had a turn, check what was before it."""
        known = self.tasks[name]
        if known.lane != TURN_LANE:
            return
        group = self.groups[known.key]
        behind = group.line.index(name)
        assert behind == 0 or not self.calm, "not in order"
        group.line.remove(name)
        if not self.calm:
            for one in self.groups.values():
                one.ahead.clear()
        if behind == 0:
            self.check_bound(name, group)
            group.ahead.clear()
        for key, other in self.groups.items():
            if key != known.key and other.line:
                other.ahead[known.key] = other.ahead.get(known.key, 0) + 1

    def check_bound(self, name: str, group: FairGroup) -> None:
        """Check what was delivered while this task was the first of its group that waited.

        Each group had so many turns between this one and the one before it, and one that is the
        same as either.  Those who took theirs without knowing the latest turn delivered came
        earlier, by no more than they did not know.
        """
        key = self.tasks[name].key
        for other, ahead in group.ahead.items():
            share = WEIGHTS.get(other or "", 1.0) / WEIGHTS.get(key or "", 1.0)
            allowed = ceil(share * (1 + group.wasted.get(name, 0))) + 1
            missed = ceil(self.unknown * max(WEIGHTS.get(other or "", 1.0), 1.0) / LIGHTEST)
            assert ahead <= allowed + missed, f"overtaken {ahead} times, not {allowed}"

    @precondition(lambda self: self.leased)
    @rule(data=st.data(), status=st.sampled_from(["SUCCEEDED", "SUCCEEDED", "FAILED", "RELEASED"]))
    def report(self, data: st.DataObject, status: str) -> None:
        self.say_of(data.draw(st.sampled_from(sorted(self.leased))), status)

    def say_of(self, name: str, status: str) -> None:
        task, known = self.leased.pop(name), self.tasks[name]
        said = self.processes[0].say(task, status)
        if said.outcome != "OK":  # its lease has lapsed, and was taken back
            assert self.store.read([name])[name].lease_id != task.lease_id
            return
        if status == "SUCCEEDED":
            del self.tasks[name]
        else:
            wait = BACKOFF if status == "FAILED" else 0
            self.comes_back(known, self.clock() + timedelta(seconds=wait))

    def comes_back(self, known: FairTask, due: datetime) -> None:
        known.lane, known.due, known.leased_until = RETURN_LANE, due, None

    @rule()
    def reap(self) -> None:
        self.processes[0].use.reaping.run()
        self.found_lapsed()

    @rule()
    def index_lags(self) -> None:
        self.store.freeze()

    @rule(by=st.integers(0, PROCESSES - 1))
    def restart_process(self, by: int) -> None:
        self.processes[by] = self.process()

    @rule(data=st.data())
    def run_now(self, data: st.DataObject) -> None:
        later = [
            name
            for name, task in self.tasks.items()
            if task.leased_until is None and task.due > self.clock()
        ]
        if not later:
            return
        name = data.draw(st.sampled_from(sorted(later)))
        answer = self.processes[0].use.bulk.by_ids("mail", BulkAction.RUN, [name])
        if answer.changed:
            known = self.tasks[name]
            known.lane, known.due = 0, self.clock()

    # -- what the model hears of -------------------------------------------------------------------

    def found_lapsed(self) -> None:
        """Learn which lapsed leases were taken back: each waits again, with the usual backoff."""
        found = self.store.read(self.tasks)
        for name, known in self.tasks.items():
            stored = found.get(name)
            assert stored is not None, "lost"
            if known.leased_until is not None and stored.state is State.ENQUEUED:
                assert known.leased_until <= self.clock()
                self.comes_back(known, stored.due_at)

    def look_at_leases(self) -> None:
        """Learn what a process had leased when it died."""
        self.found_lapsed()
        flying = [
            stored
            for name, known in self.tasks.items()
            if known.leased_until is None
            and (stored := self.store.read([name])[name]).state is State.INFLIGHT
        ]
        for stored in sorted(flying, key=lambda task: (task.turn or task.due_at, task.id)):
            assert self.tasks[stored.id].due <= self.clock(), "delivered early"
            self.delivered(stored.id)
            self.tasks[stored.id].leased_until = stored.lease_expires_at

    @invariant()
    def every_task_is_in_its_lane(self) -> None:
        found = self.store.read(self.tasks)
        for name, known in self.tasks.items():
            stored = found.get(name)
            assert stored is not None, "lost"
            if known.leased_until is None:
                assert stored.state is State.ENQUEUED
                assert (stored.group_key, stored.place.lane) == (known.key, known.lane), "lane lost"

    @invariant()
    def turns_of_a_group_rise(self) -> None:
        for group in self.groups.values():
            tasks = self.store.read(group.line)
            turns = [tasks[name].turn for name in group.line]
            assert all(turns), "no turn"
            assert turns == sorted(set(turns)), "turns fall back"  # type: ignore[type-var]

    def teardown(self) -> None:
        """Nothing starves: workers that go on come to everything."""
        if not self.sound:
            return  # something else has failed, and says more
        self.store.past = None
        for _ in range(2 * len(self.tasks) + 3):
            if not self.tasks:
                break
            self.clock.forward(80)
            self.reap()
            self.largest = 25
            self.take(25, 0, None, haste=False)
            for name, task in [*self.leased.items()]:
                if self.processes[0].say(task, "SUCCEEDED").outcome == "OK":
                    del self.tasks[name]
                del self.leased[name]
        assert not self.tasks, "starved"
