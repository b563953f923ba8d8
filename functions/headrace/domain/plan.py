"""Plans of changes of tasks that no worker holds: pure functions from facts to a Change.

This module and ``settle`` decide and never write.  The time and random numbers are arguments.
"""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, Final

from msgspec import Struct, field, structs

from headrace.domain import limits
from headrace.domain.change import (
    Change,
    Condition,
    Entry,
    In,
    KeyLock,
)
from headrace.domain.errors import InvalidRequest
from headrace.domain.lease import LeaseGroup
from headrace.domain.lifecycle import Action, Actor, rule
from headrace.domain.offload import Upload
from headrace.domain.patch import When
from headrace.domain.queue import Queue, place_in, waiting_fields
from headrace.domain.retry import RetryStrategy, Seconds
from headrace.domain.task import (
    DeadReason,
    DedupeUntil,
    Membership,
    OnExpiry,
    Overwritable,
    Priority,
    State,
    Task,
)
from headrace.domain.task_fields import FIELD, TASK_FIELDS, ClearedBy, fields_cleared_by
from headrace.domain.task_groups import Turn
from headrace.domain.times import whole_second

LEASE: Final = fields_cleared_by(ClearedBy.DELIVERY_END)
_TOMBSTONE: Final = fields_cleared_by(ClearedBy.TOMBSTONE)
_FOR_EVENT: Final = frozenset(field.name for field in TASK_FIELDS if field.for_event)
_KEYLESS: Final = When("dedupe_key", "=", None)


class TaskSpec(Struct, frozen=True):
    """One entry of an enqueue call; ``payload`` is JSON text, exactly as it came in.

    An ``upload`` replaces it, and is for the task ``id``.
    """

    payload: str
    id: str | None = None
    scheduled_at: datetime | None = None
    delay_in_seconds: Seconds | None = None
    expires_at: datetime | None = None
    keepalive: Seconds | None = None
    retry: RetryStrategy | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    dedupe_key: str | None = None
    overwrite: frozenset[Overwritable] = frozenset()
    schedule: str | None = None
    priority: Priority | None = None
    batches: tuple[str, ...] = ()
    group_key: str | None = None
    upload: Upload | None = None
    on_expiry: OnExpiry | None = None
    dedupe_until: DedupeUntil | None = None
    unique_for: Seconds | None = None
    note: str | None = None

    def due_at(self, now: datetime) -> datetime:
        """Return when the task falls due: never before *now*."""
        if self.scheduled_at is not None:
            return max(now, self.scheduled_at)
        return now + timedelta(seconds=self.delay_in_seconds) if self.delay_in_seconds else now

    def fault(self, queue: Queue, due_at: datetime) -> str | None:
        """Return why *queue* cannot take the task due at *due_at*, the field first; or None."""
        if self.expires_at is not None and self.expires_at <= due_at:
            return "expires_at would pass before the task is due"
        if self.upload is not None and queue.settings.target is not None:
            return "payload_ref has no meaning here: what is pushed goes out with its payload"
        if fault := queue.priority_fault(self.priority):
            return f"priority {fault}"
        if fault := queue.group_fault(self.group_key):
            return f"group_key {fault}"
        times = {
            "delay_in_seconds": self.delay_in_seconds,
            "scheduled_at": self.scheduled_at,
            "overwrite_on_duplicate": "scheduled_at" in self.overwrite,
        }
        return queue.order_fault(times)

    def takes_turn(self, queue: Queue, now: datetime) -> bool:
        """Return whether the task waits for its group's turn in *queue*: if it is due already."""
        return queue.settings.groups is not None and self.due_at(now) <= now


_DECIDED_HERE: Final = ("id", "payload", "scheduled_at", "expires_at", "batches", "priority")
_AS_GIVEN: Final = tuple(
    field.name
    for field in structs.fields(TaskSpec)
    if field.name in FIELD and field.name not in _DECIDED_HERE
)
"""The fields that a new task has as its producer gave them."""

_as_given: Final = attrgetter(*_AS_GIVEN)


def holder(queue: str, dedupe_key: str, *, value: str | None, expects: str | None) -> KeyLock:
    """Return the key lock that says which task of *queue* holds *dedupe_key*."""
    return KeyLock(f"dedupe:{queue}", dedupe_key, value, expects)


def locks_to_release(task: Task) -> tuple[KeyLock, ...]:
    """Return the key lock to take away when *task* no longer lives in its queue, if it has one."""
    if task.dedupe_key is None or task.state not in (State.ENQUEUED, State.INFLIGHT):
        return ()
    if task.dedupe_until is DedupeUntil.START and task.state is State.INFLIGHT:
        return ()
    return (holder(task.queue, task.dedupe_key, value=None, expects=task.id),)


def release_at_start(task: Task) -> KeyLock | None:
    """Return the key lock to take away when *task* is delivered; None if it keeps its key."""
    if task.dedupe_key is None or task.dedupe_until is not DedupeUntil.START:
        return None
    return holder(task.queue, task.dedupe_key, value=None, expects=task.id)


def enqueue(  # noqa: PLR0913  all that a new task is made of
    new: TaskSpec,
    queue: Queue,
    *,
    task_id: str,
    due_at: datetime,
    now: datetime,
    token: str | None,
    replaces: str | None = None,
    inherited: Collection[str] = (),
    turn: Turn | None = None,
) -> Change:
    """Plan a new task, together with the key lock of its dedupe key if it has one.

    *replaces* is an earlier holder of that key that has ended.  *inherited* are the batches of the
    task whose report makes this one.  *turn* is its group's.  *token* recognises a repeat of this
    write, and is needed only if the client chose the id.
    """
    row = rule(Action.ENQUEUE, None, State.ENQUEUED)
    priority = queue.priority_for(new.priority)
    wait, _ = waiting_fields(queue, task_id, due_at, priority, turn=turn)
    task = Task(
        id=task_id,
        **wait,
        created_at=now,
        enqueued_at=now,
        payload=new.payload if new.upload is None else None,
        payload_ref=None if new.upload is None else new.upload.text,
        expires_at=new.expires_at or queue.expiry(due_at),
        enqueue_token=token,
        last_move=str(row.action),
        priority=priority,
        batches=_memberships(new, inherited),
        **dict(zip(_AS_GIVEN, _as_given(new), strict=True)),
    )
    own = When("enqueue_token", "=", token) if token else When("id", "=", task_id)
    change = Change(row, task_id, insert=task, done_when=(own,))
    if new.dedupe_key is None:
        return change
    taken = holder(queue.name, new.dedupe_key, value=task_id, expects=replaces)
    return change.together(taken, seen=None)


def _memberships(new: TaskSpec, inherited: Collection[str]) -> tuple[Membership, ...] | None:
    if not new.batches:
        return None
    return tuple(Membership(id_, id_ in inherited) for id_ in new.batches)


def overwrite(held: Task, new: TaskSpec, queue: Queue, *, now: datetime) -> Change:
    """Plan what a duplicate enqueue changes of the task *held* that waits under its key."""
    row = rule(Action.OVERWRITE, State.ENQUEUED, State.ENQUEUED)
    put: dict[str, Any] = {}
    clear: tuple[str, ...] = ()
    due_at, expires_at, priority = held.due_at, held.expires_at, held.priority
    if "payload" in new.overwrite:
        put["payload"] = new.payload
    if "tags" in new.overwrite:
        put["tags"] = new.tags
    if "scheduled_at" in new.overwrite:
        due_at = new.due_at(now)
    if "priority" in new.overwrite:
        priority = queue.priority_for(new.priority)
        put |= {"priority": priority} if priority else {}
        clear += ("priority",) if priority is None else ()
    if {"scheduled_at", "priority"} & new.overwrite:
        wait, unset = waiting_fields(queue, held.id, due_at, priority)
        put, clear = put | wait, clear + unset
    if "expires_at" in new.overwrite:
        expires_at = new.expires_at or queue.expiry(due_at)
        put |= {"expires_at": expires_at} if expires_at else {}
    clear += ("expires_at",) if expires_at is None else ()
    when = (In(queue.name, State.ENQUEUED), When("version", "=", held.version))
    if expires_at is not None and expires_at <= due_at:
        message = "expires_at would not be after scheduled_at"
        raise InvalidRequest(message)
    return Change(row, held.id, when=when, put=put, clear=clear)


def dequeue(
    entry: Entry,
    queue: Queue,
    *,
    lease_id: str,
    now: datetime,
    worker: str,
    keepalive: Seconds | None,
    task: Task | None = None,
    group: LeaseGroup | None = None,
) -> Change:
    """Plan a delivery of the task the index proposes, or of *task* as it was read.

    The lease lasts as long as the call says (*keepalive*), else the task, else the queue; without
    a read the task is assumed to have no length.  Under a *group* it is the group's.
    """
    row = rule(Action.DEQUEUE, State.ENQUEUED, State.INFLIGHT)
    if group is not None:
        keepalive = group.keepalive.total_seconds()
    assumed: tuple[Condition, ...] = ()
    own = keepalive if keepalive is not None or task is None else task.keepalive
    if own is None:
        own = queue.settings.keepalive_timeout_in_seconds
        assumed = (When("keepalive", "=", None),)
    length = timedelta(seconds=own)
    granted_until = expires_at = now + length
    if group is not None:
        granted_until, expires_at = group.granted_until, group.expires_at
    return Change(
        row,
        entry.task_id,
        when=(
            In(queue.name, State.ENQUEUED),
            When("due_at", "<=", now),
            When("expires_at", ">", now, or_missing=True),
            *assumed,
        ),
        put={
            "place": place_in(queue, State.INFLIGHT, entry.task_id),
            "scheduled_at": granted_until,
            "lease_id": lease_id,
            "lease_expires_at": expires_at,
            "lease_length": length,
            "started_at": now,
            **({"worker": worker} if worker else {}),
        },
        clear=("has_progress",) if worker else ("has_progress", "worker"),
        add={"attempts": 1},
        done_when=(When("lease_id", "=", lease_id),),
    )


def due_at_limit(delivery: Change, due_at: datetime, slot: str | None = None) -> Change:
    """Complete a delivery in a queue with limits in flight: it is made at *due_at* only.

    The task's slot of its queue, or of its group, is for that due time.
    """
    put = delivery.put if slot is None else {**delivery.put, "slot": slot}
    return structs.replace(delivery, when=(*delivery.when, When("due_at", "=", due_at)), put=put)


def expire(of: Entry | Task, queue: Queue, *, now: datetime) -> Change:
    """Plan the end of a task that waited past its ``expires_at``.

    A task that was never delivered is removed if its schedule says so; an index entry is assumed
    to have no such schedule, on condition of the write.
    """
    when: tuple[Condition, ...] = (In(queue.name, State.ENQUEUED), When("expires_at", "<=", now))
    task = of if isinstance(of, Task) else None
    if task is None:
        when += (When("on_expiry", "=", None),)
    elif task.on_expiry is OnExpiry.DROP and task.started_at is None:
        row = rule(Action.DELETE, State.ENQUEUED, None, actor=Actor.SERVICE)
        change = Change(row, task.id, when=(*when, *unchanged(task)), gone=True)
        return release_dedupe_key(change, task)
    row = rule(Action.EXPIRE, State.ENQUEUED, State.DEAD)
    task_id = of.id if isinstance(of, Task) else of.task_id
    change = Change(row, task_id, when=when, put={"dead_reason": DeadReason.EXPIRED})
    return end(change, queue, now=now, retention=queue.dead_retention, of=task)


def cancel(task: Task, queue: Queue, *, now: datetime, unless_changed: bool = False) -> Change:
    """Plan the cancellation of a task, waiting or in flight.

    It applies to any later delivery of the task too, or (*unless_changed*) only to the version
    that was read.  Its worker's lease ends with it.
    """
    row = rule(Action.CANCEL, task.state, State.DEAD)
    when = unchanged(task) if unless_changed else still_there(task)
    change = Change(
        row,
        task.id,
        when=when,
        put={"dead_reason": DeadReason.CANCELLED},
        done_when=(When("created_at", "=", task.created_at), When("finished_at", "=", now)),
    )
    return end(change, queue, now=now, retention=queue.dead_retention, of=task)


def delete(task: Task, *, unless_changed: bool = False) -> Change:
    """Plan a removal from the task's state; with *unless_changed*, only of the version read."""
    row = rule(Action.DELETE, task.state, None)
    when = unchanged(task) if unless_changed else still_there(task)
    return release_dedupe_key(Change(row, task.id, when=when, gone=True), task)


def still_there(task: Task) -> tuple[Condition, ...]:
    """Return the conditions that this is the task as read, in the same queue and state.

    A task that was deleted and enqueued again under the same id is another task.
    """
    if task.ended_in is not None:
        return (When("ended_in", "=", task.ended_in), When("created_at", "=", task.created_at))
    return (In(task.queue, task.state), When("created_at", "=", task.created_at))


def unchanged(task: Task) -> tuple[Condition, ...]:
    """Return the conditions that the task has not changed since it was read."""
    return (*still_there(task), When("version", "=", task.version))


def purge(of: Entry | Task) -> Change:
    """Plan a removal from the state in which a task was read, in this very life of it.

    For a finished task an index entry suffices: its time is the finish, which released its key.
    """
    row = rule(Action.PURGE, of.place.state, None)
    if isinstance(of, Task):
        here = (*still_there(of), When("enqueued_at", "=", of.enqueued_at))
        return release_dedupe_key(Change(row, of.id, when=here, gone=True), of)
    there = (In(of.place.queue, of.place.state), When("scheduled_at", "=", of.scheduled_at))
    return Change(row, of.task_id, when=there, gone=True)


def release_dedupe_key(change: Change, of: Task | None) -> Change:
    """Complete a change by which a task stops living in its queue.

    The change removes the key lock of the dedupe key.  A task that was not read is assumed to have
    no key, on condition of the write.
    """
    if of is None:
        return structs.replace(change, when=(*change.when, _KEYLESS))
    locks = locks_to_release(of)
    return change.together(*locks, seen=of) if locks else change


def end(
    change: Change, queue: Queue, *, now: datetime, retention: Seconds, of: Task | None
) -> Change:
    """Complete a change that ends a task's life: keep it for *retention* seconds, or remove it.

    A member of a batch is kept for an hour at least, so that its result can be read.  If *of* was
    not read, the write requires that the task is no member.

    A removed task leaves a tombstone for a while, in the write that removes its index entry.  So
    a repeat of an enqueue whose answer was lost creates no second task.  If another queue is
    notified of the end, the tombstone keeps how the task ended.
    """
    target = change.rule.target
    if target is None:
        message = f"{change.rule.action} is no end of a life"
        raise LookupError(message)
    when = change.when
    if of is None:
        if retention < limits.MEMBER_SECONDS:
            when = (*when, When("batches", "=", None))
    elif of.batches is not None:
        retention = max(retention, limits.MEMBER_SECONDS)
    place = place_in(queue, target, change.task_id)
    kept = retention > 0
    until = now + timedelta(seconds=retention if kept else limits.TOMBSTONE_SECONDS)
    finish = {"finished_at": now, "retained_until": whole_second(until)}
    if not kept:
        kept_fields = _FOR_EVENT if queue.notifies_of(target) else frozenset()
        put = {name: value for name, value in change.put.items() if name in kept_fields}
        put |= {"ended_in": place, **finish}
        clear = tuple(name for name in _TOMBSTONE if name not in kept_fields)
        ended = structs.replace(change, when=when, gone=True, put=put, clear=clear, add={})
    else:
        put = {**change.put, "place": place, "scheduled_at": now, **finish}
        ended = structs.replace(change, when=when, put=put, clear=LEASE)
    return release_dedupe_key(ended, of)
