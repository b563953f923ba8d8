"""Strict order on several processes, whatever happens: nobody overtakes, and all get through.

Long, because what may happen and what is planted to be found are read together.

Producers and those who deliver may die at any call of the store, the index shows new tasks late,
tasks are deleted, expire, fail, lapse and are restarted.  What is asked is in ``strict_store``:
nothing there knows of lines, places or slots.

The faults at the end are planted, and each is caught: so the store is one that could find them.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from headrace.domain.fairness import GroupMode, GroupSettings, OnDead, PlaceTaking
from headrace.domain.operate import BulkAction
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import QueueSettings
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.slots import SlotTaking
from headrace.domain.strict import NOTES
from headrace.domain.task import State, Task
from tests.contract.conftest import World, new_world
from tests.manual_clock import ManualClock
from tests.property.strict_store import InOrder

KEYS, PROCESSES, KEEPALIVE, BACKOFF = ("a", "b"), 3, 20, 7
QUEUE = "line"

Story: TypeAlias = Callable[["World", "Faulty"], None]

NO_NOTES = "nobody notes who dies undelivered"
NO_POINTER = "nobody asks for the one before"
NO_WAIT = "who is missing is believed gone at once"
EAGER = "what waits for its retry is over"
STALE = "what was missing a moment ago is believed gone"


class CallerDied(BaseException):
    """It does nothing more."""


class Faulty(InOrder):
    """The same with a planted *fault*, and callers that die when ``dies`` calls are over."""

    def __init__(self, clock: ManualClock, *, halt: bool = False, fault: str = "") -> None:
        super().__init__(clock, halt=halt)
        self.fault = fault
        self.dies: int | None = None

    def read(self, task_ids: Iterable[str], **how: Any) -> dict[str, Task]:
        found = super().read(task_ids, **how)
        if self.fault == STALE:
            old = super().read(task_ids, consistent=False)
            found = {
                name: one for name, one in found.items() if one.started_at is None or name in old
            }
        changed = {
            NO_POINTER: lambda task: replace(task, after=None),
            NO_WAIT: _older,
            EAGER: self._ended,
        }.get(self.fault)
        return found if changed is None else {name: changed(one) for name, one in found.items()}

    def take_slot(self, queue: str, take: SlotTaking) -> bool:
        if self.fault == NO_NOTES and take.number in NOTES:
            return True
        return super().take_slot(queue, take)

    def _ended(self, task: Task) -> Task:
        if task.state is not State.ENQUEUED or task.due_at <= self.clock():
            return task
        return replace(task, place=replace(task.place, state=State.SUCCEEDED))


def _older(task: Task) -> Task:
    return replace(task, enqueued_at=task.enqueued_at - timedelta(minutes=1), returned_at=None)


class Mortal:
    """A store as one process has it, which may die at any of its calls."""

    def __init__(self, store: Faulty) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in ("commit", "lines", "take_slot", "take_places", "read", "entries"):
            return found

        def call(*given: Any, **how: Any) -> Any:
            store = self._store
            if store.dies is not None:
                store.dies -= 1
                if store.dies < 0:
                    store.dies = None
                    raise CallerDied
            return found(*given, **how)

        return call


class StrictOrder(RuleBasedStateMachine):
    """Producers, processes that deliver, workers and operators of one strict queue."""

    halt = False

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.store = Faulty(self.clock, halt=self.halt)
        self.processes = [self.process() for _ in range(PROCESSES)]
        self.held: list[Task] = []
        on_dead = OnDead.HALT if self.halt else OnDead.CONTINUE
        self.processes[0].use.queues.create(
            QUEUE,
            QueueSettings(
                keepalive_timeout_in_seconds=KEEPALIVE,
                expires_in_seconds=0,
                retry_strategy=RetryStrategy(Backoff.FIXED, 2, BACKOFF, BACKOFF, 0.0),
                groups=GroupSettings(GroupMode.STRICT, on_dead=on_dead),
                shards=2,
            ),
        )

    def process(self) -> World:
        return new_world(Mortal(self.store), self.clock)

    @rule(
        number=st.integers(0, PROCESSES - 1),
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=3),
        dies=st.none() | st.integers(0, 3),
        expires=st.sampled_from([False, False, True]),
        again=st.sampled_from([False, False, True]),
    )
    def enqueue(
        self, number: int, keys: list[str], dies: int | None, *, expires: bool, again: bool
    ) -> None:
        name, call = self.store.call()
        until = self.clock() + timedelta(seconds=5) if expires else None
        new = TaskSpec("1", tags={"call": name}, expires_at=until)
        tasks = [replace(new, group_key=key) for key in keys]
        if again:  # some are there already: they take a place and leave it empty
            there = {task.group_key: task.id for task in self.store.every()}
            tasks = [replace(one, id=there.get(one.group_key)) for one in tasks]
        self.store.dies = dies
        try:
            self.processes[number].use.tasks.enqueue(QUEUE, tasks)
        except CallerDied:
            self.processes[number] = self.process()
        else:
            self.store.acknowledge(call)
        self.store.dies = None

    @rule(number=st.integers(0, PROCESSES - 1), dies=st.none() | st.integers(0, 8))
    def take(self, number: int, dies: int | None) -> None:
        self.store.dies = dies
        try:
            self.held += self.processes[number].take(QUEUE, 3)
        except CallerDied:
            self.processes[number] = self.process()
        self.store.dies = None

    @precondition(lambda self: self.held)
    @rule(
        says=st.sampled_from(["SUCCEEDED", "FAILED", "RELEASED", "dead", "nothing"]),
        number=st.integers(0, PROCESSES - 1),
    )
    def report(self, says: str, number: int) -> None:
        task = self.held.pop(0)
        if says == "dead":
            self.processes[number].say(task, "FAILED", retryable=False)
        elif says != "nothing":
            self.processes[number].say(task, says)

    @rule(seconds=st.sampled_from([0.1, 1.5, 3.0, 11.0, 25.0]))
    def wait(self, seconds: float) -> None:
        self.clock.forward(seconds)

    @rule(last=st.integers(1, 3), action=st.sampled_from(["delete", "undo", "cancel"]))
    def touch(self, last: int, action: str) -> None:
        fresh = [one for one in self.store.waiting() if one.started_at is None]
        waiting = fresh[-last:]
        if not waiting:
            return
        tasks, name = self.processes[0].use.tasks, waiting[0].id
        if action == "cancel":
            self.processes[0].use.bulk.by_ids(QUEUE, BulkAction.CANCEL, [name])
        elif action == "delete":
            tasks.delete(name)
        else:
            undo = tasks.delete(name, undo_in_seconds=3600)
            assert undo is not None
            self.processes[0].use.undoing.undo(undo.id)
            self.placed(name, waiting[0])

    @rule()
    def restart(self) -> None:
        """Restart one that is dead."""
        dead = [one for one in self.store.every() if one.state is State.DEAD]
        for task in dead[:1]:
            self.processes[0].use.bulk.by_ids(QUEUE, BulkAction.RESTART, [task.id])
            self.placed(task.id, task)

    def forget(self) -> None:
        """Delete the dead that nobody has had."""
        for task in self.store.every():
            if task.state is State.DEAD and task.started_at is None:
                self.processes[0].use.tasks.delete(task.id)

    def placed(self, name: str, before: Task) -> None:
        """Note whether an operator's action has put a task behind all others."""
        if self.store.read([name])[name].after != before.after:
            self.store.put_behind(name)

    def teardown(self) -> None:
        """All that waits gets through, but for what is behind a dead one that halts."""
        self.store.dies = None
        for _ in range(100):
            if not self.store.waiting():
                return
            self.clock.forward(KEEPALIVE + 2)
            for task in self.processes[0].take(QUEUE, 5):
                self.processes[0].say(task, "SUCCEEDED")
            if self.halt:
                self.restart()
                self.forget()
        raise AssertionError("stuck")


class HaltingOrder(StrictOrder):
    """The same where a dead task halts its group."""

    halt = True


LONG = settings(
    max_examples=15,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.generate],
)


@pytest.mark.parametrize("machine", [StrictOrder, HaltingOrder])
def test_whatever_happens_nobody_overtakes_and_all_get_through(
    machine: type[RuleBasedStateMachine],
) -> None:
    run_machine(machine, settings=LONG)


# -- planted faults ------------------------------------------------------------


def world_of(fault: str, on_dead: OnDead = OnDead.CONTINUE) -> tuple[World, Faulty]:
    clock = ManualClock()
    store = Faulty(clock, fault=fault, halt=on_dead is OnDead.HALT)
    world = new_world(store, clock)
    retry = RetryStrategy(Backoff.FIXED, 2, 60, 60, 0.0)
    groups = GroupSettings(GroupMode.STRICT, on_dead=on_dead)
    world.queue(QUEUE, groups=groups, retry_strategy=retry)
    return world, store


def put(world: World, store: Faulty, *, lag: float = 0) -> str:
    name, call = store.call()
    (result,) = world.use.tasks.enqueue(QUEUE, [TaskSpec("1", group_key="a", tags={"call": name})])
    store.acknowledge(call)
    store.lags[str(result.id)] = lag
    return str(result.id)


def a_hidden_one(world: World, store: Faulty) -> None:
    put(world, store, lag=4)
    put(world, store)
    world.take(QUEUE, 5)


def a_hidden_one_and_one_that_never_comes(world: World, store: Faulty) -> None:
    put(world, store, lag=4)
    store.take_places(QUEUE, PlaceTaking("=a", 10_000, 0, ahead=False, last="never"))
    put(world, store)
    world.take(QUEUE, 5)


def a_retry(world: World, store: Faulty) -> None:
    put(world, store)
    put(world, store)
    world.say(world.one(QUEUE), "FAILED")
    world.clock.forward(2)
    world.take(QUEUE, 5)


@pytest.mark.parametrize(
    ("fault", "story"),
    [
        (NO_POINTER, a_hidden_one),
        (NO_WAIT, a_hidden_one_and_one_that_never_comes),
        (EAGER, a_retry),
    ],
)
def test_each_of_these_faults_is_caught(fault: str, story: Story) -> None:
    story(*world_of(""))
    with pytest.raises(AssertionError, match="overtakes"):
        story(*world_of(fault))


def test_so_is_one_that_believes_a_read_that_may_be_old() -> None:
    def story(world: World, store: Faulty) -> None:
        put(world, store)
        put(world, store)
        world.take(QUEUE, 1)
        new_world(store, world.clock).take(QUEUE, 1)

    story(*world_of(""))
    with pytest.raises(AssertionError, match="two are in flight"):
        story(*world_of(STALE))


@pytest.mark.parametrize("end", ["cancelled", "expired"])
def test_so_is_one_that_halts_and_is_forgotten_when_the_next_one_goes(end: str) -> None:
    """Nobody had it, the next was deleted, and who was to be behind that one never came."""

    def story(world: World, store: Faulty) -> None:
        put(world, store)
        world.say(world.one(QUEUE), "SUCCEEDED")
        name, call = store.call()
        until = world.clock() + timedelta(seconds=9)
        new = TaskSpec("1", group_key="a", tags={"call": name}, expires_at=until)
        (result,) = world.use.tasks.enqueue(QUEUE, [new])
        store.acknowledge(call)
        deleted = put(world, store)
        store.take_places(QUEUE, PlaceTaking("=a", 10_000, 0, ahead=False, last="never"))
        put(world, store)
        if end == "cancelled":
            world.use.cancelling.cancel(str(result.id))
        world.clock.forward(10)
        world.take(QUEUE, 5)
        world.use.tasks.delete(deleted)
        world.clock.forward(12)
        world.take(QUEUE, 5)

    story(*world_of("", OnDead.HALT))
    with pytest.raises(AssertionError, match="overtakes"):
        story(*world_of(NO_NOTES, OnDead.HALT))


def deleted(world: World, store: Faulty) -> None:
    world.use.tasks.delete(put(world, store))


def there_already(world: World, store: Faulty) -> None:
    given = TaskSpec("1", id=put(world, store), group_key="a")
    world.use.tasks.enqueue(QUEUE, [given, given])
    world.say(world.one(QUEUE), "SUCCEEDED")


def a_duplicate(world: World, store: Faulty) -> None:
    for _ in range(2):
        name, call = store.call()
        given = TaskSpec("1", group_key="a", dedupe_key="k", tags={"call": name})
        world.use.tasks.enqueue(QUEUE, [given])
        store.acknowledge(call)
    world.clock.forward(5)
    world.say(world.one(QUEUE), "SUCCEEDED")


def a_child_that_is_there_already(world: World, store: Faulty) -> None:
    name = put(world, store)
    world.queue("parents")
    world.use.tasks.enqueue("parents", [TaskSpec("1", tags={"call": "0"})])
    world.clock.forward(5)
    spawn = ((QUEUE, TaskSpec("1", id=name, group_key="a")),) * 2
    world.say(world.one("parents"), "SUCCEEDED", spawn=spawn)
    world.say(world.one(QUEUE), "SUCCEEDED")


@pytest.mark.parametrize(
    "story", [deleted, there_already, a_duplicate, a_child_that_is_there_already]
)
def test_whoever_is_behind_a_place_that_is_empty_goes_at_once(story: Story) -> None:
    def taken(fault: str) -> int:
        world, store = world_of(fault)
        story(world, store)
        put(world, store)
        return len(world.take(QUEUE, 5))

    assert taken("") == 1
    assert taken(NO_NOTES) == 0


def test_a_call_that_ends_with_the_last_one_takes_places_of_its_own() -> None:
    world, store = world_of("")
    last = put(world, store)
    name, call = store.call()
    new = TaskSpec("1", id="new", group_key="a", tags={"call": name})
    world.use.tasks.enqueue(QUEUE, [new, replace(new, id=last)])
    store.acknowledge(call)
    world.clock.forward(5)

    assert [task.id for task in world.take(QUEUE, 5)] == [last]
    world.clock.forward(20)
    assert not world.take(QUEUE, 5)


def test_a_call_that_is_made_again_takes_places_of_its_own() -> None:
    """Else the note that two were left empty would hide the one that is put in by then."""
    world, store = world_of("")
    name, call = store.call()
    new = TaskSpec("1", group_key="a", dedupe_key="k", tags={"call": name})
    world.use.tasks.enqueue(QUEUE, [new])
    store.acknowledge(call)
    name, call = store.call()
    pair = [replace(new, id=each, tags={"call": name}) for each in ("one", "two")]
    world.use.tasks.enqueue(QUEUE, pair)  # the key is held
    world.clock.forward(5)
    world.say(world.one(QUEUE), "SUCCEEDED")
    world.use.tasks.enqueue(QUEUE, pair)  # by "one" now
    store.acknowledge(call)
    store.lags["one"] = 4
    put(world, store)

    assert not world.take(QUEUE, 5)
    world.clock.forward(5)
    assert [task.id for task in world.take(QUEUE, 5)] == ["one"]
