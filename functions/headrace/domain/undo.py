"""What an undo keeps, and how it brings that back: pure functions to a Change.

A task that is deleted with an undo is in a state of its own, with all it had but the lease.  All
tasks of one undo have its time as ``scheduled_at``, so that the index finds them together.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from headrace.domain import plan
from headrace.domain.change import Change, Equals
from headrace.domain.copies import altered
from headrace.domain.fairness import Turn
from headrace.domain.instants import MICROSECOND
from headrace.domain.lifecycle import Action, rule
from headrace.domain.operate import Unfit
from headrace.domain.queue import Queue, turn_kept, waiting
from headrace.domain.task import LIVE, Place, State, Task

BACK_ALREADY: Final = "it is back already"
"""Why an undo leaves a task alone that it has brought back before."""

_MARKS: Final = ("deleted_by", "deleted_from", "deleted_retention")


@dataclass(frozen=True, slots=True)
class Undo:
    """What can bring back what one action deletes in *queue*, from *at* on and *until* then."""

    id: str
    queue: str
    at: datetime
    until: datetime


def kept(removal: Change, task: Task, undo: Undo | None) -> Change:
    """Complete the *removal* of *task*: with an *undo* it is hidden instead, until that is over.

    What it held is free: its lease ends, and with it its dedupe key (as planned in *removal*).
    """
    if undo is None or task.state is State.DELETED:
        return removal
    put: dict[str, Any] = {
        "place": Place(task.queue, State.DELETED, task.place.shard),
        "scheduled_at": undo.at,
        "retained_until": plan.whole_second(undo.until),
        "deleted_by": undo.id,
        "deleted_from": task.state,
    }
    clear: tuple[str, ...] = plan.LEASE
    if task.retained_until is None:
        clear += ("deleted_retention",)
    else:
        put["deleted_retention"] = task.retained_until
    done_when = (Equals("created_at", task.created_at), Equals("deleted_by", undo.id))
    row = rule(removal.rule.action, task.state, State.DELETED)
    return altered(removal, rule=row, gone=False, put=put, clear=clear, done_when=done_when)


def takes_place(task: Task, queue: Queue) -> bool:
    """Tell whether *task* comes back to *queue* behind all others of its group."""
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
            Equals("created_at", task.created_at),
            Equals("version", task.version + 1),
            Equals("last_move", str(row.action)),
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
        put, unset = waiting(queue, task.id, now, task.priority, turn=turn)
        return {**put, "returned_at": now}, unset
    if origin is State.INFLIGHT:
        put, unset = waiting(queue, task.id, now, task.priority, returned=True)
        return {**put, "returned_at": now}, unset
    due_at = task.due_at
    if queue.settings.dequeuing_settings.max_inflight_tasks or queue.group_limit:
        due_at += MICROSECOND  # no due time twice in a queue: see domain.slots
    return waiting(queue, task.id, due_at, task.priority, turn=turn_kept(task))
