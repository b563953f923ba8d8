"""Push under crashes, lost answers, seats that pass on and each other's steps.

Dispatchers are the real code, each with a memory of its own, over one store; targets answer as the
machine says.  At the end a fresh dispatcher finds all that is left.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar, cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from headrace.domain.errors import Unavailable
from headrace.domain.ids import group_of
from headrace.domain.plan import TaskSpec
from headrace.domain.push import Target
from headrace.domain.push_answers import TargetAnswer
from headrace.domain.queue import QueueSettings
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import State, Task
from headrace.ops.delivery.leasing import QueueLook
from headrace.ops.delivery.push import PushRun
from headrace.ops.shared.seats import LASTS, Seat
from headrace.runtime.wiring import Settings, UseCases, build
from headrace.store.base import Store
from tests.manual_clock import ManualClock
from tests.property.stores import STORES, everything
from tests.property.walks import in_part

_PROCESSES = 3
_THREADS = 2
_WATCHED = frozenset({"commit", "put_record", "change_group", "open_group"})
_ANSWERS = {
    "done": TargetAnswer(200, b"1"),
    "busy": TargetAnswer(503, retry_after="0"),
    "broken": TargetAnswer(500),
    "silent": TargetAnswer(None, error="Timeout"),
    "rejected": TargetAnswer(422),
}
processes = st.integers(0, _PROCESSES - 1)


class FaultyTables:
    """A store as one process sees it: a write may not come about, or its answer may be lost."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.fault: str | None = None

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)
        if name not in _WATCHED:
            return real

        def call(*given: Any, **how: Any) -> Any:
            if self.fault == "lease lost" and name != "commit":
                return real(*given, **how)
            fault, self.fault = self.fault, None
            if fault == "refused":
                raise Unavailable("away")
            answer = real(*given, **how)
            if fault in ("lost", "lease lost"):
                raise Unavailable("the answer was lost")
            return answer

        return call


class Pushed(RuleBasedStateMachine):
    """Each attempt is reported on once, and no dispatcher has more under way than it may."""

    make: ClassVar[Callable[[], Store]] = STORES["memory"]
    new_seat: ClassVar[Callable[..., Seat]] = Seat

    def __init__(self) -> None:
        super().__init__()
        self.store, self.clock = type(self).make(), ManualClock()
        self.start = self.clock()
        self.views = [FaultyTables(self.store) for _ in range(_PROCESSES)]
        self.use = [self._process(cast("Store", view)) for view in self.views]
        self.runs: list[PushRun | None] = [None] * _PROCESSES
        self.all_runs: list[PushRun] = []
        self.sent: list[dict[str, Task]] = [{} for _ in range(_PROCESSES)]
        self.number = 0
        retries = RetryStrategy(Backoff.FIXED, max_retries=100, base_seconds=0, jitter=0)
        self.use[0].queues.create(
            "q",
            QueueSettings(
                target=Target(url="https://a.example/", max_concurrency=_THREADS),
                retry_strategy=retries,
            ),
        )
        self.enqueue(6)

    def _process(self, store: Store) -> UseCases:
        use = build(Settings(admin_key="k", settings_ttl_seconds=0), store, now=self.clock)
        use.deliveries.arrivals = None
        use.deliveries.sleep = self.clock.forward
        use.push.monotonic = self._seconds
        use.push.new_seat = type(self).new_seat
        return use

    def _seconds(self) -> float:
        return (self.clock() - self.start).total_seconds()

    def _tasks(self) -> list[Task]:
        return [task for task in everything(self.store) if not task.remains]

    # ------------------------------------------------------------------------------------- rules

    @rule()
    def enqueue_one(self) -> None:
        self.enqueue(1)

    def enqueue(self, count: int) -> None:
        specs = [TaskSpec("1", id=f"task-{self.number + n}") for n in range(count)]
        self.number += count
        self.use[0].tasks.enqueue("q", specs)

    def _begin(self, which: int) -> None:
        if self.runs[which] is None:
            run = self.use[which].push.begin("q")
            self.runs[which], self.sent[which] = run, {}
            if run is not None:
                self.all_runs.append(run)

    @rule(
        which=processes,
        fault=st.sampled_from([None, None, "refused", "lost"]),
        renews=st.booleans(),
    )
    def fetch(self, which: int, fault: str | None, *, renews: bool) -> None:
        self._begin(which)
        run = self.runs[which]
        if run is None:
            return
        if renews:
            run.renew()
        self.clock.forward(0.001)
        held, allowed = run.seat.held, run.limit.allowed(self._seconds())
        self.views[which].fault = fault
        tasks: Any = ()
        with suppress(Unavailable):
            tasks = run.fetch()
        self.views[which].fault = None
        assert held or not tasks, "took tasks without its seat"
        assert len(tasks) <= allowed, "took more than the target can bear"
        self.sent[which] |= {task.id: task for task in tasks}

    @rule(
        place=st.integers(0, 5),
        answer=st.sampled_from(sorted(_ANSWERS)),
        fault=st.sampled_from([None, None, "refused", "lost"]),
    )
    def answer(self, place: int, answer: str, fault: str | None) -> None:
        pairs = [
            (which, name)
            for which in range(_PROCESSES)
            if self.runs[which] is not None
            for name in sorted(self.sent[which])
        ]
        if not pairs:
            return
        which, name = pairs[place % len(pairs)]
        run, task = self.runs[which], self.sent[which].pop(name)
        assert run is not None
        before = {one.id: one for one in self._tasks()}.get(task.id)
        self.views[which].fault = fault
        run.settle([(task, _ANSWERS[answer], 0.1)])
        self.views[which].fault = None
        after = {one.id: one for one in self._tasks()}.get(task.id)
        if fault == "refused" or before is None or before.lease_id != task.lease_id:
            return  # unsaid yet, or its lease has passed on
        assert after is not None
        if answer == "busy":
            assert (after.attempts, after.errors) == (task.attempts - 1, before.errors)
        if answer == "done":
            assert after.state is State.SUCCEEDED
        if answer == "rejected":
            assert after.state is State.DEAD

    @rule(which=processes, fault=st.sampled_from([None, None, "refused", "lost"]))
    def renew(self, which: int, fault: str | None) -> None:
        run = self.runs[which]
        if run is not None:
            self.views[which].fault = fault
            with suppress(Unavailable):
                run.renew()
            self.views[which].fault = None

    @rule(which=processes)
    def crash(self, which: int) -> None:
        self.runs[which] = None

    @rule(which=processes)
    def close(self, which: int) -> None:
        run, self.runs[which] = self.runs[which], None
        if run is None:
            return
        held = run.holds
        run.close()
        if held:
            assert not self._inflight(run), "left tasks behind that nobody works on"

    @rule(seconds=st.sampled_from([0.4, 1.0, 5.0, 21.0, 61.0]))
    def pass_time(self, seconds: float) -> None:
        self.clock.forward(seconds)

    @rule()
    def reap(self) -> None:
        self.use[0].reaping.run()

    @rule()
    def a_worker_asks(self) -> None:
        assert not self.use[0].deliveries.dequeue("q", batch_size=5, worker="ada").tasks

    # -------------------------------------------------------------------------------- invariants

    def _inflight(self, run: PushRun) -> list[Task]:
        return [
            task
            for task in self._tasks()
            if task.state is State.INFLIGHT and group_of(task.lease_id) == run.group_id
        ]

    @invariant()
    def one_has_the_seat(self) -> None:
        assert sum(run.seat.held for run in self.runs if run is not None) <= 1

    @invariant()
    def no_more_is_under_way_than_there_are_threads(self) -> None:
        for run in self.all_runs:
            assert len(self._inflight(run)) <= _THREADS

    @invariant()
    def each_attempt_has_one_end(self) -> None:
        for task in self._tasks():
            attempts = [error.attempt for error in task.errors]
            assert len(attempts) == len(set(attempts)), "an attempt was reported on twice"
            assert task.attempts >= len(attempts)

    def teardown(self) -> None:
        """Whatever happened: one that comes now brings all to its end."""
        self.clock.forward(2 * LASTS.total_seconds())
        self.use[0].reaping.run()
        run = self.use[0].push.begin("q")
        assert run is not None, "the seat is stuck"
        for _ in range(self.number + 10):
            self.clock.forward(0.001)
            run.settle([(task, _ANSWERS["done"], 0.1) for task in run.fetch()])
        run.close()
        assert all(task.state in (State.SUCCEEDED, State.DEAD) for task in self._tasks())
        assert len(self._tasks()) == self.number


_SETTINGS = settings(
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("examples", [4, pytest.param(in_part(60), marks=pytest.mark.slow)])
@pytest.mark.parametrize("store", sorted(STORES))
def test_push_holds_what_it_promises(store: str, examples: int) -> None:
    machine = type("PushedOver", (Pushed,), {"make": staticmethod(STORES[store])})
    run_state_machine_as_test(machine, settings=settings(_SETTINGS, max_examples=examples))


# ---------------------------------------------------------------------- faults that must be found


class GreedySeat(Seat):
    """Takes what another has."""

    def _of_another(self, body: Any, now: Any) -> bool:
        return False


class UnsureSeat(Seat):
    """Believes that it has what it has not."""

    def take(self, notes: Any = None) -> bool:
        super().take(notes)
        self._until = self.monotonic() + 60
        return True


class EternalSeat(Seat):
    """Does not know that a seat ends."""

    @property
    def held(self) -> bool:
        return self._until > 0


def _without_unsaid(run: PushRun) -> int:
    return max(0, run.limit.allowed(run.dispatch.monotonic()) - len(run.inflight))


def _no_room(run: PushRun) -> int:
    return 5


def _no_closing(run: PushRun) -> None:
    run.seat.give_up({})


def _busy_fails(self: PushRun, task: Task, answer: TargetAnswer) -> Any:
    return _report(self, task, TargetAnswer(500) if answer.busy else answer)


def _trusts(self: PushRun) -> None:
    self._unsure = False


def _forgets(self: PushRun) -> None:
    self._unsaid.clear()


_report = PushRun._report  # noqa: SLF001  what a fault stands in for
_FAULTS: dict[str, tuple[type, str, Any]] = {
    "a seat is taken from its holder": (Pushed, "new_seat", GreedySeat),
    "a lost race for a seat is not noticed": (Pushed, "new_seat", UnsureSeat),
    "a seat that has ended is used": (Pushed, "new_seat", EternalSeat),
    "the threads are not counted": (PushRun, "room", property(_no_room)),
    "what is held is not given back": (PushRun, "close", _no_closing),
    "a busy target costs an attempt": (PushRun, "_report", _busy_fails),
    "reports are forgotten": (PushRun, "_say", _forgets),
    "workers get the tasks too": (QueueLook, "_paused", lambda self: False),
}


def _story_of_a_report_that_waits() -> None:
    """Two tasks are sent, and the report on one is refused: no third is sent before it is said."""
    machine = Pushed()
    machine.fetch(0, None, renews=False)
    machine.answer(0, "done", "refused")
    machine.fetch(0, None, renews=False)
    machine.no_more_is_under_way_than_there_are_threads()


def _story_of_tasks_leased_unheard() -> None:
    """The answer to the leases of a fetch is lost: they are given back before others are taken."""
    machine = Pushed()
    machine.fetch(0, "lease lost", renews=False)
    machine.renew(0, None)
    machine.fetch(0, None, renews=False)
    machine.no_more_is_under_way_than_there_are_threads()


def test_what_was_leased_unheard_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    _story_of_tasks_leased_unheard()
    monkeypatch.setattr(PushRun, "_give_back_unknown", _trusts)

    with pytest.raises(AssertionError):
        _story_of_tasks_leased_unheard()


def test_a_report_that_waits_takes_the_place_of_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    _story_of_a_report_that_waits()
    monkeypatch.setattr(PushRun, "room", property(_without_unsaid))

    with pytest.raises(AssertionError):
        _story_of_a_report_that_waits()


@pytest.mark.slow
@pytest.mark.parametrize("fault", sorted(_FAULTS))
def test_the_machine_finds(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, wrong = _FAULTS[fault]
    monkeypatch.setattr(where, name, wrong)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            Pushed,
            settings=settings(
                _SETTINGS, max_examples=1500, report_multiple_bugs=False, phases=[Phase.generate]
            ),
        )
