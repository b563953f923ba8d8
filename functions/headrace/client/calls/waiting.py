"""Wait for the end of a task, and read its result.

A service that can wait at no cost answers when the task ends.  A service that costs money while it
waits, such as a Lambda function, is polled instead.
"""

import math
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from headrace.client.calls import ApiCall, RawAnswer, params_of, path_of, reads
from headrace.client.operations import Clock, Found, FromClient, Operation, Pause, Stream, monotonic
from headrace.domain.errors import InvalidRequest, NotFound, TaskDead
from headrace.domain.limits import WAIT_SECONDS
from headrace.domain.task import FINISHED, State
from headrace.wire.base import JsonValue
from headrace.wire.tasks import Task

_UPDATES_EVERY: Final = 0.5
"""Seconds between two looks at the progress of a task, where looking costs nothing."""

_TURN_SECONDS: Final = 2.0
"""How long a wait has a connection of a service on the network before the next wait has it."""

_NO_PROGRESS: Final = b"null"

CHEAP_SECONDS: Final = 0.1
"""A service that may be asked again this soon is no Lambda that costs money while it waits."""

_GROWTH: Final = 1.5
_CEILING: Final = 5  # times the first pause
_TOO_EARLY: Final = 0.1  # seconds: a service that waits answers sooner only while it stops


class Look(Protocol):
    """The state of something at one moment."""

    @property
    def poll_after_seconds(self) -> float:
        """After how many seconds to look again."""
        ...

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        ...


@dataclass(frozen=True, slots=True)
class TaskLook:
    """A task, and after how many seconds its service says to look again."""

    task: Task
    poll_after_seconds: float
    over_network: bool = True

    @property
    def ended(self) -> bool:
        """Whether it is SUCCEEDED or DEAD."""
        return self.task.state in FINISHED


def look_at_task(
    id: str, *, payload: bool | None = None, wait_seconds: float = 0
) -> ApiCall[TaskLook]:
    """Look at a task, letting the service wait up to *wait_seconds* (20) for its end."""

    def read(answer: RawAnswer) -> TaskLook:
        return TaskLook(reads(Task)(answer), answer.poll_after_seconds, answer.over_network)

    params = params_of(payload=payload, wait_seconds=wait_seconds or None)
    return ApiCall("GET", path_of("tasks", id), read, params=params, wait_seconds=wait_seconds)


class LookPace:
    """Decides when to look again, for up to *timeout* seconds; None: without end.

    *turn* is the number of seconds that the service may wait; with 0 it cannot wait.  *clock*
    counts seconds.
    """

    def __init__(
        self, timeout: float | None, *, turn: float = WAIT_SECONDS, clock: Clock = monotonic
    ) -> None:
        """Begin now.  Raises InvalidRequest for a negative timeout."""
        if timeout is not None and not timeout >= 0:
            raise InvalidRequest.of("timeout", f"must be None or at least 0, not {timeout!r}")
        self._clock, self._turn = clock, turn
        self._until = math.inf if timeout is None else clock() + timeout
        self._rest = self._wait = 0.0
        self._looked_at = clock()
        self._number = 0

    def next(self, look: Look) -> Generator[Pause, None, float | None]:
        """Pause after *look*; return how many seconds the service may wait at the next one.

        Return None if the time is over.
        """
        now, poll_after = self._clock(), look.poll_after_seconds
        left = self._until - now
        if left <= 0:
            return None
        if poll_after <= CHEAP_SECONDS and self._turn:
            early = now - self._looked_at < min(_TOO_EARLY, self._wait / 2)
            rest = min(left, _TOO_EARLY) if early else 0.0
            turn = min(self._turn, _TURN_SECONDS) if over_network(look) else self._turn
            self._wait = min(left - rest, turn)
        else:
            self._rest = min(self._rest * _GROWTH or poll_after, poll_after * _CEILING)
            rest = min(left, self._rest)
            self._wait = 0.0
        if rest:
            self._number += 1
            yield Pause(rest, look, self._number, left)
        self._looked_at = now + rest
        return self._wait


def over_network(look: Look) -> bool:
    """Return whether the service answers through connections that other calls need too."""
    return isinstance(look, TaskLook) and look.over_network


def wait(id: str, *, timeout: float | None = None, payload: bool | None = None) -> Operation[Task]:
    """Return a task once it has ended, SUCCEEDED or DEAD; moves and retries are no end.

    Over a file and from a service on this machine the answer comes at the end of the task.  A
    deployment on AWS is asked again after 1 to 5 seconds: waiting there would cost more.
    *timeout* is in seconds; None waits for as long as it takes.  *payload* as in ``get_task``.
    Raises TimeoutError, and NotFound as soon as the task is deleted, or has ended and its queue
    does not keep it.
    """
    pace = LookPace(timeout, clock=(yield FromClient("clock")))
    look: TaskLook = yield look_at_task(id, payload=payload)
    while not look.ended:
        wait_seconds = yield from pace.next(look)
        if wait_seconds is None:
            raise not_ended(id, timeout, look.task.state)
        look = yield look_at_task(id, payload=payload, wait_seconds=wait_seconds)
    return look.task


def updates(id: str, *, timeout: float | None = None) -> Stream[JsonValue]:
    """Go through the progress of a task as its worker shows it, until the task has ended.

    Changes between two looks, half a second apart or as in ``wait``, are not seen.
    Raises as ``wait`` does, and Unreadable.
    """
    pace = LookPace(timeout, turn=_UPDATES_EVERY, clock=(yield FromClient("clock")))
    look: TaskLook = yield look_at_task(id, payload=False)
    shown = _NO_PROGRESS
    while True:
        progress = bytes(look.task.progress_json)
        if progress not in {shown, _NO_PROGRESS}:
            yield Found((look.task.progress,))
        shown = progress
        if look.ended:
            return
        wait_seconds = yield from pace.next(look)
        if wait_seconds is None:
            raise not_ended(id, timeout, look.task.state)
        look = yield look_at_task(id, payload=False, wait_seconds=wait_seconds)


def not_ended(id: str, timeout: float | None, state: State) -> TimeoutError:
    """Return the error about a task that has not ended in time."""
    return TimeoutError(f"task {id} has not ended within {timeout or 0:g} s: it is {state}")


@contextmanager
def if_kept(id: str) -> Iterator[None]:
    """A block that looks at a task made before.  Raises NotFound, saying what that means."""
    try:
        yield
    except NotFound as missing:
        raise NotFound(
            f"task {id} does not exist: it was deleted, or it has ended and its queue does"
            " not keep it (history_retention_in_seconds, dead_letter_queue_config)"
        ) from missing


def result_of(task: Task) -> JsonValue:
    """The result of a task that has ended.  Raises TaskDead, and Unreadable."""
    if task.state != State.DEAD:
        return task.result
    text = f"task {task.id} of {task.queue} is dead ({task.dead_reason})"
    text += f", attempt {task.attempts}" if task.attempts else ", never delivered"
    if task.errors:
        error = task.errors[-1]
        text += f": {error.type}: {error.message}" if error.type else f": {error.message}"
    dead = TaskDead(text)
    dead.task = task
    raise dead
