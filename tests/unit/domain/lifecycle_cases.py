"""Tasks in every state, and the acts that try to move them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from headrace.domain import plan
from headrace.domain.errors import Finished, NotFound
from headrace.domain.operate import BulkAction
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import DeadLetterConfig, QueueSettings
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import SHOWN_STATES, OnExpiry, State, Task
from headrace.ops.delivery.reports import ReportStatus, TaskReport
from headrace.store.base import Store
from headrace.store.sqlite import SqliteStore
from tests.contract.conftest import World, lease_name, new_world
from tests.manual_clock import ManualClock

ENQUEUED, INFLIGHT, SUCCEEDED, DEAD, DELETED = State
ANYWHERE = [None, *State]
BACKOFF, LEASE, EXPIRY = timedelta(seconds=7), timedelta(seconds=100), timedelta(seconds=1000)
DELAY = timedelta(seconds=3)
LATER, TOO_LATE = DELAY.total_seconds(), EXPIRY.total_seconds()


@dataclass
class LifecycleCase:
    """A task in some state, and what the last worker that had it knows."""

    world: World
    task_id: str
    lease: str = "lse_nobody.1."

    undo: str = "und_nothing"

    @property
    def stored(self) -> Task | None:
        """The task, be it one that only an undo knows of."""
        store, task_id = self.world.store, self.task_id
        left = store.spent([task_id]).get(task_id)
        return left if left and left.spent is None else store.read([task_id]).get(task_id)

    def report(self, status: ReportStatus, **fields: Any) -> None:
        self.world.use.reports.report(
            "mail", [TaskReport(self.task_id, self.lease, status, **fields)]
        )


def case_in(
    state: State | None, *, keyed: bool, kept: bool = True, store: Store | None = None
) -> LifecycleCase:
    """Bring a task into *state* in the ways that leave no report of its own to repeat."""
    world = new_world(store or SqliteStore(":memory:"), ManualClock())
    settings = QueueSettings(
        keepalive_timeout_in_seconds=LEASE.total_seconds(),
        expires_in_seconds=int(EXPIRY.total_seconds()),
        retry_strategy=RetryStrategy(Backoff.FIXED, 1, BACKOFF.total_seconds(), jitter=0),
        dead_letter_queue_config=DeadLetterConfig(enable=kept),
        history_retention_in_seconds=86_400 if kept else 0,
    )
    world.use.queues.create("mail", settings)
    world.use.queues.create("other", settings)
    case = LifecycleCase(world, "task-1")
    if state is None:
        return case
    world.put("mail", id="task-1", dedupe_key="key" if keyed else None)
    world.clock.forward(1)
    if state is DELETED:
        undo = world.use.tasks.delete("task-1", undo_in_seconds=10 * EXPIRY.total_seconds())
        case.undo = undo.id if undo else ""
        world.clock.forward(1)
    if state in (ENQUEUED, DELETED):
        return case
    task = world.one("mail")
    case.lease = str(lease_name(task))
    world.clock.forward(1)
    if state is SUCCEEDED:
        world.say(task, "SUCCEEDED")
    elif state is DEAD:
        world.say(task, "FAILED", retryable=False)
    world.clock.forward(1)
    return case


def enqueue(case: LifecycleCase) -> None:
    entry = TaskSpec("{}", id="task-1", delay_in_seconds=DELAY.total_seconds())
    case.world.use.tasks.enqueue("mail", [entry])


def overwrite(case: LifecycleCase) -> None:
    due = case.world.clock() + DELAY
    entry = TaskSpec("1", dedupe_key="key", scheduled_at=due, overwrite=frozenset({"scheduled_at"}))
    case.world.use.tasks.enqueue("mail", [entry])


def dequeue(case: LifecycleCase) -> None:
    case.world.take("mail", 5)


def reported(status: str, **fields: Any) -> Callable[[LifecycleCase], None]:
    """Return an act that reports under the last lease the task had."""

    def act(case: LifecycleCase) -> None:
        case.report(ReportStatus(status), **fields)

    act.__name__ = "-".join((status, *fields))
    return act


def use_up_retries(case: LifecycleCase) -> None:
    """Let the only retry of the task pass, so that the next failure is the last."""
    if (task := case.stored) is None or task.state is not INFLIGHT:
        return
    case.report(ReportStatus.FAILED)
    case.world.clock.forward(BACKOFF.total_seconds())
    case.lease = str(lease_name(case.world.one("mail")))


def fail_for_good(case: LifecycleCase) -> None:
    use_up_retries(case)
    case.report(ReportStatus.FAILED)


def reclaim(case: LifecycleCase) -> None:
    case.world.clock.forward(LEASE.total_seconds())
    case.world.use.reaping.run()


def close_its_group(case: LifecycleCase) -> None:
    """Hand the task to a worker again, under a group, and close that."""
    if (task := case.stored) is None or task.state is not INFLIGHT:
        return
    leases = case.world.use.leases
    case.report(ReportStatus.RELEASED)
    group = leases.open(None, keepalive=2 * EXPIRY.total_seconds())
    case.world.one("mail", lease_id=group.id)
    case.world.clock.forward(1)
    leases.close(group.id)


def close_its_group_too_late(case: LifecycleCase) -> None:
    """As close_its_group(), but the task has expired meanwhile."""
    leases, passes = case.world.use.leases, case.world.clock.forward
    if (task := case.stored) is None or task.state is not INFLIGHT:
        return
    case.report(ReportStatus.RELEASED)
    group = leases.open(None, keepalive=2 * EXPIRY.total_seconds())
    case.world.one("mail", lease_id=group.id)
    passes(EXPIRY.total_seconds())
    leases.close(group.id)


def reclaim_for_good(case: LifecycleCase) -> None:
    use_up_retries(case)
    reclaim(case)


def expire(case: LifecycleCase) -> None:
    """Let the wait pass, and in its stead the keep of a task whose lease would end sooner."""
    if (task := case.stored) and task.state is INFLIGHT:
        case.report(ReportStatus.INFLIGHT, keepalive=2 * EXPIRY.total_seconds())
    case.world.clock.forward(EXPIRY.total_seconds())
    case.world.use.reaping.run()


def delete(case: LifecycleCase, undo_in_seconds: int = 0) -> None:
    try:
        case.world.use.tasks.delete(case.task_id, undo_in_seconds=undo_in_seconds)
    except NotFound:
        assert case.stored is None or case.stored.remains


def delete_with_an_undo(case: LifecycleCase) -> None:
    delete(case, undo_in_seconds=60)


def delete_by_the_service(case: LifecycleCase) -> None:
    """Delete what is hidden, as an enqueue of its id does, or drop a tick that has expired."""
    if (task := case.stored) and task.state is DELETED:
        case.world.store.commit([plan.delete(task)])
    elif task and task.state is ENQUEUED:
        tick = replace(task, on_expiry=OnExpiry.DROP)
        case.world.clock.forward(EXPIRY.total_seconds())
        queue = case.world.use.queues.cached("mail")
        case.world.store.commit([plan.expire(tick, queue, now=case.world.clock())])


def delete_its_queue(case: LifecycleCase) -> None:
    if (task := case.stored) and task.state is DELETED:
        case.world.use.queues.delete("mail")


def undelete_what_was(state: State) -> Callable[[LifecycleCase], None]:
    """Return an act that undoes a deletion from *state*."""

    def act(case: LifecycleCase) -> None:
        if (task := case.stored) is None or task.state is not DELETED:
            return
        case.world.use.undoing.undo(case.undo)
        if state is ENQUEUED:
            return
        taken = case.world.one("mail")
        status = "SUCCEEDED" if state is SUCCEEDED else "FAILED"
        case.world.say(taken, status, **({} if state is SUCCEEDED else {"retryable": False}))
        undo = case.world.use.tasks.delete("task-1", undo_in_seconds=60)
        case.world.clock.forward(1)
        case.world.use.undoing.undo(undo.id if undo else "")

    act.__name__ = f"undelete-{state}"
    return act


def cancel(case: LifecycleCase) -> None:
    try:
        case.world.use.cancelling.cancel(case.task_id)
    except NotFound:
        assert case.stored is None or case.stored.remains
    except Finished:
        assert case.stored is not None


def purge(case: LifecycleCase) -> None:
    case.world.use.queues.purge("mail", SHOWN_STATES)


def purge_with_an_undo(case: LifecycleCase) -> None:
    case.world.use.queues.purge("mail", SHOWN_STATES, undo_in_seconds=60)


def operated(action: BulkAction, **fields: Any) -> Callable[[LifecycleCase], None]:
    """Return an act that an operator does to the task by its id."""

    def act(case: LifecycleCase) -> None:
        case.world.use.bulk.by_ids("mail", action, [case.task_id], **fields)

    act.__name__ = f"operators-{action}"
    return act


def run(case: LifecycleCase) -> None:
    """Put a waiting task off, so that there is something to hasten."""
    if (task := case.stored) and task.state is ENQUEUED:
        case.lease = str(lease_name(case.world.one("mail")))
        case.report(ReportStatus.RELEASED, delay_in_seconds=LATER)
    operated(BulkAction.RUN)(case)
