"""An action among all that may befall it: each task is changed once and counted once.

Between any two writes of whoever works on it, and within each, something happens: the worker is
killed, or stalls while another one takes over; somebody pauses, resumes or cancels; tasks run, die
or are deleted.  First each of these at each place, then several.  That this would find what is
wrong is shown by faults put in.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.domain.change import Change
from headrace.domain.errors import Conflict
from headrace.domain.filters import TaskFilter
from headrace.domain.lifecycle import Actor
from headrace.domain.operate import ActionStatus, BulkAction
from headrace.domain.queue import QueueSettings
from headrace.domain.task import Task
from headrace.ops.delivery.reports import WorkerError
from headrace.ops.operators.action_work import CLAIMED_FOR, ActionWork
from headrace.ops.shared.audit import AuditFilter
from headrace.runtime.wiring import build
from headrace.store.base import Done, Outcome
from headrace.store.memory import MemoryStore
from headrace.store.records.actions import ActionRun
from tests.contract.conftest import World, new_world
from tests.manual_clock import ManualClock

TASKS = 6
PLACES = range(20)
"""Before and after each write of a worker; no action here has more."""
SOME = (2, 7, 13)  # of them: before and after a write, and late
OTHERS = [place for place in PLACES if place not in SOME]


class Killed(BaseException):
    """The process is no more."""


@dataclass
class WatchedStore:
    """The store of those who work on an action: what happens at its writes, and what they change.

    ``script`` has what happens before (even numbers) and after (odd ones) each write.
    """

    store: MemoryStore
    script: dict[int, list[Callable[[], None]]] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    place: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def happen(self) -> None:
        place, self.place = self.place, self.place + 1
        for event in self.script.pop(place, ()):
            event()

    def commit(self, changes: Sequence[Change], **how: Any) -> list[Outcome]:
        if not changes:
            return []
        self.happen()
        ids = [change.task_id for change in changes]
        before = self.store.read(ids)
        outcomes = self.store.commit(changes, **how)
        after = self.store.read(ids)
        for change, outcome in zip(changes, outcomes, strict=True):
            name = change.task_id
            # What was done before is known again, and told as done.
            done = isinstance(outcome, Done) and before.get(name) != after.get(name)
            if done and change.rule.actor is Actor.OPERATOR:
                self.changed.append(name)
        self.happen()
        return outcomes

    def put_record(self, *args: Any, **how: Any) -> bool:
        self.happen()
        put = self.store.put_record(*args, **how)
        self.happen()
        return put

    def drop_record(self, *args: Any, **how: Any) -> bool:
        self.happen()
        gone = self.store.drop_record(*args, **how)
        self.happen()
        return gone


class Scene:
    """Six tasks, an action on them that is begun, and what may happen to both."""

    def __init__(
        self,
        action: BulkAction,
        work: type[ActionWork] = ActionWork,
        *,
        history: int = 600,
        undo: int = 600,
    ) -> None:
        self.clock = ManualClock()
        self.watched = WatchedStore(MemoryStore())
        self.world: World = new_world(self.watched.store, self.clock)
        settings = QueueSettings(history_retention_in_seconds=history)
        self.world.use.queues.create("mail", settings)
        self.world.use.queues.create("archive", settings)
        self.theirs = build(self.world.use.settings, self.watched, now=self.now)
        self.make_work = work
        waits = {"delay_in_seconds": 3_600} if action is BulkAction.RUN else {}
        self.ids = self.world.put("mail", *["{}"] * TASKS, **waits)
        states: tuple[str, ...] = ("ENQUEUED",)
        if action is BulkAction.RESTART:
            states = ("DEAD",)
            for task in self.world.take("mail", TASKS):
                self.end(task, "FAILED")
        self.clock.forward(1)
        where = TaskFilter(states=states)
        found = self.world.use.selections.look(action, ["mail"], where, by="ada")
        assert found.count == TASKS
        run = self.world.use.actions.begin(
            found.name,
            at=0,
            to_queue="archive" if action is BulkAction.MOVE else None,
            undo_in_seconds=undo,
            reason="the server is back",
        )
        self.run_id, self.action, self.history = run.id, action, history

    def now(self) -> Any:
        """Return the time, which goes on by itself."""
        self.clock.forward(0.000001)
        return self.clock()

    @property
    def run(self) -> ActionRun:
        return self.world.use.actions.get(self.run_id)

    def worker(self) -> ActionWork:
        use = self.theirs
        made = self.make_work(
            self.watched, use.actions, use.bulk, use.action_work.undos, use.keys, self.now
        )
        return replace(made, part=2)

    def work(self, parts: int = 100) -> None:
        """Work on it as long as there is something to do, and this process lives."""
        left = iter(range(parts, 0, -1))
        with suppress(Killed):
            self.worker().run(time_left=lambda: next(left, 0))

    # -- what may happen -------------------------------------------------------------------------

    def kill(self) -> None:
        raise Killed

    def take_over(self) -> None:
        """Another worker goes on with it, for this one has not been heard of for a while."""
        self.clock.forward(CLAIMED_FOR.total_seconds() + 1)
        self.work()

    def take_a_part_over(self) -> None:
        self.clock.forward(CLAIMED_FOR.total_seconds() + 1)
        self.work(parts=1)

    def pause(self) -> None:
        self.ask(self.world.use.actions.pause)

    def resume(self) -> None:
        self.ask(self.world.use.actions.resume)

    def cancel(self) -> None:
        self.ask(self.world.use.actions.cancel)

    def ask(self, wanted: Callable[[str], object]) -> None:
        self.clock.forward(0.001)
        with suppress(Conflict):  # it is over
            wanted(self.run_id)

    def succeed(self) -> None:
        for task in self.take():
            self.end(task, "SUCCEEDED")

    def die(self) -> None:
        for task in self.take():
            self.end(task, "FAILED")

    def take(self) -> tuple[Task, ...]:
        self.clock.forward(0.001)
        return (*self.world.take("mail", 2), *self.world.take("archive", 1))

    def end(self, task: Task, status: str) -> None:
        error = WorkerError("Timeout", "no", "") if status == "FAILED" else None
        fields = {"error": error, "retryable": False} if error else {}
        self.world.say(task, status, **fields)
        self.clock.forward(0.001)

    def restart_by_hand(self) -> None:
        self.clock.forward(0.001)  # no two actions are of one microsecond
        ids = [name for name in self.ids[2:4] if name not in self.watched.changed]
        if ids and self.action is BulkAction.RESTART:
            self.world.use.bulk.by_ids("mail", BulkAction.RESTART, ids)
        self.clock.forward(0.001)

    # -- what holds ------------------------------------------------------------------------------

    def finish(self) -> None:
        """Let time pass and somebody work on it until it is over, and look at what it says."""
        self.watched.script.clear()
        for _ in range(3):
            self.clock.forward(CLAIMED_FOR.total_seconds() + 1)
            if self.run.status is ActionStatus.PAUSED:
                self.resume()
            self.work()
        run, changed = self.run, self.watched.changed
        assert run.over
        assert len(changed) == len(set(changed)), "a task was changed twice"
        uncounted = len(changed) - run.changed
        assert 0 <= uncounted <= self.gone(), "it counts what it has not done, or the reverse"
        if run.status is ActionStatus.DONE:
            assert run.changed + sum(run.left.values()) == run.total
        assert run.at <= TASKS
        rows = self.world.use.audit.list(AuditFilter(action=str(self.action))).shown
        assert sum(row.run is not None for row in rows) == 1, "one row for an action"
        entry = next(row for row in rows if row.run is not None)
        assert (entry.run, entry.changed, entry.matched) == (run.id, run.changed, run.total)
        assert not self.world.store.records("acting", limit=1)[0]

    def gone(self) -> int:
        """How many tasks ended after they were changed, and are not kept.

        Of such a one nobody knows any more what a killed worker did to it.
        """
        if self.history or self.action is BulkAction.DELETE:
            return 0
        return len(self.ids) - len(self.world.store.read(self.ids))


EVENTS = (
    *("kill", "take_over", "take_a_part_over", "pause", "resume", "cancel"),
    *("succeed", "die", "restart_by_hand"),
)


def happens(scene: Scene, events: Sequence[tuple[int, str]]) -> None:
    for place, event in events:
        scene.watched.script.setdefault(place, []).append(getattr(scene, event))
    scene.work()
    scene.finish()


@pytest.mark.parametrize("action", BulkAction)
@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("places", [SOME, pytest.param(OTHERS, marks=pytest.mark.slow)])
def test_whatever_happens_at_any_write_each_task_is_changed_and_counted_once(
    action: BulkAction, event: str, places: Sequence[int]
) -> None:
    for place in places:
        happens(Scene(action), [(place, event)])


@pytest.mark.slow
@settings(deadline=None)
@given(
    action=st.sampled_from(BulkAction),
    history=st.sampled_from([0, 600]),
    events=st.lists(
        st.tuples(st.integers(0, 2 * len(PLACES)), st.sampled_from(EVENTS)), min_size=2, max_size=5
    ),
)
def test_so_it_is_when_much_happens(
    action: BulkAction, history: int, events: list[tuple[int, str]]
) -> None:
    happens(Scene(action, history=history), events)


def test_a_worker_that_sleeps_while_its_action_is_cancelled_and_ended_does_no_more() -> None:
    """Its next part was begun in the write before it was cancelled."""
    happens(Scene(BulkAction.DELETE), [(7, "cancel"), (8, "take_over")])


@pytest.mark.slow
@settings(deadline=None)
@given(events=st.lists(st.tuples(st.integers(0, len(PLACES)), st.just("kill")), max_size=4))
def test_what_is_deleted_for_good_is_counted_too(events: list[tuple[int, str]]) -> None:
    happens(Scene(BulkAction.DELETE, undo=0), events)


# -- faults, and that they are found ---------------------------------------------------------------


class ForgetsItsStamps(ActionWork):
    """Takes a part over as if nobody had begun it."""

    def _with_part(self, run: ActionRun, found: Any) -> ActionRun:
        begun = super()._with_part(run, found)
        assert begun.part is not None
        return replace(begun, part=replace(begun.part, stamps=begun.part.stamps[-1:]))


class CountsWhatWasTakenOver(ActionWork):
    """Counts a part though another worker has done so."""

    def _saved(self, run: ActionRun, found: Any, outcomes: Any, *, more: bool) -> Any:
        stored = self.actions.get(run.id)
        if not stored.over and stored.part != run.part:
            number = sum(one.changed for one in outcomes)
            self.actions.put(replace(stored, changed=stored.changed + number))
            return None
        return super()._saved(run, found, outcomes, more=more)


class ActsBeforeItNotes(ActionWork):
    """Acts on a part before it is written down."""

    def _with_part(self, run: ActionRun, found: Any) -> ActionRun:
        begun = super()._with_part(run, found)
        self._act(begun, found)
        return begun


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "event"),
    [
        (ForgetsItsStamps, "kill"),
        (ForgetsItsStamps, "take_over"),
        (CountsWhatWasTakenOver, "take_a_part_over"),
        (ActsBeforeItNotes, "kill"),
    ],
)
def test_faults_are_found(fault: type[ActionWork], event: str) -> None:
    found = 0
    for place in PLACES:
        try:
            happens(Scene(BulkAction.RESTART, fault), [(place, event)])
        except AssertionError:
            found += 1
    assert found
