"""What a write of a task means: read from the task before it and after it.

``transition`` says from where to where the task went and what happened on the way.  It runs for
each write of the whole table, so it looks at few fields.

The task says when it happened, to the microsecond; only where it does not say it (a release, a
delete) is it when the store's log saw the write, which DynamoDB's stream tells to the second.
"""

from enum import StrEnum, auto
from typing import Final, NamedTuple

from headrace.domain.filters import fault_stands, fingerprint
from headrace.domain.lifecycle import Action
from headrace.domain.task import DeadReason, State
from headrace.domain.write import Spot, TaskView, TaskWrite

_LATEST: Final = 253_402_300_800_000_000  # the year 10,000 in microseconds
MALFORMED: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a view raises that came from outside and is none of a task."""


class IndexEntry(NamedTuple):
    """Where a task stands in the index; *at* in microseconds since 1970.

    ``cancelled`` and ``fault`` the index does not tell: whether the task came to be dead so, and
    the fingerprint of what it has ended of or is tried again after, else empty.
    """

    queue: str
    state: State
    label: int
    at: int
    task_id: str
    cancelled: bool = False
    fault: str = ""


class UnreadableImage(ValueError):
    """What a write shows is no task."""


class Event(StrEnum):
    """What can happen to a task, for those who count: one a line of the metrics."""

    ENQUEUED = auto()  #: came into a queue: new, moved there, or restarted; not a retry
    STARTED = auto()  #: handed to a worker; ``micros`` is how long it was due
    SUCCEEDED = auto()  #: reported SUCCEEDED; ``micros`` is how long the worker had it
    FAILED = auto()  #: an attempt failed or its lease lapsed; ``micros`` likewise
    DEAD = auto()  #: given up
    CANCELLED = auto()  #: ended because nobody wants it done
    MOVED = auto()  #: a worker moved it on to another queue; ``micros`` likewise


class Happening(NamedTuple):
    """One event in one queue, ``at`` in microseconds since 1970; ``micros`` is its duration."""

    event: Event
    queue: str
    at: int
    micros: int | None = None


class TaskFault(NamedTuple):
    """What a task has ended of (``dead``), or is tried again after."""

    fingerprint: str
    dead: bool
    type: str
    message: str
    task_id: str
    worker: str


class Transition(NamedTuple):
    """One write of one task: where it left, where it came to (None: nowhere), what happened.

    ``was_cancelled`` and ``is_cancelled`` say whether it was dead of a cancel where it left, and is
    where it came to; ``old_fault`` and ``new_fault`` what it had failed of, and has.
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
    """Return the transition that *write* made.

    What is left of a task that is gone says how it ended; one of which nothing is left was removed
    by hand, or by the store.  That what was left is removed is nothing that happens to a task.
    Raises UnreadableImage.
    """
    old, new = write.before, write.after
    try:
        left = None if old is None else old.spot
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
    except MALFORMED as error:
        message = f"not the image of a task: {type(error).__name__}: {error}"
        raise UnreadableImage(message) from error


def index_entry(task: TaskView | None) -> IndexEntry | None:
    """Return where *task*, of a write that transition() could read, stands in the index."""
    spot = None if task is None else task.spot
    if task is None or spot is None:
        return None
    cancelled, fault = _failure(task, spot)
    named = "" if fault is None else fault.fingerprint
    return IndexEntry(*spot, task.label, task.scheduled_at, task.id, cancelled, named)


def standing_fault(task: TaskView) -> TaskFault | None:
    """Return what *task* has failed of and is not past, None if there is nothing."""
    return _failure(task, task.spot)[1]


def _failure(task: TaskView | None, spot: Spot | None) -> tuple[bool, TaskFault | None]:
    """Tell of *task*, which stands at *spot*, whether it is dead because it was cancelled.

    And what it has failed of and is not past.
    """
    if task is None or spot is None:
        return False, None
    dead = spot[1] is State.DEAD
    cancelled = dead and task.dead_reason == DeadReason.CANCELLED
    if not fault_stands(spot[1], task.attempts or 0, cancelled=cancelled):
        return cancelled, None
    error = task.latest_error
    kind, message = ("", task.dead_reason or "") if error is None else (error.type, error.message)
    fault = TaskFault(fingerprint(kind, message), dead, kind, message, task.id, task.worker or "")
    return cancelled, fault


def _change(left: Spot | None, new: TaskView, recorded_at: int) -> Transition:
    entered = new.spot
    if entered is not None:
        return _changed(left, entered, new, recorded_at)
    ended = new.ended
    if ended is None:  # hidden, for an undo to bring back
        return Transition(recorded_at, left, None)
    return _changed(left, ended, new, recorded_at)._replace(entered=None)


def _changed(left: Spot | None, entered: Spot, new: TaskView, recorded_at: int) -> Transition:
    """Tell apart by the state that was entered, then by the action that is named."""
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
    left: Spot | None, entered: Spot, new: TaskView, move: str, recorded_at: int
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
        error = new.latest_error
        at = _instant(None if error is None else error.at, "the latest error's at")
        failed = Happening(Event.FAILED, queue, at, _ran(new, at))
        return Transition(at, left, entered, (failed,))
    return Transition(recorded_at, left, entered)


def _ran(task: TaskView, until: int) -> int | None:
    """How long the latest delivery lasted; None for a task that was never delivered."""
    started = task.started_at
    return None if started is None else max(0, until - _instant(started, "started_at"))


def _instant(micros: int | None, name: str) -> int:
    if micros is None or not 0 <= micros < _LATEST:
        message = f"{name} is not an instant: {micros}"
        raise ValueError(message)
    return micros
