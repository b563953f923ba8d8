"""What a write of a task means, read from the task before it and after it.

The time of a transition is a time of the task, to the microsecond.  If the task has none (after a
release or a delete), it is the time when the store's log saw the write; DynamoDB's stream has whole
seconds.
"""

from datetime import datetime
from enum import StrEnum, auto
from typing import Final, NamedTuple

from headrace.domain.filters import fault_of, fault_stands, fingerprint
from headrace.domain.instants import EPOCH, micros_of
from headrace.domain.lifecycle import Action
from headrace.domain.task import State, Task
from headrace.domain.write import Spot, TaskWrite, last_spot_of, spot_of


class UnreadableWrite(ValueError):
    """A write whose tasks do not say what happened."""


class Event(StrEnum):
    """What can happen to a task, as the counters and the metrics see it."""

    ENQUEUED = auto()  #: new in a queue, moved there, or restarted; not a retry
    STARTED = auto()  #: handed to a worker; ``micros`` is how long it was due
    SUCCEEDED = auto()  #: reported SUCCEEDED; ``micros`` is how long the delivery lasted
    FAILED = auto()  #: an attempt failed or its lease lapsed; ``micros`` as above
    DEAD = auto()  #: ended without success
    CANCELLED = auto()  #: ended by a cancel
    MOVED = auto()  #: moved to another queue by its worker; ``micros`` as above


class Happening(NamedTuple):
    """One event in one queue, ``at`` in microseconds since 1970; ``micros`` is its duration."""

    event: Event
    queue: str
    at: int
    micros: int | None = None


class TaskFault(NamedTuple):
    """The error that a task ended with (``dead``) or is retried after."""

    fingerprint: str
    dead: bool
    type: str
    message: str
    task_id: str
    worker: str


class Transition(NamedTuple):
    """One write of one task: the spots that the task left and entered, and the events.

    A spot is None if the task was nowhere.  ``was_cancelled`` and ``is_cancelled`` say whether the
    task was dead by a cancel before and after the write; ``old_fault`` and ``new_fault`` are its
    standing errors before and after.
    """

    at: int
    left: Spot | None
    entered: Spot | None
    happenings: tuple[Happening, ...] = ()
    was_cancelled: bool = False
    is_cancelled: bool = False
    old_fault: TaskFault | None = None
    new_fault: TaskFault | None = None


def transition(write: TaskWrite) -> Transition:
    """Return the transition of *write*.

    A tombstone says how its task ended; a task without one was removed by an operator or by the
    store.  The removal of a tombstone is no event.  Raises UnreadableWrite.
    """
    old, new = write.before, write.after
    left = spot_of(old)
    if new is None:
        change = Transition(write.recorded_at, left, None)
    else:
        change = _change(left, new, write.recorded_at)
    was, failed = _failure(old, left)
    now, fails = _failure(new, change.entered)
    if was or now or failed or fails:
        return change._replace(
            was_cancelled=was, is_cancelled=now, old_fault=failed, new_fault=fails
        )
    return change


def standing_fault(task: Task) -> TaskFault | None:
    """Return the fault that *task* ended with or is retried after; None without one."""
    return _failure(task, spot_of(task))[1]


def _failure(task: Task | None, spot: Spot | None) -> tuple[bool, TaskFault | None]:
    """Return whether *task*, which is at *spot*, was cancelled, and its fault."""
    if task is None or spot is None:
        return False, None
    dead = spot[1] is State.DEAD
    cancelled = dead and task.cancelled
    if not fault_stands(spot[1], task.attempts, cancelled=cancelled):
        return cancelled, None
    kind, message = fault_of(task)
    fault = TaskFault(fingerprint(kind, message), dead, kind, message, task.id, task.worker or "")
    return cancelled, fault


def _change(left: Spot | None, new: Task, recorded_at: int) -> Transition:
    entered = spot_of(new)
    if entered is not None:
        return _changed(left, entered, new, recorded_at)
    ended = last_spot_of(new)
    if ended is None:  # hidden, for an undo to restore
        return Transition(recorded_at, left, None)
    return _changed(left, ended, new, recorded_at)._replace(entered=None)


def _changed(left: Spot | None, entered: Spot, new: Task, recorded_at: int) -> Transition:
    """Decide by the entered state, then by the action that the task names."""
    queue, state = entered
    move = new.last_move
    if move == Action.UNDELETE or (state is State.INFLIGHT and move != Action.DEQUEUE):
        return Transition(recorded_at, left, entered)  # back as it was; a heartbeat
    if state is State.INFLIGHT:
        at = _instant(new.started_at, "started_at")
        due = max(0, at - _instant(new.due_at, "due_at"))
        return Transition(at, left, entered, (Happening(Event.STARTED, queue, at, due),))
    if state is State.SUCCEEDED:
        at = _instant(new.finished_at, "finished_at")
        succeeded = Happening(Event.SUCCEEDED, queue, at, _ran(new, at))
        return Transition(at, left, entered, (succeeded,))
    if state is State.DEAD:
        at = _instant(new.finished_at, "finished_at")
        dead = Happening(Event.CANCELLED if move == Action.CANCEL else Event.DEAD, queue, at)
        if move not in _FAILURES:
            return Transition(at, left, entered, (dead,))
        failed = Happening(Event.FAILED, queue, at, _ran(new, at))
        return Transition(at, left, entered, (failed, dead))
    return _waiting(left, entered, new, move, recorded_at)


_FAILURES: Final = (Action.FAIL, Action.RECLAIM)


def _waiting(
    left: Spot | None, entered: Spot, new: Task, move: str, recorded_at: int
) -> Transition:
    queue = entered[0]
    if left is None or move == Action.MOVE:
        at = _instant(new.enqueued_at, "enqueued_at")
        enqueued = Happening(Event.ENQUEUED, queue, at)
        if left is None or left[1] is not State.INFLIGHT:
            return Transition(at, left, entered, (enqueued,))
        moved = Happening(Event.MOVED, left[0], at, _ran(new, at))
        return Transition(at, left, entered, (enqueued, moved))
    if move == Action.RESTART:
        at = _instant(new.due_at, "due_at")
        return Transition(at, left, entered, (Happening(Event.ENQUEUED, queue, at),))
    if move in _FAILURES:
        at = _instant(new.errors[-1].at if new.errors else None, "the latest error's at")
        failed = Happening(Event.FAILED, queue, at, _ran(new, at))
        return Transition(at, left, entered, (failed,))
    return Transition(recorded_at, left, entered)


def _ran(task: Task, until: int) -> int | None:
    """Return how long the latest delivery lasted; None for a task that was never delivered."""
    started = task.started_at
    return None if started is None else max(0, until - _instant(started, "started_at"))


def _instant(moment: datetime | None, name: str) -> int:
    if moment is None or moment < EPOCH:
        message = f"{name} is not an instant: {moment}"
        raise UnreadableWrite(message)
    return micros_of(moment)
