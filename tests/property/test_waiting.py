"""Whoever waits for the end of a task hears of it at once, whatever happens around the wait.

The real use case over SQLite, its waits on threads of their own that stop before and after each
look and in each pause, so that ends, retries, deletions and other waits come in between: some wait
to be told, others look again and again, and their reads may be old.  The clock is the test's.

The faults at the end are planted, and each is caught: so the machine is one that could fail.

Long, because what may happen and what is planted to be found are read together.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from threading import Event
from typing import Any, cast

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

from headrace.domain.errors import Conflict, NotFound
from headrace.domain.operate import BulkAction
from headrace.domain.queue import DeadLetterConfig
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import FINISHED, State, Task
from headrace.ops.tasks.wait import Waiting
from headrace.store.base import Store
from headrace.store.sqlite import SqliteStore
from headrace.store.sqlite.ends import TaskEnds
from tests.contract.conftest import new_world
from tests.manual_clock import ManualClock
from tests.property.all_orders import Actor
from tests.property.walks import walk_far

QUEUES = ("kept", "gone")
FIRST, LONGEST = 1.0, 5.0  # seconds that whoever is told nothing waits between two looks
MOST = 4  # tasks, and waits, at a time
ANY = st.integers(0, 1_000)
SECONDS = st.sampled_from([0, 0.5, 5, 20])

Seen = tuple[int, State] | None
"""How a task was at some moment: its version and state; None where there was none."""


class Waiter:
    """One wait, as far as it has come."""

    def __init__(self, machine: "Waits", task_id: str, seconds: float, *, listens: bool) -> None:
        self.machine, self.task_id, self.listens = machine, task_id, listens
        self.until = machine.clock() + timedelta(seconds=seconds)
        self.may: set[Seen] = set()  # what it may answer: what there was since it began
        self.due: datetime | None = None  # the end of its pause
        self.longest, self.event = 0.0, SteppedEvent(self)
        waiting = machine.kind(
            cast("Store", Looks(self)),
            machine.clock,
            poll_after_seconds=FIRST,
            sleep=self.rest,
            ends=machine.ends if listens else None,
            new_event=lambda: self.event,
        )
        self.actor = Actor(lambda: waiting.wait(task_id, seconds=seconds))

    @property
    def ready(self) -> bool:
        """Whether it would go on by itself."""
        resting = self.due is not None and self.machine.clock() < self.due
        return not (self.actor.over or (resting and not self.event.is_set()))

    def rest(self, seconds: float) -> None:
        self.longest = max(self.longest, seconds)
        self.due = self.machine.clock() + timedelta(seconds=seconds)
        self.actor.wait()
        self.due = None

    def die(self) -> None:
        """Come to an end before the next step."""
        self.actor.calls = 0
        while not self.actor.over:
            self.actor.go_on()


class SteppedEvent(Event):
    """One whose wait is a pause like any other."""

    def __init__(self, waiter: Waiter) -> None:
        super().__init__()
        self._waiter = waiter

    def wait(self, timeout: float | None = None) -> bool:
        if not self.is_set():
            self._waiter.rest(timeout or 0)
        return self.is_set()


class Looks:
    """The store as a wait sees it: others may come before and after each look."""

    def __init__(self, waiter: Waiter) -> None:
        self._waiter = waiter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._waiter.machine.world.store, name)

    def read(self, task_ids: list[str], *, consistent: bool = True) -> dict[str, Task]:
        machine = self._waiter.machine
        self._waiter.actor.wait()
        found = machine.world.store.read(task_ids)
        if machine.past is not None and not (consistent or self._waiter.listens):
            found = {name: task for name, task in machine.past.items() if name in task_ids}
        self._waiter.actor.wait()
        return found


class Waits(RuleBasedStateMachine):
    """A few tasks in two queues, of which one keeps nothing, and a few who wait for them."""

    kind: type[Waiting] = Waiting
    kind_of_ends: type[TaskEnds] = TaskEnds

    def __init__(self) -> None:
        super().__init__()
        self.clock, store = ManualClock(), SqliteStore()
        self.ends = store._ends = self.kind_of_ends(store._db)  # noqa: SLF001  its own kind
        self.world = new_world(store, self.clock)
        retry = RetryStrategy(Backoff.FIXED, 3, 2, 2, 0.0)
        self.world.queue("kept", keepalive_timeout_in_seconds=10, retry_strategy=retry)
        self.world.queue(
            "gone",
            keepalive_timeout_in_seconds=10,
            history_retention_in_seconds=0,
            dead_letter_queue_config=DeadLetterConfig(enable=False),
        )
        self.ids: list[str] = []
        self.held: list[Task] = []
        self.undos: list[str] = []
        self.waiters: list[Waiter] = []
        self.past: dict[str, Task] | None = None  # what reads show that are behind

    # -- what happens to tasks ---------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        self.enqueue("kept")

    @rule(queue=st.sampled_from(QUEUES))
    def enqueue(self, queue: str) -> None:
        self.clock.forward(0.001)
        (made,) = self.world.put(queue, id=f"task-{len(self.ids)}")
        self.ids.append(made)

    def one(self, which: int) -> str:
        latest = self.ids[-MOST:]
        return latest[which % len(latest)]

    @rule(queue=st.sampled_from(QUEUES))
    def take(self, queue: str) -> None:
        self.held += self.world.take(queue, 2)

    @precondition(lambda self: self.held)
    @rule(which=ANY, status=st.sampled_from(["SUCCEEDED", "FAILED", "RELEASED", "MOVED"]))
    def report(self, which: int, status: str) -> None:
        task = self.held.pop(which % len(self.held))
        fields: dict[str, Any] = {}
        if status == "FAILED":
            fields = {"retryable": which % 2 == 0}
        if status == "MOVED":
            fields = {"to_queue": QUEUES[task.queue == "kept"]}
        self.world.say(task, status, **fields)

    @rule(which=ANY)
    def cancel(self, which: int) -> None:
        with suppress(NotFound, Conflict):
            self.world.use.cancelling.cancel(self.one(which))

    @rule(which=ANY, undo=st.booleans())
    def delete(self, which: int, *, undo: bool) -> None:
        with suppress(NotFound):
            done = self.world.use.tasks.delete(self.one(which), undo_in_seconds=600 * undo)
            self.undos += [done.id] if done is not None else []

    @precondition(lambda self: self.undos)
    @rule()
    def undo(self) -> None:
        with suppress(NotFound):
            self.world.use.undoing.undo(self.undos.pop())

    @rule(which=ANY)
    def restart(self, which: int) -> None:
        self.world.use.bulk.by_ids("kept", BulkAction.RESTART, [self.one(which)])

    @rule(seconds=st.sampled_from([0.3, 1, 5, 21]))
    def time_passes(self, seconds: float) -> None:
        """Leases lapse, pauses end."""
        self.past = None  # no read is so far behind
        self.clock.forward(seconds)
        self.world.use.reaping.run()

    @rule()
    def reads_fall_behind(self) -> None:
        self.past = self.world.store.read(self.ids[-MOST:])

    # -- those who wait ----------------------------------------------------------------------

    @precondition(lambda self: len(self.waiters) < MOST)
    @rule(which=ANY, seconds=SECONDS, listens=st.booleans())
    def begin_to_wait(self, which: int, seconds: float, *, listens: bool) -> None:
        waiter = Waiter(self, self.one(which), seconds, listens=listens)
        if not listens and self.past and (old := self.past.get(waiter.task_id)):
            waiter.may.add((old.version, old.state))
        self.waiters.append(waiter)
        self.note()
        waiter.actor.start()

    @precondition(lambda self: any(one.ready for one in self.waiters))
    @rule(which=ANY)
    def go_on(self, which: int) -> None:
        """Let one who waits take a step."""
        ready = [one for one in self.waiters if one.ready]
        self.step(ready[which % len(ready)])

    @precondition(lambda self: self.waiters)
    @rule(which=ANY)
    def die(self, which: int) -> None:
        """A process ends, and with it a wait: it is begun anew, or not."""
        self.waiters.pop(which % len(self.waiters)).die()

    @rule()
    def come_to_rest(self) -> None:
        """Let all who wait go as far as they can; who is waiting then has a reason to."""
        while ready := [one for one in self.waiters if one.ready]:
            for waiter in ready:
                self.step(waiter)
        for waiter in self.waiters:
            assert self.clock() < waiter.until, "it waits beyond its time"
            if waiter.listens:
                there = self.shown(waiter.task_id)
                assert there is not None, "nobody has told that it is gone"
                assert there[1] not in FINISHED, "nobody has told of the end"

    def step(self, waiter: Waiter) -> None:
        self.note()
        waiter.actor.go_on()
        assert waiter.longest <= LONGEST, "it rests too long"
        if not waiter.actor.over:
            return
        self.waiters.remove(waiter)
        if waiter.actor.refusal is not None:
            assert None in waiter.may, "it is missing to who waits, and was there"
            return
        task = waiter.actor.answer
        assert (task.version, task.state) in waiter.may, "it was never so"
        if task.state not in FINISHED:
            assert self.clock() >= waiter.until, "it has not ended, and there was time"

    def shown(self, task_id: str) -> Seen:
        task = self.world.store.read([task_id]).get(task_id)
        if task is None or task.hidden(self.clock()):
            return None
        return task.version, task.state

    @invariant()
    def note(self) -> None:
        """Note what those who wait may have seen."""
        for waiter in self.waiters:
            waiter.may.add(self.shown(waiter.task_id))

    def teardown(self) -> None:
        """Everything ends, and all who wait hear of it."""
        self.past = None
        for task_id in self.ids:
            with suppress(NotFound, Conflict):
                self.world.use.cancelling.cancel(task_id)
        self.note()
        self.come_to_rest()
        self.clock.forward(LONGEST)
        self.come_to_rest()
        assert not self.waiters, "it waits for ever"
        assert not self.ends._wakes, "somebody is to be told who waits no longer"  # noqa: SLF001
        self.world.store.close()  # type: ignore[attr-defined]  # the file in memory


SOME = settings(
    max_examples=4,
    stateful_step_count=40,
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


def test_whoever_waits_hears_of_the_end_whatever_happens() -> None:
    run_state_machine_as_test(Waits, settings=SOME)


@pytest.mark.slow
def test_whoever_waits_hears_of_the_end_for_very_many_steps() -> None:
    walk_far(Waits)


# ----------------------------------------------------------------------------------- planted faults


class ClearsBehindTheLook(Waiting):
    """Forgets on going to rest that it has been woken since it looked."""

    @contextmanager
    def _pausing(self, task_id: str) -> Iterator[Callable[[float], None]]:
        assert self.ends is not None
        woken = self.new_event()

        def pause(most: float) -> None:
            woken.clear()
            woken.wait(min(most, FIRST))

        with self.ends.told(task_id, woken.set):
            yield pause


class ListensBehindTheLook(Waiting):
    """Asks to be told when it has looked: what ends in between is told to nobody."""

    @contextmanager
    def _pausing(self, task_id: str) -> Iterator[Callable[[float], None]]:
        woken = self.new_event()

        def pause(most: float) -> None:
            assert self.ends is not None
            with self.ends.told(task_id, woken.set):
                woken.wait(min(most, FIRST))

        yield pause


class TakesARetryForAnEnd(Waiting):
    """Goes by the error of an attempt."""

    def _look(self, task_id: str) -> Task:
        task = super()._look(task_id)
        dead = replace(task, place=replace(task.place, state=State.DEAD))
        return dead if task.errors else task


class BelievesTheFirstLook(Waiting):
    """Takes what a read does not show that may be behind for missing."""

    def _look(self, task_id: str) -> Task:
        found = self.store.read([task_id], consistent=False).get(task_id)
        if found is None:
            raise NotFound("there is none")
        return found


class RestsEverLonger(Waiting):
    """Looks ever more seldom."""

    @contextmanager
    def _pausing(self, task_id: str) -> Iterator[Callable[[float], None]]:
        rests = iter(FIRST * 2**number for number in range(99))
        yield lambda most: self.sleep(min(most, next(rests)))


class RestsBeyondItsTime(Waiting):
    """Does not ask how much time is left."""

    @contextmanager
    def _pausing(self, task_id: str) -> Iterator[Callable[[float], None]]:
        yield lambda _: self.sleep(FIRST)


class TakesOthersAlong(TaskEnds):
    """Forgets all who wait for a task when one of them goes."""

    @contextmanager
    def told(self, task_id: str, wake: Callable[[], None]) -> Iterator[None]:
        try:
            with super().told(task_id, wake):
                yield
        finally:
            self._wakes.pop(task_id, None)


class KeepsThoseWhoLeft(TaskEnds):
    """Forgets nobody."""

    @contextmanager
    def told(self, task_id: str, wake: Callable[[], None]) -> Iterator[None]:
        self._wakes.setdefault(task_id, []).append(wake)
        yield


class TellsOfWhatIsKept(TaskEnds):
    """Tells nobody of a task that is gone."""

    def ended(self, task_ids: Any) -> None:
        with self._db.reading() as db:
            there = {row[0] for row in db.execute("SELECT id FROM tasks WHERE state IS NOT NULL")}
        super().ended([task_id for task_id in task_ids if task_id in there])


def ends_behind_the_look(machine: Waits) -> None:
    machine.begin_to_wait(0, 20, listens=True)
    machine.go_on(0)  # it has looked, and does not rest yet
    machine.cancel(0)
    machine.come_to_rest()


def is_tried_again(machine: Waits) -> None:
    machine.take("kept")
    machine.report(0, "FAILED")
    machine.begin_to_wait(0, 5, listens=False)
    machine.come_to_rest()


def is_too_new_for_a_read(machine: Waits) -> None:
    machine.reads_fall_behind()
    machine.enqueue("kept")
    machine.begin_to_wait(1, 5, listens=False)
    machine.come_to_rest()


def takes_long(machine: Waits) -> None:
    machine.begin_to_wait(0, 20, listens=False)
    for _ in range(10):
        machine.come_to_rest()
        machine.time_passes(1)


def is_waited_for_half_a_second(machine: Waits) -> None:
    machine.begin_to_wait(0, 0.5, listens=False)
    machine.come_to_rest()
    for _ in range(2):
        machine.time_passes(0.3)
    machine.come_to_rest()


def one_of_two_dies(machine: Waits) -> None:
    for _ in range(2):
        machine.begin_to_wait(0, 20, listens=True)
    machine.come_to_rest()
    machine.die(0)
    machine.cancel(0)
    machine.come_to_rest()


def goes_without_a_trace(machine: Waits) -> None:
    machine.begin_to_wait(0, 20, listens=True)
    machine.come_to_rest()
    machine.delete(0, undo=False)
    machine.come_to_rest()


@pytest.mark.parametrize(
    ("fault", "story", "found"),
    [
        (ClearsBehindTheLook, ends_behind_the_look, "nobody has told of the end"),
        (ListensBehindTheLook, ends_behind_the_look, "nobody has told of the end"),
        (TakesARetryForAnEnd, is_tried_again, "it was never so"),
        (BelievesTheFirstLook, is_too_new_for_a_read, "was there"),
        (RestsEverLonger, takes_long, "it rests too long"),
        (RestsBeyondItsTime, is_waited_for_half_a_second, "beyond its time"),
        (TakesOthersAlong, one_of_two_dies, "nobody has told of the end"),
        (KeepsThoseWhoLeft, one_of_two_dies, "waits no longer"),
        (TellsOfWhatIsKept, goes_without_a_trace, "that it is gone"),
    ],
)
def test_what_is_planted_in_waits_is_seen(
    fault: type[Any], story: Callable[[Waits], None], found: str
) -> None:
    class Planted(Waits):
        if issubclass(fault, Waiting):
            kind = fault
        else:
            kind_of_ends = fault

    tell(Waits(), story)

    with pytest.raises(AssertionError, match=found):
        tell(Planted(), story)


def tell(machine: Waits, story: Callable[[Waits], None]) -> None:
    machine.begin()
    story(machine)
    machine.teardown()
