"""Cancels, heartbeats, reports and crashes in any order: what was cancelled stays so.

Long, because what may happen and what is planted to be found are read together.

The real service, and the real parts of two workers, step by step: only the handlers are the
test's, which ends them when it likes.  What must be seen is planted too: each fault is a store or a
worker that leaves out something that this rests on.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

import httpx2 as httpx
import msgspec
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

from headrace import App, Client, Finished, LeaseLost, NotFound, Observer, Report
from headrace.client.app.execution import TaskRoute
from headrace.client.calls.work import ExtendedLease
from headrace.client.worker.groups import GroupLease
from headrace.client.worker.inflight import InflightTask, Interruption, RunningHandler
from headrace.client.worker.service import WorkerService
from headrace.client.worker.worker import Worker
from headrace.domain.change import Change
from headrace.domain.lifecycle import Action
from headrace.domain.queue import DeadLetterConfig
from headrace.domain.task import State
from headrace.store.base import Done, Outcome, Store
from headrace.store.memory import MemoryStore
from headrace.testing.conditions import START
from headrace.testing.transport import responder
from headrace.wire.tasks import LeasedTask, Reported
from tests.contract.conftest import new_world
from tests.manual_clock import ManualClock
from tests.property.stores import STORES
from tests.property.walks import walk_far


class Noted(RunningHandler):
    """An attempt that notes how it was interrupted."""

    def __init__(self) -> None:
        self.interruptions: list[Interruption] = []
        self.killed = 0

    def interrupt(self, why: Interruption) -> None:
        self.interruptions.append(why)

    def kill(self) -> None:
        self.killed += 1


KEEPALIVE = 30.0
GROUP = 60.0
THIRD = {False: KEEPALIVE / 3 + 0.1, True: GROUP / 3 + 0.1}
QUEUES = ("kept", "gone")
WHO = st.integers(0, 1)
ANY = st.integers(0, 1_000)


@dataclass
class Delivery:
    """One delivery at a worker, and what the test knows of it."""

    worker: "SteppedWorker"
    held: InflightTask
    handler: Noted
    lease: str  # as it is stored
    cancelled: bool = False  # by an operator, while it had the task
    restarted: bool = False  # since then
    crashed: bool = False
    heard: bool = False  # that its task was cancelled

    @property
    def running(self) -> bool:
        return not (self.crashed or self.held.over)


class Notes(Observer):
    """What a worker tells of its tasks, by task and lease."""

    def __init__(self) -> None:
        self.of_lost: list[tuple[str, str]] = []
        self.of_cancelled: list[tuple[str, str]] = []

    def lost(self, task: LeasedTask, why: str) -> None:
        self.of_lost.append((task.id, task.lease.id))

    def cancelled(self, task: LeasedTask) -> None:
        self.of_cancelled.append((task.id, task.lease.id))


class SteppedWorker(Worker):
    """A worker whose threads are the test's steps, and whose handlers do nothing."""

    def __init__(self, name: str, service: WorkerService, clock: ManualClock) -> None:
        self.notes = Notes()
        self._time = clock
        super().__init__(
            App(),
            queues=list(QUEUES),
            name=name,
            service=service,
            monotonic=self.seconds,
            now=clock,
            chance=random.Random(7),
            observers=[self.notes],
        )
        self.group: GroupLease | None = None

    def seconds(self) -> float:
        """The service's time; no machine's clock is as good."""
        return (self._time() - START).total_seconds()

    def take(self, task: LeasedTask, group: GroupLease | None) -> tuple[InflightTask, Noted]:
        """Hold *task*, its handler at work."""
        now = self._clock.monotonic()
        ends = now + (task.lease.expires_at - self._time()).total_seconds()
        held = InflightTask(task, TaskRoute("sync", "any"), now=now, lease_ends=ends, group=group)
        self.inflight.add(held)
        handler = Noted()
        assert held.begin(handler, now)
        return held, handler

    def end(self, held: InflightTask, status: Any) -> None:
        """Let a handler end by itself."""
        held.end()
        self._ended(held, Report.on(held.task, status))

    def step(self, thread: str) -> None:
        """Let one of its threads do what it has to."""
        self.threads[thread].step()


class Cancelling(RuleBasedStateMachine):
    """Two workers, two queues (one keeps no dead tasks), a few tasks and whoever cancels them."""

    make_store: Callable[[], Store] = MemoryStore
    make_service: Callable[[Client], WorkerService] = WorkerService

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.world = new_world(type(self).make_store(), self.clock)
        transport = httpx.MockTransport(responder(self.world.use))
        self.client = Client("http://test", "test", transport=transport, retries=0)
        self.world.queue("kept", keepalive_timeout_in_seconds=KEEPALIVE)
        self.world.queue(
            "gone",
            keepalive_timeout_in_seconds=KEEPALIVE,
            dead_letter_queue_config=DeadLetterConfig(enable=False),
        )
        self.workers = [self.worker(name) for name in ("ada", "bob")]
        self.deliveries: list[Delivery] = []
        self.ids: dict[str, str] = {}  # queues by them
        self.cancelled: set[str] = set()  # and not restarted since

    def worker(self, name: str) -> SteppedWorker:
        return SteppedWorker(name, type(self).make_service(self.client), self.clock)

    def let_pass(self, seconds: float) -> None:
        self.clock.forward(timedelta(seconds=seconds))

    # ------------------------------------------------------------------------------------- rules

    @initialize()
    def begin(self) -> None:
        self.enqueue("kept")
        self.enqueue("gone")

    @precondition(lambda self: len(self.ids) < 4)
    @rule(queue=st.sampled_from(QUEUES))
    def enqueue(self, queue: str) -> None:
        # Named, so that tasks of one time come in one order, however often an example is run.
        self.ids |= dict.fromkeys(self.world.put(queue, id=f"task-{len(self.ids)}"), queue)

    @rule(who=WHO, queue=st.sampled_from(QUEUES), grouped=st.booleans())
    def dequeue(self, who: int, queue: str, *, grouped: bool) -> None:
        worker = self.workers[who]
        self.let_pass(0.01)
        group = self.group_of(worker) if grouped else None
        try:
            found = self.client.dequeue(
                queue, batch_size=2, worker="any", lease_id=group.id if group else None
            )
        except LeaseLost:
            worker.group = None
            return
        for task in found.tasks:
            assert task.id not in self.cancelled, "what was cancelled is delivered again"
            held, handler = worker.take(task, group)
            stored = self.world.store.read([task.id])[task.id]
            self.deliveries.append(Delivery(worker, held, handler, str(stored.lease_id)))

    def group_of(self, worker: SteppedWorker) -> GroupLease:
        group, now = worker.group, (self.clock() - START).total_seconds()
        if group is None or group.lost or group.lease_ends <= now:
            lease = self.client.open_lease(keepalive_timeout_in_seconds=GROUP)
            group = worker.group = GroupLease(lease, GROUP, sent_at=now)
        return group

    @precondition(lambda self: self.ids)
    @rule(which=ANY)
    def cancel(self, which: int) -> None:
        task_id = list(self.ids)[which % len(self.ids)]
        self.let_pass(0.01)
        before = self.world.store.read([task_id]).get(task_id)
        try:
            answer = self.client.cancel_task(task_id)
        except (Finished, NotFound):
            assert task_id not in self.cancelled or self.ids[task_id] == "gone"
            return
        assert answer.dead_reason in ("cancelled", None)
        self.cancelled.add(task_id)
        for delivery in self.deliveries:
            if before is not None and before.lease_id == delivery.lease:
                delivery.cancelled = True

    @precondition(lambda self: self.cancelled)
    @rule()
    def restart(self) -> None:
        self.let_pass(0.01)
        done = self.client.restart_tasks("kept", ids=sorted(self.cancelled))
        again = {result.id for result in done.results if result.outcome == "RESTARTED"}
        self.cancelled -= again
        for delivery in self.deliveries:
            delivery.restarted = delivery.restarted or delivery.held.task.id in again

    @rule(who=WHO, grouped=st.booleans())
    def beat(self, who: int, *, grouped: bool) -> None:
        """A third of a lease is over: whose task was cancelled hears of it now."""
        self.let_pass(THIRD[grouped])
        worker = self.workers[who]
        concerned = self.to_be_told(worker)
        self.heard_without_error(worker, lambda: worker.step("heartbeats"))
        for delivery in concerned:
            if delivery.held.group is None or grouped:
                assert delivery.held.cancelled, "its worker has not heard"
                assert delivery.handler.interruptions == [Interruption.CANCELLED]

    def to_be_told(self, worker: SteppedWorker) -> list[Delivery]:
        """The deliveries at *worker* that were cancelled while their leases last."""
        now = (self.clock() - START).total_seconds()
        return [
            each
            for each in self.deliveries
            if each.worker is worker
            and each.running
            and each.cancelled
            and not (each.restarted or each.held.lost)
            and now < each.held.lease_ends
        ]

    def heard_without_error(self, worker: SteppedWorker, step: Callable[[], None]) -> None:
        """What is heard of a cancel in *step* is no loss."""
        now = (self.clock() - START).total_seconds()
        fine = {
            (each.held.task.id, each.held.task.lease.id)
            for each in self.deliveries
            if each.worker is worker
            and each.cancelled
            and not each.restarted
            and now < each.held.lease_ends
        }
        before = len(worker.notes.of_lost)
        step()
        assert fine.isdisjoint(worker.notes.of_lost[before:]), "a cancel was taken for a fault"

    @precondition(lambda self: any(each.running for each in self.deliveries))
    @rule(which=ANY, status=st.sampled_from(["SUCCEEDED", "SUCCEEDED", "FAILED", "RELEASED"]))
    def finish(self, which: int, status: str) -> None:
        """A handler ends, whether its worker has heard of a cancel or not."""
        running = [each for each in self.deliveries if each.running]
        delivery = running[which % len(running)]
        unreported = len(delivery.worker.reporter)
        known = delivery.held.cancelled
        delivery.worker.end(delivery.held, status)
        if known:
            assert len(delivery.worker.reporter) == unreported, "it is reported all the same"

    @rule(who=WHO)
    def report(self, who: int) -> None:
        worker = self.workers[who]
        for _ in range(10):
            self.let_pass(0.01)
            self.heard_without_error(worker, lambda: worker.step("reports"))
            if not worker.reporter.unreported:
                return

    @rule(who=WHO)
    def look_at_limits(self, who: int) -> None:
        self.let_pass(5.1)
        self.workers[who].step("time-limits")

    @rule()
    def reap(self) -> None:
        self.let_pass(1)
        self.world.use.reaping.run()

    @rule(who=WHO)
    def crash(self, who: int) -> None:
        worker = self.workers[who]
        for delivery in self.deliveries:
            delivery.crashed = delivery.crashed or delivery.worker is worker
        self.workers[who] = self.worker(worker.settings.name)

    # ---------------------------------------------------------------------------------- promises

    @invariant()
    def what_was_cancelled_stays_so(self) -> None:
        for task_id, task in self.world.store.read(sorted(self.cancelled)).items():
            assert (task.state, task.cancelled) == (State.DEAD, True), task_id
            assert task.queue == "kept"

    @invariant()
    def nobody_is_interrupted_for_nothing(self) -> None:
        for delivery in self.deliveries:
            said = delivery.handler.interruptions.count(Interruption.CANCELLED)
            assert said <= 1
            assert delivery.handler.killed <= said
            if (said or delivery.held.cancelled) and not delivery.heard:
                # Who lost the lease before may hear of a cancel that came later.
                later = delivery.held.task.id in self.cancelled
                assert delivery.cancelled or later, "it was not cancelled"
                delivery.heard = True

    @invariant()
    def a_cancel_is_told_once(self) -> None:
        for worker in self.workers:
            told = worker.notes.of_cancelled
            assert len(told) == len({*told})


SOME = settings(
    max_examples=6,
    stateful_step_count=40,
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
FASTEST = settings(SOME, max_examples=1)


@pytest.mark.parametrize(
    ("store", "some"),
    [("memory", SOME), ("sqlite", FASTEST), pytest.param("sqlite", SOME, marks=pytest.mark.slow)],
)
def test_what_was_cancelled_stays_so_in_any_order(store: str, some: settings) -> None:
    class OverStore(Cancelling):
        make_store = STORES[store]

    run_state_machine_as_test(OverStore, settings=some)


@pytest.mark.slow
def test_what_was_cancelled_stays_so_for_very_many_steps() -> None:
    walk_far(Cancelling)


# ----------------------------------------------------------------------------------- planted faults


class CancelsWithoutFencing(MemoryStore):
    """A cancel ends the task and leaves its lease in force: who has it may end it otherwise."""

    def _commit(self, change: Change) -> Outcome:
        task = self._tasks.get(change.task_id)
        if change.rule.action is Action.CANCEL and task is not None and task.lease_id is not None:
            return Done(task)
        return super()._commit(change)


class TakesLateReports(MemoryStore):
    """A report of a task that was cancelled takes effect all the same."""

    def _commit(self, change: Change) -> Outcome:
        task = self._tasks.get(change.task_id)
        late = change.rule.action in (Action.SUCCEED, Action.FAIL, Action.RELEASE)
        if late and task is not None and task.cancelled:
            with self._lock:
                self._put(task, change.apply(task))
            return Done(task)
        return super()._commit(change)


class ReadsNoList(WorkerService):
    """The worker does not look at what an extension lists."""

    def extend_lease(self, id: str, *, within: float) -> ExtendedLease:
        return msgspec.structs.replace(super().extend_lease(id, within=within), cancelled=[])


class BelievesTheList(WorkerService):
    """The worker takes for cancelled what an extension lists, and asks nobody."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._listed: set[str] = set()

    def extend_lease(self, id: str, *, within: float) -> ExtendedLease:
        lease = super().extend_lease(id, within=within)
        self._listed.update(lease.cancelled)
        return lease

    def report(self, queue: str, reports: Sequence[Report], *, within: float) -> list[Reported]:
        return [
            msgspec.structs.replace(
                result, outcome="NOT_INFLIGHT", lease=None, dead_reason="cancelled"
            )
            if report.status == "INFLIGHT" and report.task_id in self._listed
            else result
            for report, result in zip(
                reports, super().report(queue, reports, within=within), strict=True
            )
        ]


class TakesACancelForALoss(WorkerService):
    """The worker does not look at why a task is dead."""

    def report(self, queue: str, reports: Sequence[Report], *, within: float) -> list[Reported]:
        results = super().report(queue, reports, within=within)
        return [msgspec.structs.replace(result, dead_reason=None) for result in results]


TAKEN = [("dequeue", {"who": 0, "queue": "kept", "grouped": True}), ("cancel", {"which": 0})]
ENDED = [*TAKEN, ("finish", {"which": 0, "status": "SUCCEEDED"}), ("report", {"who": 0})]
AGAIN = [*TAKEN, ("restart", {}), TAKEN[0], ("beat", {"who": 0, "grouped": True})]
HEARD = [*TAKEN, ("beat", {"who": 0, "grouped": True})]
Story: TypeAlias = Sequence[tuple[str, dict[str, Any]]]


def tell(machine: Cancelling, story: Story) -> None:
    """Take the steps of *story*, and look at the promises after each."""
    machine.begin()
    for name, how in story:
        getattr(machine, name)(**how)
        machine.what_was_cancelled_stays_so()
        machine.nobody_is_interrupted_for_nothing()
        machine.a_cancel_is_told_once()


@pytest.mark.parametrize("story", [ENDED, AGAIN, HEARD])
def test_the_stories_of_what_is_planted_end_well_without_it(story: Story) -> None:
    tell(Cancelling(), story)


@pytest.mark.parametrize(
    ("fault", "story", "seen"),
    [
        (CancelsWithoutFencing, ENDED, "INFLIGHT"),
        (TakesLateReports, ENDED, "SUCCEEDED"),
        (ReadsNoList, HEARD, "its worker has not heard"),
        (BelievesTheList, AGAIN, "it was not cancelled"),
        (TakesACancelForALoss, HEARD, "taken for a fault"),
    ],
)
def test_what_is_planted_is_seen(fault: type[Any], story: Story, seen: str) -> None:
    class Planted(Cancelling):
        if issubclass(fault, WorkerService):
            make_service = fault
        else:
            make_store = fault

    with pytest.raises(AssertionError, match=seen):
        tell(Planted(), story)
