"""Every act in every state: what the table allows happens, and nothing else.

What happens ends where a row says and puts the clock where the row says; the rest changes nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from headrace.domain import plan
from headrace.domain.errors import Finished, NotFound
from headrace.domain.lifecycle import LIFECYCLE, Action, Actor, Clock, Rule, rules
from headrace.domain.operate import BulkAction
from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import DeadLetterConfig, QueueSettings
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
        left = store.tombstones([task_id]).get(task_id)
        return left if left and left.ended_in is None else store.read([task_id]).get(task_id)

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


def close_its_group(case: LifecycleCase, after_seconds: float = 1) -> None:
    """Hand the task to a worker again, under a lease group, and close the group."""
    if (task := case.stored) is None or task.state is not INFLIGHT:
        return
    leases = case.world.use.leases
    case.report(ReportStatus.RELEASED)
    group = leases.open(None, keepalive=2 * EXPIRY.total_seconds())
    case.world.one("mail", lease_id=group.id)
    case.world.clock.forward(after_seconds)
    leases.close(group.id)


def close_its_group_too_late(case: LifecycleCase) -> None:
    close_its_group(case, after_seconds=EXPIRY.total_seconds())


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
        assert case.stored is None or case.stored.is_tombstone


def delete_with_an_undo(case: LifecycleCase) -> None:
    delete(case, undo_in_seconds=60)


def delete_by_the_service(case: LifecycleCase) -> None:
    """Delete what is hidden, as an enqueue of its id does, or drop a tick that has expired."""
    if (task := case.stored) and task.state is DELETED:
        case.world.store.commit([plan.delete(task)])
    elif task and task.state is ENQUEUED:
        tick = structs.replace(task, on_expiry=OnExpiry.DROP)
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
        case.world.use.undos.undo(case.undo)
        if state is ENQUEUED:
            return
        taken = case.world.one("mail")
        status = "SUCCEEDED" if state is SUCCEEDED else "FAILED"
        case.world.say(taken, status, **({} if state is SUCCEEDED else {"retryable": False}))
        undo = case.world.use.tasks.delete("task-1", undo_in_seconds=60)
        case.world.clock.forward(1)
        case.world.use.undos.undo(undo.id if undo else "")

    act.__name__ = f"undelete-{state}"
    return act


def cancel(case: LifecycleCase) -> None:
    try:
        case.world.use.cancelling.cancel(case.task_id)
    except NotFound:
        assert case.stored is None or case.stored.is_tombstone
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


PRODUCER, WORKER, OPERATOR, SERVICE = Actor

# Each act makes one move if it may; by whom, and where it leads if the table allows it at all.
ACTS: list[tuple[Action, Actor, State | None, Callable[[LifecycleCase], None]]] = [
    (Action.ENQUEUE, PRODUCER, ENQUEUED, enqueue),
    (Action.OVERWRITE, PRODUCER, ENQUEUED, overwrite),
    (Action.DEQUEUE, WORKER, INFLIGHT, dequeue),
    (Action.HEARTBEAT, WORKER, INFLIGHT, reported("INFLIGHT")),
    (Action.SUCCEED, WORKER, SUCCEEDED, reported("SUCCEEDED", result="1")),
    (Action.FAIL, WORKER, ENQUEUED, reported("FAILED")),
    (Action.FAIL, WORKER, DEAD, reported("FAILED", retryable=False)),
    (Action.FAIL, WORKER, DEAD, reported("FAILED", delay_in_seconds=TOO_LATE)),
    (Action.FAIL, WORKER, DEAD, fail_for_good),
    (Action.RELEASE, WORKER, ENQUEUED, reported("RELEASED", delay_in_seconds=LATER)),
    (Action.RELEASE, WORKER, DEAD, reported("RELEASED", delay_in_seconds=TOO_LATE)),
    (Action.RELEASE, SERVICE, ENQUEUED, close_its_group),
    (Action.RELEASE, SERVICE, DEAD, close_its_group_too_late),
    (Action.MOVE, WORKER, ENQUEUED, reported("MOVED", to_queue="other", delay_in_seconds=LATER)),
    (Action.MOVE, OPERATOR, ENQUEUED, operated(BulkAction.MOVE, to_queue="other")),
    (Action.RECLAIM, SERVICE, ENQUEUED, reclaim),
    (Action.RECLAIM, SERVICE, DEAD, reclaim_for_good),
    (Action.EXPIRE, SERVICE, DEAD, expire),
    (Action.RUN, OPERATOR, ENQUEUED, run),
    (Action.RESTART, OPERATOR, ENQUEUED, operated(BulkAction.RESTART)),
    (Action.CANCEL, OPERATOR, DEAD, cancel),
    (Action.CANCEL, OPERATOR, DEAD, operated(BulkAction.CANCEL)),
    (Action.DELETE, OPERATOR, None, delete),
    (Action.DELETE, OPERATOR, None, operated(BulkAction.DELETE)),
    (Action.PURGE, OPERATOR, None, purge),
    (Action.DELETE, OPERATOR, DELETED, delete_with_an_undo),
    (Action.DELETE, OPERATOR, DELETED, operated(BulkAction.DELETE, undo_in_seconds=60)),
    (Action.PURGE, OPERATOR, DELETED, purge_with_an_undo),
    (Action.DELETE, SERVICE, None, delete_by_the_service),
    (Action.PURGE, SERVICE, None, delete_its_queue),
    (Action.UNDELETE, OPERATOR, ENQUEUED, undelete_what_was(ENQUEUED)),
    (Action.UNDELETE, OPERATOR, SUCCEEDED, undelete_what_was(SUCCEEDED)),
    (Action.UNDELETE, OPERATOR, DEAD, undelete_what_was(DEAD)),
]


def named(value: object) -> str:
    return getattr(value, "__name__", str(value))


@pytest.mark.parametrize(("action", "actor", "target", "act"), ACTS, ids=named)
def test_what_the_table_allows_happens_and_nothing_else(
    action: Action, actor: Actor, target: State | None, act: Callable[[LifecycleCase], None]
) -> None:
    for source in ANYWHERE:
        for keyed in (False, True):
            happens(SqliteStore(":memory:"), source, action, actor, target, act, keyed=keyed)


def happens(
    store: Store,
    source: State | None,
    action: Action,
    actor: Actor,
    target: State | None,
    act: Callable[[LifecycleCase], None],
    *,
    keyed: bool,
) -> None:
    """Let somebody act on a task in *source* over *store*, and check what came of it."""
    case = case_in(source, keyed=keyed or action is Action.OVERWRITE, store=store)
    before = case.stored

    act(case)

    after = case.stored
    row = _row(action, actor, source, target)
    if row is None:
        extended = action is Action.EXPIRE and source is INFLIGHT
        if action is Action.ENQUEUE and source is DELETED:  # whose id is free
            assert after is not None
            assert (after.state, after.version, after.deleted_by) == (ENQUEUED, 1, None)
        else:
            assert after == before or (extended and after and after.last_move == "heartbeat")
    elif after is None:
        assert target is None
    else:
        assert (after.state, after.last_move) == (target, action)
        by_clock = _time_by(row, before, case.world.clock())
        if action is Action.UNDELETE:  # as it was before, not as it was while nobody saw it
            by_clock = after.due_at if after.state is ENQUEUED else after.finished_at
        assert after.scheduled_at == by_clock
        assert (after.lease_id is not None) == (after.state is INFLIGHT)


def _row(action: Action, actor: Actor, source: State | None, target: State | None) -> Rule | None:
    found = rules(action, source, actor=actor)
    if not found:
        return None
    (row,) = (row for row in found if row.target is target)
    return row


def _time_by(row: Rule, before: Task | None, now: datetime) -> datetime | None:
    """The new ``scheduled_at`` by the clock of *row*."""
    kept = before.scheduled_at if before else None
    by_operator = row.actor is OPERATOR  # whose move leaves a waiting task its due time
    return {
        Clock.DUE: kept if by_operator else now + DELAY,
        Clock.LEASE_END: now + LEASE,
        Clock.KEPT: kept,
        Clock.BACKOFF: now + BACKOFF,
        Clock.NOW: now,
        Clock.NONE: None,
    }[row.clock]


ENDS = [
    (row.source, act)
    for action, actor, target, act in ACTS
    for row in LIFECYCLE
    if (row.action, row.actor, row.target) == (action, actor, target) and row.kept_by
]


def test_without_history_and_dead_letters_the_end_of_a_life_is_gone() -> None:
    for source, act in ENDS:
        ends(SqliteStore(":memory:"), source, act, keyed=True)


def ends(
    store: Store, source: State | None, act: Callable[[LifecycleCase], None], *, keyed: bool
) -> None:
    """Let somebody end a life over *store* where nothing is kept, and check that it is gone."""
    case = case_in(source, keyed=keyed, kept=False, store=store)

    act(case)

    assert case.stored is None


def test_every_row_was_tried() -> None:
    tried = {(action, actor, target) for action, actor, target, _ in ACTS}

    assert {(row.action, row.actor, row.target) for row in LIFECYCLE} == tried
