"""What a worker's report does to the task it holds, and what a lapsed lease does.

A success and a heartbeat are planned from the report alone: the lease that it names is the
condition of the write.  Everything else is planned from the task as it was read, which cannot
change under the same lease in a way that matters.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any, Final

from msgspec import Struct, structs

from headrace.domain import limits
from headrace.domain.change import (
    AfterLength,
    Change,
    Condition,
    In,
)
from headrace.domain.ids import group_of, is_group_id, leases_of, opened_at
from headrace.domain.lifecycle import Action, Actor, LeaseRule, Rule, rule
from headrace.domain.patch import When
from headrace.domain.plan import LEASE, end, release_dedupe_key
from headrace.domain.queue import Queue, kept_turn, new_life_fields, place_in, waiting_fields
from headrace.domain.retry import Seconds
from headrace.domain.task import DeadReason, ErrorKind, Hop, State, Task, TaskError
from headrace.domain.task_fields import ClearedBy, fields_cleared_by
from headrace.domain.task_groups import Turn
from headrace.domain.times import MICROSECOND

BY_THE_SERVICE: Final = "-"
"""The digest of a report that no worker made."""


class ReportedLease(Struct, frozen=True):
    """A lease as a report names it: by its id, or by that of its lease group.

    ``digest`` is made of the report; the task keeps it, to tell a repeat from another report.
    """

    task_id: str
    queue: str
    lease_id: str
    digest: str = BY_THE_SERVICE

    @classmethod
    def of(cls, task: Task) -> "ReportedLease":
        """Return the lease of *task*, which the service ends without a report."""
        return cls(task.id, task.queue, task.lease_id or "")


def heartbeat(
    lease: ReportedLease,
    queue: Queue,
    *,
    now: datetime,
    keepalive: Seconds | None,
    progress: str | None,
    task: Task | None = None,
) -> Change:
    """Plan a longer lease.  No index key changes, unless the lease is cut shorter than granted.

    Under a group nothing moves: its end is the group's, which is put off by itself.  Without a
    *task* that was read, the write requires that the lease is not cut shorter.
    """
    row = rule(Action.HEARTBEAT, State.INFLIGHT, State.INFLIGHT)
    when = _under(lease, task)
    put: dict[str, Any] = {}
    if is_group_id(lease.lease_id) or group_of(lease.lease_id) is not None:
        pass
    elif keepalive is None:
        put["lease_expires_at"] = AfterLength(now)
    else:
        until = now + timedelta(seconds=keepalive)
        put |= {"lease_expires_at": until, "lease_length": timedelta(seconds=keepalive)}
        if task is None:
            when = (*when, When("scheduled_at", "<=", until))
        elif task.scheduled_at > until:
            put["scheduled_at"] = until
            put["place"] = place_in(queue, State.INFLIGHT, task.id)
    if progress is not None:
        put |= {"progress": progress, "has_progress": True}
    return Change(row, lease.task_id, when=when, put=put)


def succeed(
    lease: ReportedLease,
    queue: Queue,
    *,
    now: datetime,
    result: str | None,
    task: Task | None = None,
) -> Change:
    """Plan a success: the result is kept as long as the queue keeps history.

    Without a *task* that was read, the write requires that it has no dedupe key.
    """
    row = rule(Action.SUCCEED, State.INFLIGHT, State.SUCCEEDED)
    put = {} if result is None else {"result": result}
    change = _settled(Change(row, lease.task_id, put=put), lease, task)
    retention = queue.settings.history_retention_in_seconds
    return end(change, queue, now=now, retention=retention, of=task)


def fail(
    task: Task,
    queue: Queue,
    *,
    now: datetime,
    error: TaskError,
    retryable: bool,
    delay: Seconds | None,
    spread: float,
    lease: ReportedLease | None = None,
) -> Change:
    """Plan what a failed attempt leads to: a retry after a backoff, or the dead letters.

    *delay* is the wait the worker asked for; *spread* is the random number of the jitter.
    """
    change = _failed(Action.FAIL, task, error, lease)
    if not retryable:
        return _bury(change, task, queue, DeadReason.REJECTED, now=now)
    return _retry(change, task, queue, now=now, delay=delay, spread=spread)


def reject_lost(task: Task, queue: Queue, *, now: datetime) -> Change:
    """Plan the end of a task whose payload is not where it was kept, or is not what it was."""
    error = TaskError(
        attempt=task.attempts,
        at=now,
        worker=task.worker,
        started_at=task.started_at,
        kind=ErrorKind.FAILED,
        type="PayloadLost",
        message="the payload is missing, or is not what was enqueued (sha256 differs)",
    )
    return fail(task, queue, now=now, error=error, retryable=False, delay=None, spread=0)


def reclaim(task: Task, queue: Queue, *, now: datetime, spread: float) -> Change:
    """Plan what a lapsed lease leads to: the same as a failed attempt."""
    error = TaskError(
        attempt=task.attempts,
        at=now,
        worker=task.worker,
        started_at=task.started_at,
        kind=ErrorKind.LEASE_EXPIRED,
        type="LeaseExpired",
        message="lease expired" + (f" (worker {task.worker})" if task.worker else ""),
    )
    change = _failed(Action.RECLAIM, task, error, None)
    return _retry(change, task, queue, now=now, delay=None, spread=spread)


class ReleaseReason(Enum):
    """Why a task is released without work."""

    REPORTED = auto()  #: its worker reported it, maybe with a delay
    UNDELIVERED = auto()  #: it did not fit the answer: it keeps its turn
    GROUP_CLOSED = auto()  #: its group was closed by its holder: the service gives it back


def release(
    task: Task,
    queue: Queue,
    *,
    now: datetime,
    reason: ReleaseReason = ReleaseReason.REPORTED,
    delay: Seconds | None = None,
    lease: ReportedLease | None = None,
) -> Change:
    """Plan giving a task back unworked, due now or after a *delay*: the attempt does not count."""
    actor = Actor.SERVICE if reason is ReleaseReason.GROUP_CLOSED else None
    row = rule(Action.RELEASE, State.INFLIGHT, State.ENQUEUED, actor=actor)
    change = Change(row, task.id, add={"attempts": -1})
    change = _settled(change, lease or ReportedLease.of(task), task)
    change = _wait(change, task, queue, now=now, seconds=delay or 0)
    keeps_its_turn = reason is ReleaseReason.UNDELIVERED and change.rule.target is State.ENQUEUED
    if not keeps_its_turn:
        return change
    due = task.due_at
    if task.slot is not None:  # a due time is for one delivery, lest its slot count twice
        due += MICROSECOND
    turn = kept_turn(task)
    wait, unset = waiting_fields(queue, task.id, due, task.priority, turn=turn, returned=True)
    return structs.replace(change, put={**change.put, **wait}, clear=(*LEASE, *unset))


def move(
    task: Task,
    target: Queue,
    *,
    now: datetime,
    lease: ReportedLease,
    delay: Seconds | None,
    payload: str | None,
    tags: Mapping[str, str] | None,
    turn: Turn | None = None,
) -> Change:
    """Plan a move to *target*: one write; what travels and what stays is in the contract.

    *turn* is that of its group there, if it takes one.
    """
    row = rule(Action.MOVE, State.INFLIGHT, State.ENQUEUED)
    due_at = now + timedelta(seconds=delay or 0)
    trail = (*task.trail, Hop(task.queue, now))[-limits.TRAIL_KEPT :]
    put, unset = new_life_fields(
        target, task.id, due_at=due_at, now=now, priority=task.priority, turn=turn
    )
    given = {"payload": payload, "tags": tags}
    put |= {name: value for name, value in given.items() if value is not None}
    clear = (*LEASE, *fields_cleared_by(ClearedBy.MOVE), *unset)
    change = Change(row, task.id, put={"trail": trail, **put}, clear=clear, turn=turn)
    return release_dedupe_key(_settled(change, lease, task), task)


def _under(lease: ReportedLease, task: Task | None) -> tuple[Condition, ...]:
    """Return the conditions that the task is still under *lease*, as named or as read."""
    where = In(lease.queue, State.INFLIGHT)
    if task is not None:
        return (where, When("lease_id", "=", task.lease_id))
    if is_group_id(lease.lease_id):
        return (
            where,
            When("lease_id", "begins with", leases_of(lease.lease_id)),
            When("settled_lease_id", "does not begin with", lease.lease_id, or_missing=True),
            When("returned_at", "<=", opened_at(lease.lease_id), or_missing=True),
        )
    return (where, When("lease_id", "=", lease.lease_id))


def _settled(change: Change, lease: ReportedLease, task: Task | None) -> Change:
    """Complete a change that ends a delivery: only under its lease, as the lifecycle table says.

    A report leaves a mark in the task, by which a repeat of it is recognised.
    """
    when = _under(lease, task)
    if change.rule.lease is LeaseRule.LAPSED and task is not None:
        when = (*when, When("lease_expires_at", "=", task.lease_expires_at))
    marks: dict[str, Any] = {}
    if change.rule.lease is LeaseRule.HELD:
        marks = {
            "settled_lease_id": lease.lease_id,
            "settled_status": str(change.rule.action),
            "settled_digest": lease.digest,
        }
    done_when = _already(change.rule, lease, task, marks)
    return structs.replace(change, when=when, put={**change.put, **marks}, done_when=done_when)


def _already(
    row: Rule, lease: ReportedLease, task: Task | None, marks: Mapping[str, str]
) -> tuple[Condition, ...]:
    """Return what the task shows if this report took effect before; only a move leads elsewhere.

    A group's id alone does not show that: the task may be under the group once more.
    """
    if task is None and is_group_id(lease.lease_id):
        return ()
    shown = [When(name, "=", value) for name, value in marks.items()]
    if shown and row.action is not Action.MOVE:
        shown.append(When("queue", "=", lease.queue))
    return tuple(shown)


def _failed(action: Action, task: Task, error: TaskError, lease: ReportedLease | None) -> Change:
    """Return the start of a change that ends an attempt with *error*."""
    errors = (*task.errors, error)[-limits.ERRORS_KEPT :]
    change = Change(rule(action, State.INFLIGHT, State.ENQUEUED), task.id, put={"errors": errors})
    return _settled(change, lease or ReportedLease.of(task), task)


def _retry(
    change: Change,
    task: Task,
    queue: Queue,
    *,
    now: datetime,
    delay: Seconds | None,
    spread: float,
) -> Change:
    """Plan the next attempt after *delay*, else after the backoff; or the end without one."""
    strategy = task.retry or queue.settings.retry_strategy
    if task.attempts > strategy.max_retries:
        return _bury(change, task, queue, DeadReason.EXHAUSTED, now=now)
    seconds = delay if delay is not None else strategy.delay_seconds(task.attempts, spread)
    return _wait(change, task, queue, now=now, seconds=seconds)


def _wait(change: Change, task: Task, queue: Queue, *, now: datetime, seconds: Seconds) -> Change:
    """Plan to wait again, unless the task would expire before its turn."""
    due_at = now + timedelta(seconds=seconds)
    if task.expires_at is not None and task.expires_at <= due_at:
        return _bury(change, task, queue, DeadReason.EXPIRED, now=now)
    wait, unset = waiting_fields(queue, task.id, due_at, task.priority, returned=True)
    return structs.replace(
        change, put={**change.put, **wait, "returned_at": now}, clear=(*LEASE, *unset)
    )


def _bury(change: Change, task: Task, queue: Queue, reason: DeadReason, *, now: datetime) -> Change:
    row = rule(change.rule.action, State.INFLIGHT, State.DEAD, actor=change.rule.actor)
    change = structs.replace(change, rule=row, put={**change.put, "dead_reason": reason})
    return end(change, queue, now=now, retention=queue.dead_retention, of=task)
