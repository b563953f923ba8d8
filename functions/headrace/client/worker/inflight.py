"""The in-flight tasks of a worker: those it holds a lease of, each with its stage."""

import enum
import math
import threading
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Final, Protocol

from headrace.client.app.execution import TaskRoute
from headrace.client.models import LeasedTask

if TYPE_CHECKING:
    from headrace.client.worker.groups import GroupLease

NOTHING: Final = object()
"""No progress to send."""


class Interruption(enum.Enum):
    """Why a running handler is stopped, the mildest first."""

    SOFT_LIMIT = enum.auto()
    HARD_LIMIT = enum.auto()
    STOPPED = enum.auto()
    LEASE_LOST = enum.auto()


class RunningHandler(Protocol):
    """A handler at work."""

    def interrupt(self, why: Interruption) -> None:
        """Make it end soon; never waits for that."""
        ...

    def prolonged(self, expires_at: datetime) -> None:
        """Hear of the new end of its lease."""
        ...

    def ended(self) -> None:
        """Take back an interruption that has not arrived yet; called where the handler ran."""
        ...


class _Stage(enum.Enum):
    WAITING = enum.auto()
    RUNNING = enum.auto()
    OVER = enum.auto()


class InflightTask:
    """A leased task from the moment it is taken to the end of its handler.

    It waits, runs, and is over; only what waits can be withdrawn, only what runs interrupted.
    Times are of the monotonic clock.  To the app it is the `Control` of the attempt.
    ``group`` is the lease that it is under with others, if it is.
    """

    def __init__(
        self,
        task: LeasedTask,
        route: TaskRoute,
        *,
        now: float,
        lease_ends: float,
        group: "GroupLease | None" = None,
    ) -> None:
        self.task, self.route, self.group = task, route, group
        self.lost = self.abandoned = False
        self.started_at = self.seconds = 0.0
        self.soft_at = self.hard_at = math.inf
        self.beaten_at = now
        self.lease_ends = lease_ends
        self.lease_expires_at: datetime = task.lease.expires_at
        self._progress: object = NOTHING
        self._copy_progress: Callable[[object], object] | None = None
        self._stage = _Stage.WAITING
        self._attempt: RunningHandler | None = None
        self._lock = threading.Lock()  # of stage and attempt; never held while waiting

    @property
    def running(self) -> bool:
        """Whether its handler is at work."""
        return self._stage is _Stage.RUNNING

    @property
    def begun(self) -> bool:
        """Whether its handler is, or has been, at work."""
        return self._attempt is not None

    @property
    def over(self) -> bool:
        """Whether nothing of it is left to do but to report."""
        return self._stage is _Stage.OVER

    # -------------------------------------------------------------------- what the handler may do

    def progress(self, value: object) -> None:
        """Send *value* with the next heartbeat; only the latest one counts."""
        self._progress = value if self._copy_progress is None else self._copy_progress(value)

    def copy_progress_with(self, copy: Callable[[object], object]) -> None:
        """Let *copy* say what is sent, or refuse what cannot be, where the handler sees it."""
        self._copy_progress = copy

    @property
    def has_progress(self) -> bool:
        """Whether there is progress that is not sent yet."""
        return self._progress is not NOTHING

    def take_progress(self) -> object:
        """Return progress that is not sent yet, or NOTHING."""
        progress, self._progress = self._progress, NOTHING
        return progress

    def return_progress(self, progress: object) -> None:
        """Keep *progress* that could not be sent, unless there is newer."""
        if self._progress is NOTHING:
            self._progress = progress

    # ------------------------------------------------------------------------------------- stages

    def begin(self, attempt: RunningHandler, now: float) -> bool:
        """Let it run from *now* on; False: it was withdrawn, or its lease is lost."""
        with self._lock:
            if self._stage is not _Stage.WAITING:
                return False
            self._stage, self._attempt = _Stage.RUNNING, attempt
        self.started_at = now
        if self.route.soft_timeout is not None:
            self.soft_at = now + self.route.soft_timeout
        if self.route.hard_timeout is not None:
            self.hard_at = now + self.route.hard_timeout
        return True

    def ran_until(self, now: float) -> float:
        """Note that its handler has ended, and return how many seconds it ran."""
        if self._attempt is not None:
            self.seconds = now - self.started_at
        return self.seconds

    def end(self) -> None:
        """Let it be over: nothing interrupts it any more.  May be repeated."""
        with self._lock:
            self._stage = _Stage.OVER
            if self._attempt is not None:
                self._attempt.ended()

    def withdraw(self) -> bool:
        """Keep it from running; False: it runs already, or is over."""
        with self._lock:
            if self._stage is not _Stage.WAITING:
                return False
            self._stage = _Stage.OVER
            return True

    def abandon(self) -> bool:
        """Give up on a handler that does not end; False: it has.

        What it returns from now on no longer counts.
        """
        with self._lock:
            if self._stage is not _Stage.RUNNING:
                return False
            self._stage = _Stage.OVER
            self.lost = self.abandoned = True
            return True

    def interrupt(self, why: Interruption) -> None:
        """Make its handler end soon, if it is at work."""
        if why is Interruption.LEASE_LOST:
            self.lost = True
        with self._lock:
            if self._stage is _Stage.RUNNING and self._attempt is not None:
                self._attempt.interrupt(why)

    # ------------------------------------------------------------------------------------- leases

    def prolong(self, expires_at: datetime, *, now: float, lease_ends: float) -> None:
        """Note that the service granted more time at *now*."""
        self.lease_expires_at, self.beaten_at, self.lease_ends = expires_at, now, lease_ends
        attempt = self._attempt
        if attempt is not None:
            attempt.prolonged(expires_at)

    @property
    def beat_at(self) -> float:
        """When to ask for more time: a third of the lease after it was last granted."""
        return self.beaten_at + (self.lease_ends - self.beaten_at) / 3


class InflightTasks:
    """All in-flight tasks; *on_level* is called when so few are left as requested."""

    def __init__(self) -> None:
        # By task and lease: many may have one lease, and a task may come back to where it was lost.
        self._held: dict[tuple[str, str], InflightTask] = {}
        self._lock = threading.Lock()
        self._level = -1
        self._on_level: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return len(self._held)

    def call_at(self, level: int, call: Callable[[], None]) -> None:
        """Call *call* whenever the number held falls to *level*."""
        self._level, self._on_level = level, call

    def add(self, held: InflightTask) -> None:
        """Hold one more."""
        with self._lock:
            self._held[held.task.id, held.task.lease.id] = held

    def remove(self, held: InflightTask) -> None:
        """Hold one less."""
        with self._lock:
            gone = self._held.pop((held.task.id, held.task.lease.id), None)
            left = len(self._held)
        if gone is not None and left <= self._level:
            self._on_level()

    def all(self) -> list[InflightTask]:
        """The tasks in flight now."""
        with self._lock:
            return list(self._held.values())
