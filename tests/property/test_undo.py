"""Deletions and undos among all else, in any order: a task comes back as it was, or not at all.

The machine knows what each undo keeps, and says before each undo what comes back.  Indexes lag,
calls are cut off and repeated.  That it would find what is wrong is shown by faults put in.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from headrace.domain.change import Change
from headrace.domain.errors import NotFound
from headrace.domain.filters import TaskFilter
from headrace.domain.lifecycle import Action
from headrace.domain.operate import BulkAction
from headrace.domain.queue import QueueSettings
from headrace.domain.task import LIVE, SHOWN_STATES, State, Task
from headrace.store.base import Outcome, Store
from headrace.testing.conditions import Faults
from headrace.testing.stores import LaggingStore
from tests.contract.conftest import new_world
from tests.manual_clock import ManualClock
from tests.property.walks import walk_far

IDS = [f"task-{number}" for number in range(3)]
KEYS = [None, "k"]
KEPT = 600  # seconds that history and undos last
QUEUE = "mail"

ids, keys, states = st.sampled_from(IDS), st.sampled_from(KEYS), st.sampled_from(SHOWN_STATES)


def as_kept(task: Task) -> Task:
    """Return *task* without what a deletion and an undo may change."""
    return replace(
        task, version=0, last_move="", lease_id=None, lease_expires_at=None, lease_length=None
    )


class UndoMachine(RuleBasedStateMachine):
    """One queue of few ids; ``kept`` is by undo what it may bring back, as it was."""

    def make_store(self) -> Store:
        return self.lagging

    def __init__(self) -> None:
        super().__init__()
        self.faults = Faults(seed=1)
        self.lagging = LaggingStore(self.faults)
        self.world = new_world(self.make_store(), ManualClock())
        self.world.use.queues.create(QUEUE, QueueSettings(history_retention_in_seconds=KEPT))
        self.seen: dict[str, Task] = {}
        self.kept: dict[str, dict[str, Task]] = {}
        self.ends: dict[str, Any] = {}
        self.named: set[str] = set()
        self.look()

    def look(self) -> None:
        """Note what is there, whatever the index shows."""
        now = self.world.clock()
        everything = self.lagging.everything()
        self.seen = {task.id: task for task in everything if not task.hidden(now)}

    def hide(self, undo: Any, *, by_ids: bool = False) -> None:
        """Note that what is missing since the last look is kept by *undo*."""
        before = self.seen
        self.look()
        gone = {name: task for name, task in before.items() if name not in self.seen}
        if undo is not None:
            self.kept[undo.id], self.ends[undo.id] = gone, undo.until
            if by_ids:
                self.named.add(undo.id)

    def forget(self, task_id: str) -> None:
        """Note that an id is used again: nothing brings back what had it."""
        for tasks in self.kept.values():
            tasks.pop(task_id, None)

    # -- what happens to tasks ---------------------------------------------------------------

    @rule(task_id=ids, key=keys)
    def enqueue(self, task_id: str, key: str | None) -> None:
        taken = task_id in self.seen
        holder = self.holder(key)
        self.world.clock.forward(0.001)  # a purge takes what came at its own instant
        (made,) = self.world.put(QUEUE, id=task_id, dedupe_key=key)
        if not taken and holder is None:
            assert made == task_id, "an id that is deleted is free, and so is its key"
            self.forget(task_id)
        self.look()

    def holder(self, key: str | None) -> str | None:
        now = self.world.clock()
        live = (task for task in self.seen.values() if key and task.holds(QUEUE, key, now))
        return next((task.id for task in live), None)

    @rule(count=st.integers(1, 3))
    def take(self, count: int) -> None:
        for task in self.world.take(QUEUE, count):
            assert task.id in self.seen, "a deleted task is delivered"
        self.look()

    @rule(succeeds=st.booleans())
    def finish(self, succeeds: bool) -> None:  # noqa: FBT001  drawn
        for task in self.seen.values():
            if task.state is State.INFLIGHT:
                if succeeds:
                    self.world.say(task, "SUCCEEDED")
                else:
                    self.world.say(task, "FAILED", retryable=False)
                break
        self.look()

    @rule(seconds=st.sampled_from([1, 20, 200]))
    def passes(self, seconds: int) -> None:
        """A purge may find late what the index did not show: its undo keeps that too."""
        before = self.seen
        self.world.clock.forward(seconds)
        self.world.use.reaping.run()
        self.look()
        for name, task in self.lagging.spent(before.keys() - self.seen.keys()).items():
            if task.deleted_by in self.kept:
                self.kept[task.deleted_by][name] = before[name]

    @rule()
    def index_lags(self) -> None:
        self.faults.slow_index(times=2)

    # -- deletions and undos -----------------------------------------------------------------

    @rule(task_id=ids, seconds=st.sampled_from([0, KEPT]))
    def delete(self, task_id: str, seconds: int) -> None:
        self.world.clock.forward(0.001)
        try:
            undo = self.world.use.tasks.delete(task_id, undo_in_seconds=seconds)
        except NotFound:
            assert task_id not in self.seen
            return
        assert task_id in self.seen
        self.hide(undo, by_ids=True)
        assert task_id not in self.seen

    @rule(task_id=ids)
    def replace_the_holder_of_the_key(self, task_id: str) -> None:
        """Where others are most in the way: rare by chance alone."""
        holder = self.holder("k")
        if holder is not None and task_id not in self.seen:
            self.delete(holder, KEPT)
            self.enqueue(task_id, "k")

    @rule(task_id=ids, key=keys)
    def use_an_id_again(self, task_id: str, key: str | None) -> None:
        """Likewise."""
        if task_id in self.seen:
            self.delete(task_id, KEPT)
            self.enqueue(task_id, key)

    @rule(state=states)
    def delete_many(self, state: State) -> None:
        self.world.clock.forward(0.001)
        where = TaskFilter(states=(str(state),))
        done = self.world.use.bulk.by_filter(QUEUE, BulkAction.DELETE, where, undo_in_seconds=KEPT)
        self.hide(done.undo)

    @rule(state=states)
    def purge(self, state: State) -> None:
        self.world.clock.forward(0.001)
        done = self.world.use.queues.purge(QUEUE, (state,), undo_in_seconds=KEPT)
        self.hide(done.undo)

    @rule(number=st.integers(0, 20), cut=st.booleans())
    def undo(self, number: int, cut: bool) -> None:  # noqa: FBT001  drawn
        if not self.kept:
            return
        undo_id = list(self.kept)[number % len(self.kept)]  # by age: its id is random
        self.world.clock.forward(0.001)
        now, lags = self.world.clock(), self.faults.active("slow index")
        if self.ends[undo_id] <= now:
            assert self.missing(lambda: self.world.use.undoing.undo(undo_id))
            return
        self.world.use.undoing.patience = -1 if cut else 20  # a page a call, the rest later
        expected = self.expected(undo_id)
        answer = self.world.use.undoing.undo(undo_id)
        restored = {one.id for one in answer.results if one.outcome == "RESTORED"}
        assert answer.changed == len(restored)
        before = self.seen
        self.look()
        for task_id in restored:
            task = self.kept[undo_id].pop(task_id)
            self.check_back(task, self.seen[task_id])
        others = {name: task for name, task in self.seen.items() if name not in restored}
        assert others == before, "an undo has touched what is none of its tasks"
        if not lags or undo_id in self.named:
            assert restored == expected
        else:
            assert restored <= expected

    def expected(self, undo_id: str) -> set[str]:
        """Say which tasks an undo brings back: of those of one key the first that is met."""
        now, back = self.world.clock(), set()
        held = {key for key in KEYS if key and self.holder(key)}
        for task_id, task in sorted(self.kept[undo_id].items()):
            if task.retained_until is not None and task.retained_until <= now:
                continue
            if task.state in LIVE and task.dedupe_key is not None:
                if task.dedupe_key in held:
                    continue
                held.add(task.dedupe_key)
            back.add(task_id)
        return back

    def check_back(self, before: Task, after: Task) -> None:
        if before.state is State.INFLIGHT:
            now = after.due_at
            assert now >= before.due_at
            before = replace(
                before,
                place=replace(before.place, state=State.ENQUEUED),
                due_at=now,
                scheduled_at=now,
                returned_at=now,
                attempts=before.attempts - 1,
            )
        assert as_kept(after) == as_kept(before)
        assert after.version == before.version + 2

    @staticmethod
    def missing(look: Callable[[], object]) -> bool:
        """Tell whether *look* finds nothing."""
        try:
            look()
        except NotFound:
            return True
        return False

    # -- what always holds -------------------------------------------------------------------

    @invariant()
    def what_is_deleted_is_hidden(self) -> None:
        if self.faults.active("slow index"):
            return
        listed = self.world.use.inspect.list(QUEUE).tasks
        assert {task.id for task in listed} == self.seen.keys()
        assert self.world.use.inspect.count(QUEUE).count == len(self.seen)
        for task_id in IDS:
            if task_id not in self.seen:
                assert self.missing(partial(self.world.see, task_id))

    @invariant()
    def one_holds_a_key(self) -> None:
        now = self.world.clock()
        holding = [task.id for task in self.seen.values() if task.holds(QUEUE, "k", now)]
        assert len(holding) <= 1


FEW = settings(
    max_examples=12, stateful_step_count=30, deadline=None, derandomize=True,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


QUICK = settings(
    FEW, max_examples=400, phases=[Phase.generate],
    report_multiple_bugs=False,
)  # fmt: skip


def test_deletions_and_undos_in_any_order_keep_every_promise() -> None:
    run_state_machine_as_test(UndoMachine, settings=FEW)


@pytest.mark.slow
def test_deletions_and_undos_keep_them_for_very_many_steps() -> None:
    walk_far(UndoMachine)


class FaultyStore:
    """Passes everything on, changes as *wrong* makes them."""

    def __init__(self, store: LaggingStore, wrong: Callable[[Change], Change]) -> None:
        self._store, self._wrong = store, wrong

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, changes: Sequence[Change], **how: Any) -> list[Outcome]:
        return self._store.commit([self._wrong(change) for change in changes], **how)


def takes_held_keys(change: Change) -> Change:
    """Let an undo restore a task whose key somebody else holds by now."""
    if change.rule.action is not Action.UNDELETE:
        return change
    return replace(change, also=())


def forgets_the_due_time(change: Change) -> Change:
    """Let what waited come back due at another time."""
    if change.rule.action is not Action.UNDELETE or "due_at" not in change.put:
        return change
    due = change.put["due_at"] + timedelta(seconds=1)
    return replace(change, put={**change.put, "due_at": due, "scheduled_at": due})


def stays_in_place(change: Change) -> Change:
    """Let a deletion hide a task by a mark alone: the index shows it where it was."""
    if change.rule.target is not State.DELETED:
        return change
    left = {name: value for name, value in change.put.items() if name == "deleted_by"}
    return replace(change, put=left, clear=())


def keeps_the_retention_of_the_undo(change: Change) -> Change:
    """Let what was finished be kept as long as the undo, not as long as it was."""
    if change.rule.action is not Action.UNDELETE:
        return change
    put = {name: value for name, value in change.put.items() if name != "retained_until"}
    clear = tuple(name for name in change.clear if name != "retained_until")
    return replace(change, put=put, clear=clear)


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [
        takes_held_keys,
        forgets_the_due_time,
        stays_in_place,
        keeps_the_retention_of_the_undo,
    ],
)
def test_a_fault_in_a_change_is_found(wrong: Callable[[Change], Change]) -> None:
    class Faulty(UndoMachine):
        def make_store(self) -> Store:
            return cast("Store", FaultyStore(self.lagging, wrong))

    with pytest.raises((AssertionError, KeyError, ExceptionGroup)):
        run_state_machine_as_test(Faulty, settings=QUICK)


class ShowsDeleted(LaggingStore):
    """A store whose index shows what is deleted among what waits, and that reads it too."""

    def _found(self, task_ids: Any) -> dict[str, Task]:
        found = super()._found(task_ids)
        return {
            name: replace(task, place=replace(task.place, state=State.ENQUEUED))
            if task.state is State.DELETED
            else task
            for name, task in found.items()
        }


class RestoresOverUsedIds(LaggingStore):
    """A store that remembers what was deleted by its id, and puts it back whatever is there."""

    def __init__(self, faults: Faults) -> None:
        super().__init__(faults)
        self.deleted: dict[str, Task] = {}

    def commit(self, changes: Sequence[Change], **how: Any) -> list[Outcome]:
        outcomes = super().commit(changes, **how)
        for task in list(self._tasks.values()):
            if task.state is State.DELETED:
                self.deleted[task.id] = task
        return outcomes

    def spent(self, task_ids: Any) -> dict[str, Task]:
        wanted = list(task_ids)
        for task_id in wanted:
            there = self._tasks.get(task_id)
            if task_id in self.deleted and there is not None and there.deleted_by is None:
                self._put(there, self.deleted[task_id])
        return super().spent(wanted)


@pytest.mark.slow
@pytest.mark.parametrize("store", [ShowsDeleted, RestoresOverUsedIds])
def test_a_fault_in_the_store_is_found(store: type[LaggingStore]) -> None:
    class Faulty(UndoMachine):
        def make_store(self) -> Store:
            self.lagging = store(self.faults)
            return self.lagging

    with pytest.raises((AssertionError, KeyError, ExceptionGroup)):
        run_state_machine_as_test(Faulty, settings=QUICK)
