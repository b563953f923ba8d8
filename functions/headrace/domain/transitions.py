"""The meaning of a write of a task: its transition, and the changes of its batches.

The time of a transition is a time of the task, to the microsecond.  If the task has none (after a
release or a delete), it is the time when the store's log saw the write; DynamoDB's stream has whole
seconds.
"""

from datetime import datetime
from enum import StrEnum, auto
from typing import Final, NamedTuple, TypeAlias

from headrace.domain.batch import HASHES, BatchDelta, hash_of
from headrace.domain.fingerprints import fault_of, fingerprint, is_error_current
from headrace.domain.lifecycle import Action
from headrace.domain.task import Membership, State, Task
from headrace.domain.times import EPOCH, micros_of

Spot: TypeAlias = tuple[str, State]
"""A queue, and a state in it."""


class TaskWrite(NamedTuple):
    """One write of one task: the task before and after it, None where there was none.

    ``sequence`` grows from write to write, at least within a shard of the log.
    ``recorded_at`` is when the log saw the write, in microseconds since 1970.  ``forgotten`` means
    that the store itself removed the task, because the task was past its retention.
    ``payload_bytes`` is the size of the payload where the log left the payload out.
    """

    sequence: int
    recorded_at: int
    before: Task | None
    after: Task | None
    forgotten: bool = False
    payload_bytes: int | None = None


def spot_of(task: Task | None) -> Spot | None:
    """Return the queue and the state of *task*; None for a tombstone."""
    return None if task is None or task.ended_in is not None else last_spot_of(task)


def last_spot_of(task: Task | None) -> Spot | None:
    """Return the queue and the state of *task*, of a tombstone those in which the task ended.

    None for a task that was deleted.
    """
    if task is None:
        return None
    place = task.ended_in or task.place
    return None if place.state is State.DELETED else (place.queue, place.state)


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

    A spot is None where the task did not exist.  ``was_cancelled`` and ``is_cancelled`` say whether
    the task was dead by a cancel before and after the write; ``old_fault`` and ``new_fault`` are
    its standing errors before and after.
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
    if not is_error_current(spot[1], task.attempts, cancelled=cancelled):
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


_LIVE: Final = "live"
_NUMBERS: Final = {State.SUCCEEDED: "succeeded", State.DEAD: "dead"}


def batch_deltas(write: TaskWrite) -> tuple[tuple[str, BatchDelta], ...]:
    """Return the changes of the numbers of the task's batches, with the ids of the batches.

    A member that is removed after its end stays counted as it ended.  Only a member that is removed
    before its end counts as deleted.
    """
    was = (write.before and write.before.batches) or ()
    now = (write.after and write.after.batches) or ()
    if not was and not now:  # most tasks have no batches
        return ()
    before, after = {one.batch: one for one in was}, {one.batch: one for one in now}
    deltas = (
        (batch, _delta(write, before.get(batch), after.get(batch))) for batch in before | after
    )
    return tuple((batch, delta) for batch, delta in deltas if delta is not None)


def _delta(
    write: TaskWrite, before: Membership | None, after: Membership | None
) -> BatchDelta | None:
    was = _number_of(write.before) if before is not None else None
    now = _number_of(write.after) if after is not None else None
    if write.after is not None and write.after.last_move == Action.UNDELETE:
        # Ended members stayed counted; the others wait again.
        return BatchDelta(live=1, deleted=-1, moves=1) if now == _LIVE else None
    spawned = 0
    if after is not None:
        spawned = (after.spawned - (before.spawned if before is not None else 0)) % HASHES
    ended_before = now is None and was != _LIVE
    if ended_before or (was == now and not spawned):
        return None
    moved = was != now and (now != _LIVE or was is not None)
    delta = BatchDelta(owed=spawned, moves=int(moved or spawned > 0))
    if was is not None:
        setattr(delta, was, getattr(delta, was) - 1)
    name = now or "deleted"
    setattr(delta, name, getattr(delta, name) + 1)
    if was is None and after is not None and write.after is not None:
        _add_birth(delta, write.after, after)
    task = write.after or write.before
    if task is not None and was != now and now == "dead":
        delta.deaths = 1
        delta.died.append(task.id)
    elif task is not None and was != now and was == "dead":
        delta.revived.append(task.id)
    return delta


def _add_birth(delta: BatchDelta, task: Task, member: Membership) -> None:
    delta.created = 1
    spot = last_spot_of(task)
    delta.born, delta.queues = [task.id], [spot[0]] if spot else []
    if member.inherited:
        delta.owed = (delta.owed - hash_of(task.id)) % HASHES
    else:
        delta.direct = 1


def _number_of(task: Task | None) -> str | None:
    """Return the name of the number that counts *task*; None for a task that was deleted."""
    spot = last_spot_of(task)
    if spot is None:
        return None
    return _NUMBERS.get(spot[1], _LIVE)
