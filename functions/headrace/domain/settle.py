"""What a worker's report does to the task it holds, and what a lapsed lease does.

A report is planned before its task is read: the name of its lease says which delivery it is about,
and everything else is *assumed* to be as for most tasks (no retry strategy, room
in its lists).  Each assumption is a condition of the write, so a wrong one costs a refused write
and a second plan from the task as read, never a wrong result.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any, Final

from headrace.domain import limits
from headrace.domain.change import (
    AfterLength,
    AtMost,
    Begins,
    Change,
    Condition,
    Equals,
    In,
    Shorter,
    Unset,
    UnsetOrAfter,
    UnsetOrAtMost,
)
from headrace.domain.copies import altered, quick
from headrace.domain.ids import group_of, leases_of, opened_at
from headrace.domain.lifecycle import Action, Actor, LeaseRule, Rule, rule
from headrace.domain.plan import LEASE, end, release_dedupe_key
from headrace.domain.queue import Queue, new_life, place_in, turn_kept, waiting
from headrace.domain.retry import Seconds
from headrace.domain.task import DeadReason, ErrorKind, Hop, Priority, State, Task, TaskError
from headrace.domain.task_fields import ClearedBy, cleared
from headrace.domain.task_groups import Turn
from headrace.domain.times import MICROSECOND

BY_THE_SERVICE: Final = "-"
"""The digest of a report that no worker made."""


@quick
class Delivery:
    """A delivery as its worker knows it; ``task`` only once the store has been asked.

    ``group`` is the group whose id its worker calls the lease by, if it does; the lease itself,
    attempt, worker and priority are then known only from the task.  ``report_digest`` is made of
    the worker's report; the task keeps it, to tell a repeat from another report.
    """

    task_id: str
    queue: str
    lease_id: str
    attempts: int
    worker: str | None = None
    task: Task | None = None
    group: str | None = None
    priority: Priority | None = None
    started_at: datetime | None = None
    report_digest: str = BY_THE_SERVICE

    @classmethod
    def of(
        cls, task: Task, *, group: str | None = None, report_digest: str = BY_THE_SERVICE
    ) -> "Delivery":
        """Return the delivery that *task*, as it was read, is in."""
        return cls(
            task.id,
            task.queue,
            task.lease_id or "",
            task.attempts,
            task.worker,
            task,
            group,
            task.priority,
            task.started_at,
            report_digest,
        )

    @property
    def grouped(self) -> bool:
        """Return whether the lease ends when that of a group does."""
        return self.group is not None or group_of(self.lease_id) is not None


def heartbeat(
    held: Delivery, queue: Queue, *, now: datetime, keepalive: Seconds | None, progress: str | None
) -> Change:
    """Plan a longer lease.  No index key changes, unless the lease is cut shorter than granted.

    Under a group nothing moves: its end is the group's, which is put off by itself.
    """
    row = rule(Action.HEARTBEAT, State.INFLIGHT, State.INFLIGHT)
    when = _held(row, held)
    put: dict[str, Any] = {}
    if held.grouped:
        pass
    elif keepalive is None:
        put["lease_expires_at"] = AfterLength(now)
    else:
        until = now + timedelta(seconds=keepalive)
        put |= {"lease_expires_at": until, "lease_length": timedelta(seconds=keepalive)}
        if held.task is None:
            when = (*when, AtMost("scheduled_at", until))
        elif held.task.scheduled_at > until:
            put["scheduled_at"] = until
            put["place"] = place_in(queue, State.INFLIGHT, held.task_id)
    if progress is not None:
        put |= {"progress": progress, "has_progress": True}
    return Change(row, held.task_id, when=when, put=put)


def succeed(held: Delivery, queue: Queue, *, now: datetime, result: str | None) -> Change:
    """Plan a success: the result is kept as long as the queue keeps history."""
    row = rule(Action.SUCCEED, State.INFLIGHT, State.SUCCEEDED)
    when, settled, done_when = _marks(row, held)
    put = settled if result is None else {**settled, "result": result}
    change = Change(row, held.task_id, when=when, put=put, done_when=done_when)
    retention = queue.settings.history_retention_in_seconds
    return end(change, queue, now=now, retention=retention, of=held.task)


def fail(
    held: Delivery,
    queue: Queue,
    *,
    now: datetime,
    error: TaskError,
    retryable: bool,
    delay: Seconds | None,
    spread: float,
    action: Action = Action.FAIL,
) -> Change:
    """Plan what a failed attempt leads to: a retry after a backoff, or the dead letters.

    *delay* is the wait the worker asked for; *spread* is the random number of the jitter.
    """
    row = rule(action, State.INFLIGHT, State.ENQUEUED)
    change = _longer(Change(row, held.task_id), held, "errors", error, most=limits.ERRORS_KEPT)
    if not retryable:
        return _bury(change, held, queue, DeadReason.REJECTED, now=now)

    if held.task is None:
        change = altered(change, when=(*change.when, Unset("retry")))
    strategy = (held.task.retry if held.task else None) or queue.settings.retry_strategy
    if held.attempts > strategy.max_retries:
        return _bury(change, held, queue, DeadReason.EXHAUSTED, now=now)

    seconds = delay if delay is not None else strategy.delay_seconds(held.attempts, spread)
    return _wait(change, held, queue, now=now, seconds=seconds)


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
    held = Delivery.of(task)
    return fail(held, queue, now=now, error=error, retryable=False, delay=None, spread=0)


def reclaim(task: Task, queue: Queue, *, now: datetime, spread: float) -> Change:
    """Plan what a lapsed lease leads to: the same as a failed attempt."""
    held = Delivery.of(task)
    error = TaskError(
        attempt=task.attempts,
        at=now,
        worker=task.worker,
        started_at=task.started_at,
        kind=ErrorKind.LEASE_EXPIRED,
        type="LeaseExpired",
        message="lease expired" + (f" (worker {task.worker})" if task.worker else ""),
    )
    return fail(
        held,
        queue,
        now=now,
        error=error,
        retryable=True,
        delay=None,
        spread=spread,
        action=Action.RECLAIM,
    )


class ReleaseReason(Enum):
    """Why a task is released without work."""

    REPORTED = auto()  #: its worker reported it, maybe with a delay
    UNDELIVERED = auto()  #: it did not fit the answer: it keeps its turn
    GROUP_CLOSED = auto()  #: its group was closed by its holder: the service gives it back


def release(
    held: Delivery,
    queue: Queue,
    *,
    now: datetime,
    reason: ReleaseReason = ReleaseReason.REPORTED,
    delay: Seconds | None = None,
) -> Change:
    """Plan giving a task back unworked, due now or after a *delay*: the attempt does not count."""
    actor = Actor.SERVICE if reason is ReleaseReason.GROUP_CLOSED else None
    row = rule(Action.RELEASE, State.INFLIGHT, State.ENQUEUED, actor=actor)
    change = Change(row, held.task_id, add={"attempts": -1})
    change = _wait(change, held, queue, now=now, seconds=delay or 0)
    keeps_its_turn = reason is ReleaseReason.UNDELIVERED and change.rule.target is State.ENQUEUED
    if held.task is None or not keeps_its_turn:
        return change
    task, due = held.task, held.task.due_at
    if task.slot is not None:  # a due time is for one delivery, lest its slot count twice
        due += MICROSECOND
    turn = turn_kept(task)
    wait, unset = waiting(queue, task.id, due, task.priority, turn=turn, returned=True)
    return altered(change, put={**change.put, **wait}, clear=(*LEASE, *unset))


def move(
    held: Delivery,
    target: Queue,
    *,
    now: datetime,
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
    hop = Hop(held.queue, now)
    change = _longer(Change(row, held.task_id), held, "trail", hop, most=limits.TRAIL_KEPT)
    change = _report(change, held)
    change = _of_priority(change, held, target)
    put, unset = new_life(
        target, held.task_id, due_at=due_at, now=now, priority=held.priority, turn=turn
    )
    given = {"payload": payload, "tags": tags}
    put |= {name: value for name, value in given.items() if value is not None}
    clear = (*LEASE, *cleared(ClearedBy.MOVE), *unset)
    return release_dedupe_key(altered(change, put={**change.put, **put}, clear=clear), held.task)


def _longer(change: Change, held: Delivery, name: str, entry: object, *, most: int) -> Change:
    """Add *entry* to the list *name*, which keeps the last *most*; unread, it must have room."""
    if held.task is None:
        return altered(change, when=(Shorter(name, most),), append={name: entry})
    return altered(change, put={name: (*getattr(held.task, name), entry)[-most:]})


def _held(row: Rule, held: Delivery) -> tuple[Condition, ...]:
    """What the table asks of the state and the lease."""
    where = In(held.queue, State.INFLIGHT)
    if row.lease is LeaseRule.CLOSED:
        return (where, Equals("lease_id", held.lease_id))
    if row.lease is LeaseRule.LAPSED:
        lapsed = held.task.lease_expires_at if held.task else None
        return (where, Equals("lease_id", held.lease_id), Equals("lease_expires_at", lapsed))
    if held.task is None and held.group is not None:
        return (
            where,
            Begins("lease_id", leases_of(held.group)),
            Begins("settled_lease_id", held.group, not_so=True),
            UnsetOrAtMost("returned_at", opened_at(held.group)),
        )
    lease: tuple[Condition, ...] = (where, Equals("lease_id", held.lease_id))
    if held.task is None:  # what the name of the lease says besides must be true
        worker = Equals("worker", held.worker) if held.worker else Unset("worker")
        lease = (*lease, Equals("attempts", held.attempts), worker)
        if held.started_at is not None:
            lease = (*lease, Equals("started_at", held.started_at))
    return lease


def _report(change: Change, held: Delivery) -> Change:
    """Add what every report asks, and the mark by which a repeat of it is recognised."""
    when, settled, done_when = _marks(change.rule, held)
    return altered(
        change,
        when=(*when, *change.when),
        put={**change.put, **settled},
        done_when=done_when,
    )


def _marks(
    row: Rule, held: Delivery
) -> tuple[tuple[Condition, ...], dict[str, Any], tuple[Condition, ...]]:
    """Return the conditions of every report, the mark that it leaves, and how to recognise it."""
    settled: dict[str, Any] = {}
    if row.lease is LeaseRule.HELD:
        name = held.group or held.lease_id
        settled = {
            "settled_lease_id": name,
            "settled_status": str(row.action),
            "settled_digest": held.report_digest,
        }
    return _held(row, held), settled, _already(row, held, settled)


def _already(row: Rule, held: Delivery, settled: Mapping[str, str]) -> tuple[Condition, ...]:
    """What the task shows when this report took effect before; only a move leads elsewhere.

    A group's id alone does not show that: the task may be under the group once more.
    """
    if held.group is not None and held.task is None:
        return ()
    marks = [Equals(name, value) for name, value in settled.items()]
    if marks and row.action is not Action.MOVE:
        marks.append(Equals("queue", held.queue))
    return tuple(marks)


def _wait(
    change: Change, held: Delivery, queue: Queue, *, now: datetime, seconds: Seconds
) -> Change:
    """Plan to wait again, unless the task would expire before its turn."""
    due_at = now + timedelta(seconds=seconds)
    expires_at = held.task.expires_at if held.task else None
    if expires_at is not None and expires_at <= due_at:
        return _bury(change, held, queue, DeadReason.EXPIRED, now=now)
    change = _of_priority(_report(change, held), held, queue)
    wait, unset = waiting(queue, held.task_id, due_at, held.priority, returned=True)
    return altered(
        change,
        when=(*change.when, UnsetOrAfter("expires_at", due_at)),
        put={**change.put, **wait, "returned_at": now},
        clear=(*LEASE, *unset),
    )


def _of_priority(change: Change, held: Delivery, queue: Queue) -> Change:
    """Complete a change that puts an unread task into the lane of *queue* for its priority."""
    if held.task is not None or queue.settings.priority is None:
        return change
    known = Unset("priority") if held.priority is None else Equals("priority", held.priority)
    return altered(change, when=(*change.when, known))


def _bury(
    change: Change, held: Delivery, queue: Queue, reason: DeadReason, *, now: datetime
) -> Change:
    row = rule(change.rule.action, State.INFLIGHT, State.DEAD, actor=change.rule.actor)
    put = {**change.put, "dead_reason": reason}
    change = _report(altered(change, rule=row, put=put), held)
    return end(change, queue, now=now, retention=queue.dead_retention, of=held.task)
