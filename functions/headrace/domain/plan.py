"""What happens to a task that no worker holds: pure functions from facts to a Change.

Rule of the file and of ``settle``: decide here, write elsewhere.  Nothing here reads a clock or
draws a number.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from headrace.domain import limits
from headrace.domain.change import (
    AtMost,
    Change,
    Condition,
    Entry,
    Equals,
    In,
    KeyLock,
    Unset,
    UnsetOrAfter,
)
from headrace.domain.errors import InvalidRequest
from headrace.domain.ids import shard_of
from headrace.domain.lease import Group
from headrace.domain.lifecycle import Action, rule
from headrace.domain.queue import Queue
from headrace.domain.retry import RetryStrategy, Seconds
from headrace.domain.slots import Reservation
from headrace.domain.task import DeadReason, Overwritable, Place, State, Task

LEASE: Final = ("lease_id", "lease_expires_at", "lease_length")
_FORGOTTEN: Final = (
    *("place", "scheduled_at", "payload", "tags", "dedupe_key", "schedule", "expires_at"),
    *("keepalive", "retry", *LEASE, "worker", "progress", "result", "errors", "trail", "slot"),
)
"""What nobody needs of a task that is gone."""

_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One entry of an enqueue call; ``payload`` is JSON text, exactly as it came in."""

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

    def due_at(self, now: datetime) -> datetime:
        """Return when the task falls due: never before *now*."""
        if self.scheduled_at is not None:
            return max(now, self.scheduled_at)
        return now + timedelta(seconds=self.delay_in_seconds or 0)


def holder(queue: str, dedupe_key: str, *, value: str | None, expects: str | None) -> KeyLock:
    """Return the key lock that says which task of *queue* holds *dedupe_key*."""
    return KeyLock(f"dedupe:{queue}", dedupe_key, value, expects)


def freed(task: Task) -> tuple[KeyLock, ...]:
    """Return the key lock to take away when *task* no longer lives in its queue, if it has one."""
    if task.dedupe_key is None or task.state not in (State.ENQUEUED, State.INFLIGHT):
        return ()
    return (holder(task.queue, task.dedupe_key, value=None, expects=task.id),)


def place_in(queue: Queue, state: State, task_id: str) -> Place:
    """Return where the index keeps *task_id* in *queue* and *state*."""
    return Place(queue.name, state, shard_of(task_id, queue.settings.shards))


def waiting(queue: Queue, task_id: str, due_at: datetime) -> dict[str, Any]:
    """Return the fields by which a task waits in *queue* until it is due."""
    place = place_in(queue, State.ENQUEUED, task_id)
    return {"place": place, "scheduled_at": due_at, "due_at": due_at}


def new_life(
    queue: Queue, task_id: str, *, due_at: datetime, now: datetime
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the fields of a task that begins anew in *queue*, and those that it has no more."""
    put = waiting(queue, task_id, due_at)
    put |= {"enqueued_at": now, "returned_at": now, "attempts": 0}
    expires_at = queue.expiry(due_at)
    return (put, ("expires_at",)) if expires_at is None else (put | {"expires_at": expires_at}, ())


def enqueue(
    new: TaskSpec,
    queue: Queue,
    *,
    task_id: str,
    due_at: datetime,
    now: datetime,
    token: str | None,
    replaces: str | None = None,
) -> Change:
    """Plan a new task, together with the key lock of its dedupe key if it has one.

    *replaces* is a holder of that key which is known to live no more.

    *token* marks the write of a task whose id the client chose, so that a repeat of this very
    write is told from a second enqueue; an id of our own making is enough.
    """
    row = rule(Action.ENQUEUE, None, State.ENQUEUED)
    task = Task(
        id=task_id,
        place=place_in(queue, State.ENQUEUED, task_id),
        scheduled_at=due_at,
        due_at=due_at,
        created_at=now,
        enqueued_at=now,
        payload=new.payload,
        tags=new.tags,
        dedupe_key=new.dedupe_key,
        schedule=new.schedule,
        expires_at=new.expires_at or queue.expiry(due_at),
        keepalive=new.keepalive,
        retry=new.retry,
        enqueue_token=token,
        last_move=str(row.action),
    )
    own = Equals("enqueue_token", token) if token else Equals("id", task_id)
    change = Change(row, task_id, insert=task, done_when=(own,))
    if new.dedupe_key is None:
        return change
    taken = holder(queue.name, new.dedupe_key, value=task_id, expects=replaces)
    return change.together(taken, seen=None)


def overwrite(held: Task, new: TaskSpec, queue: Queue, *, now: datetime) -> Change:
    """Plan what a duplicate enqueue changes of the task *held* that waits under its key."""
    row = rule(Action.OVERWRITE, State.ENQUEUED, State.ENQUEUED)
    put: dict[str, Any] = {}
    due_at, expires_at = held.due_at, held.expires_at
    if "payload" in new.overwrite:
        put["payload"] = new.payload
    if "tags" in new.overwrite:
        put["tags"] = new.tags
    if "scheduled_at" in new.overwrite:
        due_at = new.due_at(now)
        put |= waiting(queue, held.id, due_at)
    if "expires_at" in new.overwrite:
        expires_at = new.expires_at or queue.expiry(due_at)
        put |= {"expires_at": expires_at} if expires_at else {}
    clear = ("expires_at",) if expires_at is None else ()
    when = (In(queue.name, State.ENQUEUED), Equals("version", held.version))
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
    group: Group | None = None,
) -> Change:
    """Plan a delivery of the task the index proposes, or of *task* as it was read.

    The lease lasts as long as the call says (*keepalive*), else the task, else the queue; that the
    task says nothing of its own is assumed until it was read.  Under a *group* it is the group's.
    """
    row = rule(Action.DEQUEUE, State.ENQUEUED, State.INFLIGHT)
    if group is not None:
        keepalive = group.keepalive.total_seconds()
    assumed: tuple[Condition, ...] = ()
    own = keepalive if keepalive is not None or task is None else task.keepalive
    if own is None:
        own = queue.settings.keepalive_timeout_in_seconds
        assumed = (Unset("keepalive"),)
    length = timedelta(seconds=own)
    granted_until, expires_at = now + length, now + length
    if group is not None:
        granted_until, expires_at = group.granted_until, group.expires_at
    return Change(
        row,
        entry.task_id,
        when=(
            In(queue.name, State.ENQUEUED),
            AtMost("scheduled_at", now),
            UnsetOrAfter("expires_at", now),
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
        clear=("progress",) if worker else ("progress", "worker"),
        add={"attempts": 1},
        done_when=(Equals("lease_id", lease_id),),
    )


def counted(delivery: Change, slot: Reservation) -> Change:
    """Complete a delivery in a queue that limits the tasks in flight: *slot* is what it counts by.

    It is made only at the due time that the slot is for.
    """
    return replace(
        delivery,
        when=(*delivery.when, Equals("scheduled_at", slot.due_at)),
        put={**delivery.put, "slot": slot.slot},
    )


def expire(of: Entry | Task, queue: Queue, *, now: datetime) -> Change:
    """Plan the end of a task that waited past its ``expires_at``."""
    row = rule(Action.EXPIRE, State.ENQUEUED, State.DEAD)
    when = (In(queue.name, State.ENQUEUED), AtMost("expires_at", now))
    task_id = of.id if isinstance(of, Task) else of.task_id
    change = Change(row, task_id, when=when, put={"dead_reason": DeadReason.EXPIRED})
    return parted(end(change, queue, now=now, retention=dead_retention(queue)), of)


def delete(task: Task, *, unless_changed: bool = False) -> Change:
    """Plan a removal from where the task is; *unless_changed* only if nobody touched it either."""
    row = rule(Action.DELETE, task.state, None)
    when = unchanged(task) if unless_changed else still_there(task)
    return parted(Change(row, task.id, when=when, gone=True), task)


def still_there(task: Task) -> tuple[Condition, ...]:
    """Return the conditions that this is the task as read, in the same queue and state.

    One that was deleted and enqueued again under the same id is another task.
    """
    if task.spent is not None:
        return (Equals("spent", task.spent), Equals("created_at", task.created_at))
    return (In(task.queue, task.state), Equals("created_at", task.created_at))


def unchanged(task: Task) -> tuple[Condition, ...]:
    """Return the conditions that nobody touched the task since it was read."""
    return (*still_there(task), Equals("version", task.version))


def purge(of: Entry | Task) -> Change:
    """Plan a removal from the state in which a task was read, in this very life of it.

    Of a finished one an index entry will do: its time is that of its finish.
    """
    row = rule(Action.PURGE, of.place.state, None)
    if isinstance(of, Task):
        here = (*still_there(of), Equals("enqueued_at", of.enqueued_at))
        return parted(Change(row, of.id, when=here, gone=True), of)
    there = (In(of.place.queue, of.place.state), Equals("scheduled_at", of.scheduled_at))
    return parted(Change(row, of.task_id, when=there, gone=True), of)


def parted(change: Change, of: "Entry | Task | None") -> Change:
    """Complete a change by which a task stops living in its queue.

    With it goes the key lock of the dedupe key.  That there is none is assumed of a task that was
    not read: then the condition is the write's.
    """
    if isinstance(of, Task):
        locks = freed(of)
        return change.together(*locks, seen=of) if locks else change
    if change.rule.source in (State.SUCCEEDED, State.DEAD):
        return change  # whoever ended it freed its key
    return replace(change, when=(*change.when, Unset("dedupe_key")))


def end(change: Change, queue: Queue, *, now: datetime, retention: Seconds) -> Change:
    """Complete a change that ends a task's life: it is kept for *retention* seconds, or gone.

    Of one that is gone its id stays for a while, at no cost: the write that takes it out of the
    index is what a removal costs.  So an enqueue whose answer was lost, and is repeated after the
    task is done, does not make it anew.
    """
    if change.rule.target is None:
        message = f"{change.rule.action} is no end of a life"
        raise LookupError(message)
    place = place_in(queue, change.rule.target, change.task_id)
    kept = retention > 0
    until = now + timedelta(seconds=retention if kept else limits.SPENT_SECONDS)
    finish = {"finished_at": now, "retained_until": _whole_second(until)}
    if not kept:
        put = {"spent": place, **finish}
        return replace(change, gone=True, put=put, clear=_FORGOTTEN, append={}, add={})
    put = {**change.put, "place": place, "scheduled_at": now, **finish}
    return replace(change, put=put, clear=LEASE)


def dead_retention(queue: Queue) -> Seconds:
    """Return how long *queue* keeps its dead, in seconds; 0 when it keeps none."""
    config = queue.settings.dead_letter_queue_config
    return config.retention_period_in_seconds if config.enable else 0


def _whole_second(instant: datetime) -> datetime:
    """Round up: the table's broom counts whole seconds."""
    floor = instant.replace(microsecond=0)
    return floor if floor == instant else floor + _SECOND
