"""What a change of the tasks table means: read from an item's image before and after it.

The stream shows every write of a task as two images in DynamoDB's own JSON.  ``transition`` says
from where to where the task went and what happened on the way.  It runs for each write of the whole
table, so it looks at few attributes and never makes a Task of them.

The images say when it happened, to the microsecond; only where they do not say it (a
release, a delete) is it when the stream saw the write, to the second.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum, auto
from functools import lru_cache
from typing import Any, Final, NamedTuple

from headrace.domain.lifecycle import Action
from headrace.domain.task import State

Image = Mapping[str, Mapping[str, Any]]
"""An item as the stream shows it, such as ``{"task_id": {"S": "tsk_1"}}``."""

# Attributes by the names under which headrace.store.items keeps them; a test compares.  The two
# of the lease are within its map.
TASK_ID: Final = "task_id"
PLACE: Final = "queue#state"
SCHEDULED_AT: Final = "scheduled_at"
SPENT: Final = "spent"
LAST_MOVE: Final = "last_move"
DUE: Final = "due_at"
ENQUEUED_AT: Final = "enqueued_at"
STARTED_AT: Final = "started_at"
FINISHED_AT: Final = "finished_at"
EXPIRES_AT: Final = "expires_at"
LEASE: Final = "lease"
LEASE_ID: Final = "id"
LEASE_EXPIRES_AT: Final = "expires_at"
ERRORS: Final = "errors"

_LATEST: Final = 253_402_300_800_000_000  # the year 10,000 in microseconds
_PLACES: Final = 4096  # remembered; a place is a queue, a state and a shard


class IndexEntry(NamedTuple):
    """Where an image stands in the index; *at* in microseconds since 1970."""

    queue: str
    state: State
    shard: int
    at: int
    task_id: str


class UnreadableImage(ValueError):
    """An image is not one of a task."""


class Event(StrEnum):
    """What can happen to a task, for those who count: one a line of the metrics."""

    ENQUEUED = auto()  #: came into a queue: new, moved there, or restarted; not a retry
    STARTED = auto()  #: handed to a worker; ``micros`` is how long it was due
    SUCCEEDED = auto()  #: reported SUCCEEDED; ``micros`` is how long the worker had it
    FAILED = auto()  #: an attempt failed or its lease lapsed; ``micros`` likewise
    DEAD = auto()  #: given up
    MOVED = auto()  #: a worker moved it on to another queue; ``micros`` likewise


@dataclass(frozen=True, slots=True)
class Happening:
    """One event in one queue, ``at`` in microseconds since 1970; ``micros`` is its duration."""

    event: Event
    queue: str
    at: int
    micros: int | None = None


Spot = tuple[str, State]
"""A queue, and a state in it."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One write of one task: where it left, where it came to (None: nowhere), what happened."""

    at: int
    left: Spot | None
    entered: Spot | None
    happenings: tuple[Happening, ...] = ()


def transition(old: Image | None, new: Image | None, *, recorded_at: int) -> Transition:
    """Return the transition between two images; *recorded_at* is when the stream saw it.

    What is left of a task that is gone says how it ended; one of which nothing is left was removed
    by hand, or by the table.  That what was left is removed is nothing that happens to a task.
    Raises UnreadableImage.
    """
    try:
        left = _spot(old[PLACE]["S"]) if old is not None and SPENT not in old else None
        if new is None:
            return Transition(recorded_at, left, None)
        if SPENT in new:
            return replace(_changed(left, _spot(new[SPENT]["S"]), new, recorded_at), entered=None)
        return _changed(left, _spot(new[PLACE]["S"]), new, recorded_at)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        message = f"not the image of a task: {type(error).__name__}: {error}"
        raise UnreadableImage(message) from error


def index_entry(image: Image | None) -> IndexEntry | None:
    """Return where *image*, one that transition() could read, stands in the index."""
    if image is None or SPENT in image:
        return None
    queue, state, shard = image[PLACE]["S"].split("#")
    at = int(image[SCHEDULED_AT]["N"])
    return IndexEntry(queue, State(state), int(shard), at, image[TASK_ID]["S"])


def lease_in(image: Image) -> Image:
    """Return the lease of a task's image, empty where it is under none."""
    lease: Image = image[LEASE]["M"] if LEASE in image else {}
    return lease


def _changed(left: Spot | None, entered: Spot, new: Image, recorded_at: int) -> Transition:
    """Tell apart by the state that was entered, then by the action that is named."""
    queue, state = entered
    move = new[LAST_MOVE]["S"]
    if state is State.INFLIGHT:
        if move != Action.DEQUEUE:
            return Transition(recorded_at, left, entered)  # a heartbeat
        at = _number(new, STARTED_AT)
        started = Happening(Event.STARTED, queue, at, max(0, at - _number(new, DUE)))
        return Transition(at, left, entered, (started,))
    if state is State.SUCCEEDED:
        at = _number(new, FINISHED_AT)
        succeeded = Happening(Event.SUCCEEDED, queue, at, _ran(new, at))
        return Transition(at, left, entered, (succeeded,))
    if state is State.DEAD:
        at = _number(new, FINISHED_AT)
        dead = Happening(Event.DEAD, queue, at)
        if move not in _FAILURES:
            return Transition(at, left, entered, (dead,))
        failed = Happening(Event.FAILED, queue, at, _ran(new, at))
        return Transition(at, left, entered, (failed, dead))
    return _waiting(left, entered, new, move, recorded_at)


_FAILURES: Final = (Action.FAIL, Action.RECLAIM)


def _waiting(
    left: Spot | None, entered: Spot, new: Image, move: str, recorded_at: int
) -> Transition:
    queue = entered[0]
    if left is None or move == Action.MOVE:
        at = _number(new, ENQUEUED_AT)
        enqueued = Happening(Event.ENQUEUED, queue, at)
        if left is None or left[1] is not State.INFLIGHT:
            return Transition(at, left, entered, (enqueued,))
        moved = Happening(Event.MOVED, left[0], at, _ran(new, at))
        return Transition(at, left, entered, (enqueued, moved))
    if move == Action.RESTART:
        at = _number(new, DUE)
        return Transition(at, left, entered, (Happening(Event.ENQUEUED, queue, at),))
    if move in _FAILURES:
        at = _checked(json.loads(new[ERRORS]["L"][-1]["S"])["at"])
        failed = Happening(Event.FAILED, queue, at, _ran(new, at))
        return Transition(at, left, entered, (failed,))
    return Transition(recorded_at, left, entered)


def _ran(image: Image, until: int) -> int | None:
    """How long the latest delivery lasted; None for a task that was never delivered."""
    return max(0, until - _number(image, STARTED_AT)) if STARTED_AT in image else None


def _number(image: Image, name: str) -> int:
    return _checked(int(image[name]["N"]))


def _checked(instant: int) -> int:
    if not 0 <= instant < _LATEST:
        message = f"{instant} is not an instant"
        raise ValueError(message)
    return instant


@lru_cache(_PLACES)
def _spot(place: str) -> Spot:
    queue, state, _ = place.split("#")
    return queue, State(state)
