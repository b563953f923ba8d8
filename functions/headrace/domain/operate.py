"""What operators do to tasks, planned from the task as it was read, and how a deletion is undone.

``Unfit`` says why an action does not take a task; nothing is written then.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final, Self

from msgspec import structs

from headrace.domain import limits, plan
from headrace.domain.change import Change, Condition
from headrace.domain.lifecycle import LIFECYCLE, Action, Actor, rule, rules
from headrace.domain.patch import When
from headrace.domain.queue import Queue, kept_turn, new_life_fields, waiting_fields
from headrace.domain.task import FINISHED, LIVE, Hop, Place, State, Task
from headrace.domain.task_fields import ClearedBy, fields_cleared_by
from headrace.domain.task_groups import Turn
from headrace.domain.times import MICROSECOND, whole_second


class BulkAction(StrEnum):
    """What can be done to many tasks."""

    DELETE = "delete"
    RESTART = "restart"
    RUN = "run"
    MOVE = "move"
    CANCEL = "cancel"


class ActionStatus(StrEnum):
    """How an action stands that the service carries out; ``LOOKING``: which tasks are meant?"""

    LOOKING = "LOOKING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    DONE = "DONE"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"


STATES_BY_ACTION: Final = {
    action: tuple(
        dict.fromkeys(
            row.source
            for row in LIFECYCLE
            if (row.action, row.actor) == (Action(action), Actor.OPERATOR) and row.source
        )
    )
    for action in BulkAction
}
"""The states an action takes tasks from, when its filter names none."""

SAID: Final = {
    "inflight": "it is in flight",
    "not_dead": "it is not finished",
    "dedupe_conflict": "another task holds its dedupe key",
}
"""The meaning of the API's reasons for a skipped task, for people."""


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """One task as it was seen: which one, and which of its times in a state.

    An action on many tasks takes time, and workers go on meanwhile.  A task that has left the state
    of the snapshot, even if it came back, no longer matches.  ``state_tag`` is different each time
    that the task enters a state: a digest of the state, its own time, and when the task was
    created.  A heartbeat does not change it; a delivery, retry, move or restart does.
    """

    id: str
    state_tag: str

    @classmethod
    def of(cls, task: Task) -> Self:
        """Return *task* as it is now."""
        seen = f"{task.state} {task.scheduled_at.isoformat()} {task.created_at.isoformat()}"
        return cls(task.id, blake2b(seen.encode(), digest_size=8).hexdigest())

    def shows(self, task: Task) -> bool:
        """Return whether *task* is still in the state of the snapshot."""
        return TaskSnapshot.of(task) == self


def came_after(task: Task, moment: datetime) -> bool:
    """Return whether *task* has certainly entered its state after *moment*."""
    known: tuple[datetime | None, ...]
    if task.state in FINISHED:
        known = (task.finished_at, task.scheduled_at)
    elif task.state is State.INFLIGHT:
        known = (task.started_at,)
    else:
        # A task that was delivered after the moment, and waits again, counts too.
        known = (task.enqueued_at, task.returned_at, task.started_at)
    return any(at is not None and at > moment for at in known)


@dataclass(frozen=True, slots=True)
class Unfit:
    """Why an action does not take a task."""

    detail: str


def takes_turn(
    action: BulkAction, task: Task, queue: Queue, *, target: Queue | None, now: datetime
) -> Queue | None:
    """Return the queue in which *action* lets *task* wait for its group's turn, if it does."""
    to = queue if action is BulkAction.RESTART else target
    if to is None or to.settings.groups is None or not rules(Action(action), task.state):
        return None
    later = task.state is State.ENQUEUED and task.due_at > now
    return None if later else to


def operate(
    action: BulkAction,
    task: Task,
    queue: Queue,
    *,
    target: Queue | None,
    now: datetime,
    turn: Turn | None = None,
) -> Change | Unfit:
    """Plan *action* on *task* of *queue*; *target* is where a move goes.

    *turn* is that of its group, where ``takes_turn`` says that it takes one.

    The change is made only if the task has not changed.  If its answer is lost, a repeat recognises
    it by its time: to the microsecond no other action gives a task the same.
    """
    if not rules(Action(action), task.state, actor=Actor.OPERATOR):
        return Unfit(_out_of_place(action, task))
    if fault := _order_fault(task, target, now):
        return Unfit(fault)
    expired = task.state is State.ENQUEUED and not task.is_live(now)
    if expired and action is not BulkAction.DELETE:
        return Unfit("the task has expired")
    change: Change | Unfit
    match action:
        case BulkAction.DELETE:
            change = plan.delete(task, unless_changed=True)
        case BulkAction.CANCEL:
            change = plan.cancel(task, queue, now=now, unless_changed=True)
        case BulkAction.RUN:
            change = _run(task, queue, now=now)
        case BulkAction.RESTART:
            change = _restart(task, queue, now=now, turn=turn)
        case BulkAction.MOVE:
            change = (
                Unfit("no target") if target is None else _move(task, target, now=now, turn=turn)
            )
    return change


def shows_action(
    action: BulkAction, task: Task, stamps: Collection[datetime], undo_id: str | None
) -> bool:
    """Return whether *task* has gone through *action* at one of the times *stamps*.

    It shows that for long after: one that was restarted as long as that life of it lasts, one that
    was moved for good.  Of one that is run now its due time shows it, until it is retried.
    """
    match action:
        case BulkAction.DELETE:
            return undo_id is not None and task.deleted_by == undo_id
        case BulkAction.CANCEL:
            return task.finished_at in stamps
        case BulkAction.RUN:
            return task.due_at in stamps
        case BulkAction.RESTART:
            return task.enqueued_at in stamps
        case BulkAction.MOVE:
            return any(hop.at in stamps for hop in task.trail)


def _order_fault(task: Task, target: Queue | None, now: datetime) -> str | None:
    """Return the reason that keeps *task* out of the strict order of *target*, or None."""
    if target is None or not target.strict:
        return None
    if fault := target.group_fault(task.group_key):
        return f"group_key {fault}"
    if task.state is State.ENQUEUED and task.due_at > now:
        return f"the task is not due yet, and the order of queue {target.name} is strict"
    return None


def _out_of_place(action: BulkAction, task: Task) -> str:
    if task.state is State.INFLIGHT:
        return "inflight"
    return "not_dead" if action is BulkAction.RESTART else f"the task is {task.state}"


def _run(task: Task, queue: Queue, *, now: datetime) -> Change | Unfit:
    """Due at once; attempts and expiry stay."""
    if task.due_at <= now:
        return Unfit("the task is due already")
    row = rule(Action.RUN, State.ENQUEUED, State.ENQUEUED)
    put, unset = waiting_fields(queue, task.id, now, task.priority)
    return Change(
        row,
        task.id,
        when=plan.unchanged(task),
        put=put,
        clear=unset,
        done_when=(*_itself(task), When("due_at", "=", now)),
    )


def _restart(task: Task, queue: Queue, *, now: datetime, turn: Turn | None) -> Change:
    """A new life: attempts 0, a fresh expiry, the errors kept, the dedupe key taken again."""
    row = rule(Action.RESTART, task.state, State.ENQUEUED)
    change = _reborn(Change(row, task.id), task, queue, now=now, due_at=now, turn=turn)
    if task.dedupe_key is None:
        return change
    taken = plan.holder(queue.name, task.dedupe_key, value=task.id, expects=None)
    return change.together(taken, seen=task)


def _move(task: Task, target: Queue, *, now: datetime, turn: Turn | None) -> Change:
    """As a worker's move, but a waiting task keeps its due time; a dead one is due now."""
    row = rule(Action.MOVE, task.state, State.ENQUEUED)
    due_at = task.due_at if task.state is State.ENQUEUED else now
    if any(hop.queue == target.name for hop in task.trail):
        due_at += timedelta(microseconds=1)  # no due time twice in a queue: see domain.slots
    trail = (*task.trail, Hop(task.queue, now))[-limits.TRAIL_KEPT :]
    moved = _reborn(Change(row, task.id), task, target, now=now, due_at=due_at, turn=turn)
    change = structs.replace(
        moved,
        put={**moved.put, "trail": trail},
        clear=tuple(dict.fromkeys((*moved.clear, *fields_cleared_by(ClearedBy.MOVE)))),
        done_when=(*_itself(task), When("enqueued_at", "=", now), When("trail", "=", trail)),
    )
    return plan.release_dedupe_key(change, task)


def _reborn(
    change: Change,
    task: Task,
    queue: Queue,
    *,
    now: datetime,
    due_at: datetime,
    turn: Turn | None,
) -> Change:
    """Begin a new life in *queue*."""
    put, unset = new_life_fields(
        queue, task.id, due_at=due_at, now=now, priority=task.priority, turn=turn
    )
    return structs.replace(
        change,
        when=plan.unchanged(task),
        put=put,
        clear=(*fields_cleared_by(ClearedBy.NEW_LIFE), *unset),
        done_when=(*_itself(task), When("due_at", "=", due_at)),
    )


def _itself(task: Task) -> tuple[Condition, ...]:
    return (When("created_at", "=", task.created_at),)


BACK_ALREADY: Final = "it is back already"
"""Why an undo skips a task that it has restored before."""

_MARKS: Final = ("deleted_by", "deleted_from", "deleted_retention")


@dataclass(frozen=True, slots=True)
class Undo:
    """What can bring back what one action deletes in *queue*, from *at* on and *until* then.

    ``ids`` are the deleted tasks, if they are few: a lagging index need not show these.  ``by`` is
    the name of the key that deleted them, ``reason`` the reason that it gave.
    """

    id: str
    queue: str
    at: datetime
    until: datetime
    ids: tuple[str, ...] | None = None
    by: str = ""
    reason: str = ""


def hide_for_undo(removal: Change, task: Task, undo: Undo | None) -> Change:
    """Complete the *removal* of *task*: with an *undo* it is hidden instead, until that is over.

    What it held is free: its lease ends, and with it its dedupe key (as planned in *removal*).
    """
    if undo is None or task.state is State.DELETED:
        return removal
    put: dict[str, Any] = {
        "place": Place(task.queue, State.DELETED, task.place.shard),
        "scheduled_at": undo.at,
        "retained_until": whole_second(undo.until),
        "deleted_by": undo.id,
        "deleted_from": task.state,
    }
    clear: tuple[str, ...] = plan.LEASE
    if task.retained_until is None:
        clear += ("deleted_retention",)
    else:
        put["deleted_retention"] = task.retained_until
    done_when = (When("created_at", "=", task.created_at), When("deleted_by", "=", undo.id))
    row = rule(removal.rule.action, task.state, State.DELETED)
    return structs.replace(removal, rule=row, gone=False, put=put, clear=clear, done_when=done_when)


def takes_place(task: Task, queue: Queue) -> bool:
    """Return whether *task* comes back to *queue* behind all others of its group."""
    return queue.strict and (task.deleted_from or State.ENQUEUED) in LIVE


def undelete(
    task: Task, queue: Queue, *, now: datetime, turn: Turn | None = None
) -> Change | Unfit:
    """Plan the return of a deleted *task* of *queue*, only as it was read.

    One that waited does so again.  One that was in flight waits, due now, and the attempt that the
    deletion interrupted does not count.  What was finished is so again.  A task that waits takes
    its dedupe key again.
    *turn* is a new one, where ``takes_place`` says that it takes one.
    """
    if task.deleted_retention is not None and task.deleted_retention <= now:
        return Unfit("the task is past its retention")
    origin = task.deleted_from or State.ENQUEUED
    target = State.ENQUEUED if origin in LIVE else origin
    row = rule(Action.UNDELETE, State.DELETED, target)
    put: dict[str, Any]
    clear: tuple[str, ...] = _MARKS
    if target is State.ENQUEUED:
        put, unset = _waits_again(task, queue, origin, now, turn)
        if origin is State.INFLIGHT:
            put["attempts"] = task.attempts - 1
        clear = (*_MARKS, "retained_until", *unset)
    else:
        place = Place(queue.name, target, task.place.shard)
        put = {"place": place, "scheduled_at": task.finished_at}
        if task.deleted_retention is None:
            clear = (*_MARKS, "retained_until")
        else:
            put["retained_until"] = task.deleted_retention
    change = Change(
        row,
        task.id,
        when=plan.unchanged(task),
        put=put,
        clear=clear,
        done_when=(
            When("created_at", "=", task.created_at),
            When("version", "=", task.version + 1),
            When("last_move", "=", str(row.action)),
        ),
    )
    if target is not State.ENQUEUED or task.dedupe_key is None:
        return change
    taken = plan.holder(queue.name, task.dedupe_key, value=task.id, expects=None)
    return change.together(taken, seen=task)


def _waits_again(
    task: Task, queue: Queue, origin: State, now: datetime, turn: Turn | None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the fields by which it waits, and those it has not; what had a turn keeps it."""
    if turn is not None:
        put, unset = waiting_fields(queue, task.id, now, task.priority, turn=turn)
        return {**put, "returned_at": now}, unset
    if origin is State.INFLIGHT:
        put, unset = waiting_fields(queue, task.id, now, task.priority, returned=True)
        return {**put, "returned_at": now}, unset
    due_at = task.due_at
    if queue.settings.dequeuing_settings.max_inflight_tasks or queue.group_limit:
        due_at += MICROSECOND  # no due time twice in a queue: see domain.slots
    return waiting_fields(queue, task.id, due_at, task.priority, turn=kept_turn(task))
