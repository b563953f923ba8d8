"""Waiting for the end of a task as a row of looks at it, and what comes of it.

A service that waits at no cost is let wait, and answers the moment that the task ends.  One that is
paid for while it waits, as a Lambda function, is asked again instead.
"""

import math
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast

from headrace.client.calls import ApiCall, RawAnswer, params_of, path_of, reads
from headrace.domain.errors import HeadraceError, InvalidRequest, NotFound, TaskDead
from headrace.domain.limits import WAIT_SECONDS
from headrace.domain.task import FINISHED, State
from headrace.wire.base import JsonValue
from headrace.wire.tasks import Task

UPDATES_EVERY: Final = 0.5
"""Seconds between two looks at the progress of a task, where looking costs nothing."""

NO_PROGRESS: Final = b"null"

CHEAP_SECONDS: Final = 0.1
"""A service that may be asked again this soon is no Lambda that is paid for while it waits."""

_GROWTH: Final = 1.5
_CEILING: Final = 5  # times the first pause
_TOO_EARLY: Final = 0.1  # seconds: no service that waits comes back sooner, unless it stops


class Look(Protocol):
    """A look at something that somebody waits for."""

    @property
    def poll_after_seconds(self) -> float:
        """After how many seconds to look again."""

    @property
    def ended(self) -> bool:
        """Whether it is over."""


L = TypeVar("L", bound=Look)


@dataclass(frozen=True, slots=True)
class TaskLook:
    """A task as it stands, and after how many seconds its service says to look again."""

    task: Task
    poll_after_seconds: float

    @property
    def ended(self) -> bool:
        """Whether it is SUCCEEDED or DEAD."""
        return self.task.state in FINISHED


def look_at_task(
    id: str, *, payload: bool | None = None, wait_seconds: float = 0
) -> ApiCall[TaskLook]:
    """Look at a task, letting the service wait up to *wait_seconds* (20) for its end."""

    def read(answer: RawAnswer) -> TaskLook:
        return TaskLook(reads(Task)(answer), answer.poll_after_seconds)

    params = params_of(payload=payload, wait_seconds=wait_seconds or None)
    return ApiCall("GET", path_of("tasks", id), read, params=params)


@dataclass(frozen=True, slots=True)
class NextLook:
    """Whether one rests before the next look, and how long the service may then wait."""

    rest: float
    wait: float


class LookPace:
    """When to look at a task again, for up to *timeout* seconds; None is without end.

    *turn* is how long the service may wait at most, *clock* counts seconds.
    """

    def __init__(
        self,
        timeout: float | None,
        *,
        turn: float = WAIT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin now.  Raises InvalidRequest for a timeout that is none."""
        if timeout is not None and not timeout >= 0:
            raise InvalidRequest.of("timeout", f"must be None or at least 0, not {timeout!r}")
        self._clock, self._turn = clock, turn
        self._until = math.inf if timeout is None else clock() + timeout
        self._pause = 0.0
        self._latest = NextLook(0.0, 0.0)
        self._looked_at = clock()

    def after(self, look: TaskLook) -> NextLook | None:
        """Return the next look after *look*, at a task that has not ended; None: time is over."""
        now, poll_after = self._clock(), look.poll_after_seconds
        left = self._until - now
        if left <= 0:
            return None
        if poll_after <= CHEAP_SECONDS:
            early = now - self._looked_at < min(_TOO_EARLY, self._latest.wait / 2)
            rest = min(left, _TOO_EARLY) if early else 0.0
            self._latest = NextLook(rest, min(left - rest, self._turn))
        else:
            self._pause = min(self._pause * _GROWTH or poll_after, poll_after * _CEILING)
            self._latest = NextLook(min(left, self._pause), 0.0)
        self._looked_at = now + self._latest.rest
        return self._latest


def pauses(look: Look, timeout: float | None) -> Iterator[float]:
    """Yield how long to rest before each next look, where the service does not wait.

    The first is as long as *look* says; they grow to five times that.
    """
    until = math.inf if timeout is None else time.monotonic() + timeout
    pause = look.poll_after_seconds
    while (left := until - time.monotonic()) > 0:
        yield min(left, pause)
        pause = min(pause * _GROWTH, look.poll_after_seconds * _CEILING)


CallSteps: TypeAlias = Generator[ApiCall[Any], Any, L]
"""Calls, each made of the answers to those before, which come back; and what they come to."""


class Looking:
    """The part of a client that goes on looking at what takes several calls."""

    send: Callable[[ApiCall[Any]], Any]
    _sleep: Callable[[float], None]

    def _looked(self, look: Callable[[], CallSteps[L]], timeout: float | None) -> L:
        """Look again and again until that has ended, or for *timeout* seconds; return the last."""
        found = self._taken(look())
        for pause in () if found.ended else pauses(found, timeout):
            self._sleep(pause)
            found = self._taken(look())
            if found.ended:
                break
        return found

    def _taken(self, calls: CallSteps[L]) -> L:
        """Send *calls* one after the other, and return what they come to."""
        try:
            call = next(calls)
            while True:
                try:
                    answer = self.send(call)
                except HeadraceError as error:
                    call = calls.throw(error)
                else:
                    call = calls.send(answer)
        except StopIteration as done:
            return cast("L", done.value)


class AsyncLooking:
    """The same for an event loop."""

    send: Callable[[ApiCall[Any]], Awaitable[Any]]
    _sleep: Callable[[float], Awaitable[None]]

    async def _looked(self, look: Callable[[], CallSteps[L]], timeout: float | None) -> L:  # noqa: ASYNC109  as the synchronous twin
        """Look again and again until that has ended, or for *timeout* seconds; return the last."""
        found = await self._taken(look())
        for pause in () if found.ended else pauses(found, timeout):
            await self._sleep(pause)
            found = await self._taken(look())
            if found.ended:
                break
        return found

    async def _taken(self, calls: CallSteps[L]) -> L:
        """Send *calls* one after the other, and return what they come to."""
        try:
            call = next(calls)
            while True:
                try:
                    answer = await self.send(call)
                except HeadraceError as error:
                    call = calls.throw(error)
                else:
                    call = calls.send(answer)
        except StopIteration as done:
            return cast("L", done.value)


def not_ended(id: str, timeout: float | None, state: State) -> TimeoutError:
    """The error of whoever has waited in vain."""
    return TimeoutError(f"task {id} has not ended within {timeout or 0:g} s: it is {state}")


@contextmanager
def if_kept(id: str) -> Iterator[None]:
    """A block that looks at a task made before.  Raises NotFound, saying what that means."""
    try:
        yield
    except NotFound as missing:
        raise NotFound(
            f"task {id} is not there any more: it has ended, and its queue keeps no such tasks"
            " (history_retention_in_seconds, dead_letter_queue_config), or it was deleted"
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
