"""The in-flight tasks of a worker, each with its stage."""

import enum
import math
import threading
from datetime import datetime
from typing import Final

from headrace.client.app.execution import TaskRoute
from headrace.client.codec import Codec
from headrace.client.sending import carried
from headrace.client.worker.service import Monotonic
from headrace.domain.limits import PROGRESS_BYTES
from headrace.wire.tasks import LeasedTask

NOTHING: Final = object()
"""No progress to send."""

_PROGRESS_SECONDS: Final = 1.0
"""The least time between two heartbeats with progress of one task."""

CANCEL_SECONDS: Final = 5.0
"""How long a handler whose task was cancelled may take to end, where it can be killed."""

_LATE_HEARTBEAT_SECONDS: Final = 5.0
"""How long a late heartbeat may take after the process stood still over the end of a lease."""

_AGAIN_SECONDS: Final = 1.0
"""How long a handler may swallow the hard limit before it comes again."""


class Interruption(enum.Enum):
    """Why a running handler is stopped, the mildest first."""

    SOFT_LIMIT = enum.auto()
    HARD_LIMIT = enum.auto()
    STOPPED = enum.auto()
    CANCELLED = enum.auto()
    LEASE_LOST = enum.auto()


class RunningHandler:
    """A running handler; its subclasses leave out what they do not need."""

    def interrupt(self, why: Interruption) -> None:
        """Make it end soon; never waits for that."""

    def kill(self) -> None:
        """End it by force some seconds after a cancel, where that is possible."""

    def prolonged(self, expires_at: datetime, seconds: float) -> None:
        """Pass on the new end of the lease, in *seconds*, to another process."""

    def ended(self) -> None:
        """Take back an interruption that has not arrived yet; called where the handler ran."""


class _Stage(enum.Enum):
    WAITING = enum.auto()
    RUNNING = enum.auto()
    OVER = enum.auto()


class InflightTask:
    """A leased task, from the dequeue to the end of its handler.

    It waits, runs, and is over; only a waiting task can be withdrawn, only a running one
    interrupted.  Times are of the monotonic clock.  To the app it is the `AttemptControl`.
    ``lease_lost`` is whether the worker has noticed that the lease is over.
    """

    def __init__(
        self,
        task: LeasedTask,
        route: TaskRoute,
        *,
        lease_ends: float,
        codec: Codec,
        monotonic: Monotonic,
    ) -> None:
        """Hold *task*, whose lease ends at *lease_ends*; *codec* writes its progress."""
        self.task, self.route = task, route
        self.lease_lost = self.cancelled = self.abandoned = self.stopping = False
        self.expired_unbegun = False
        self.killed_at = math.inf
        self.started_at = self.seconds = 0.0
        self.soft_at = self.hard_at = math.inf
        self.stalled_seconds = 0.0
        self._renewable_until = -math.inf
        self.beaten_at = monotonic()
        self.lease_ends = lease_ends
        self.lease_expires_at: datetime = task.lease.expires_at
        self._progress: object = NOTHING
        self._progress_sent_at = -math.inf
        self._codec, self._monotonic = codec, monotonic
        self._stage = _Stage.WAITING
        self._attempt: RunningHandler | None = None
        self._lock = threading.Lock()  # of stage and attempt; never held while waiting

    @property
    def running(self) -> bool:
        """Whether its handler is running."""
        return self._stage is _Stage.RUNNING

    @property
    def begun(self) -> bool:
        """Whether its handler is running or has run."""
        return self._attempt is not None

    @property
    def over(self) -> bool:
        """Whether nothing of it is left to do but to report."""
        return self._stage is _Stage.OVER

    # -------------------------------------------------------------------- what the handler may do

    @property
    def lost(self) -> bool:
        """Whether the lease is over, noticed or not: the whole process may have stood still."""
        return self.lease_lost or self.seconds_left <= 0

    @property
    def seconds_left(self) -> float:
        """How long the lease lasts from now on."""
        return self.lease_ends - self._monotonic()

    def progress(self, value: object) -> None:
        """Send *value*, as it is now, with the next heartbeat; only the latest one counts.

        Raises InvalidRequest for what cannot be sent, here where the handler sees it.
        """
        text = carried(value, self._codec, field="progress", most=PROGRESS_BYTES)
        self._progress = self._codec.decode(bytes(text))

    @property
    def progress_due_at(self) -> float:
        """When to send progress: a second after it was last sent; infinite if there is none."""
        return math.inf if self._progress is NOTHING else self._progress_sent_at + _PROGRESS_SECONDS

    def take_progress(self) -> object:
        """Return progress that is due, or NOTHING."""
        if self.progress_due_at > (now := self._monotonic()):
            return NOTHING
        progress, self._progress, self._progress_sent_at = self._progress, NOTHING, now
        return progress

    def return_progress(self, progress: object) -> None:
        """Keep *progress* that could not be sent, unless there is newer."""
        if self._progress is NOTHING:
            self._progress = progress

    # ------------------------------------------------------------------------------------- stages

    def begin(self, attempt: RunningHandler) -> bool:
        """Let it run from now on; False: it was withdrawn.

        A task whose lease has ended does not begin: it is withdrawn, and `expired_unbegun` is set.
        """
        with self._lock:
            if self._stage is not _Stage.WAITING:
                return False
            if self.seconds_left <= 0:
                self._stage, self.expired_unbegun = _Stage.OVER, True
                return False
            self._stage, self._attempt = _Stage.RUNNING, attempt
        self.started_at = self._monotonic()
        if self.route.soft_timeout is not None:
            self.soft_at = self.started_at + self.route.soft_timeout
        if self.route.hard_timeout is not None:
            self.hard_at = self.started_at + self.route.hard_timeout
        return True

    def note_end(self) -> None:
        """Note how many seconds its handler ran."""
        if self._attempt is not None:
            self.seconds = self._monotonic() - self.started_at

    def end(self) -> None:
        """Mark it as over, so that nothing interrupts it.  May be repeated."""
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
            self.lease_lost = self.abandoned = True
            return True

    def cancel(self) -> bool:
        """Note that it was cancelled, and interrupt its handler; False: that was known."""
        with self._lock:
            if self.cancelled:
                return False
            self.cancelled, self.killed_at = True, self._monotonic() + CANCEL_SECONDS
        self.interrupt(Interruption.CANCELLED)
        return True

    def interrupt(self, why: Interruption) -> None:
        """Make its handler end soon, if it runs."""
        if why in {Interruption.CANCELLED, Interruption.LEASE_LOST}:
            self.lease_lost = True
        elif why is Interruption.STOPPED:
            self.stopping = True
        with self._lock:
            if self._stage is _Stage.RUNNING and self._attempt is not None:
                self._attempt.interrupt(why)

    def kill(self) -> None:
        """End its handler by force, if it is a child process."""
        self.killed_at = math.inf
        with self._lock:
            if self._stage is _Stage.RUNNING and self._attempt is not None:
                self._attempt.kill()

    # ------------------------------------------------------------------------------------- leases

    def prolong(self, expires_at: datetime, *, now: float, lease_ends: float) -> None:
        """Note that the service granted more time at *now*."""
        self.lease_expires_at, self.beaten_at, self.lease_ends = expires_at, now, lease_ends
        self.stalled_seconds = 0.0
        attempt = self._attempt
        if attempt is not None:
            attempt.prolonged(expires_at, self.seconds_left)

    def stood_still(self, seconds: float, now: float) -> bool:
        """Note that the process did nothing for *seconds* until *now*.

        Return whether the lease ended in that time.  Then the worker could not renew it, and the
        service may not have reclaimed the task yet: it has some seconds for a late heartbeat.
        """
        if self.lease_lost or not now - seconds <= self.lease_ends <= now:
            return False
        self.stalled_seconds, self._renewable_until = seconds, now + _LATE_HEARTBEAT_SECONDS
        return True

    def awaits_late_heartbeat(self, now: float) -> bool:
        """Whether its lease has ended at *now* and is not known to be lost."""
        return not self.lease_lost and self.lease_ends <= now

    def overdue(self, now: float) -> Interruption | None:
        """Return why it must be interrupted at *now*: its lease or its time is over.

        The soft limit is returned once, the hard one each second, also if the lease is lost.
        """
        if not self.lease_lost and max(self.lease_ends, self._renewable_until) <= now:
            return Interruption.LEASE_LOST
        if self.hard_at <= now:
            self.hard_at = now + _AGAIN_SECONDS
            return Interruption.HARD_LIMIT
        if not self.lease_lost and self.soft_at <= now:
            self.soft_at = math.inf
            return Interruption.SOFT_LIMIT
        return None
