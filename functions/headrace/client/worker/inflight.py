"""The in-flight tasks of a worker, each with its stage."""

import enum
import math
import threading
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Final, TypeAlias

from headrace.client.app.execution import TaskRoute
from headrace.client.codec import Codec
from headrace.client.sending import Report, carried
from headrace.client.worker.groups import GroupLease
from headrace.client.worker.service import Monotonic
from headrace.domain.limits import PROGRESS_BYTES
from headrace.safe_logging import safe_logger
from headrace.wire.tasks import LeasedTask

NOTHING: Final = object()
"""No progress to send."""

CANCEL_SECONDS: Final = 5.0
"""How long a handler whose task was cancelled may take to end, where it can be killed."""

_LATE_HEARTBEAT_SECONDS: Final = 5.0
"""How long a late heartbeat may take after the process stood still over the end of a lease."""

_AGAIN_SECONDS: Final = 1.0
"""How long a handler may swallow the hard limit before it comes again."""

_log = safe_logger("headrace.worker")


class Interruption(enum.Enum):
    """Why a running handler is stopped, the mildest first."""

    SOFT_LIMIT = enum.auto()
    HARD_LIMIT = enum.auto()
    STOPPED = enum.auto()
    CANCELLED = enum.auto()
    LEASE_LOST = enum.auto()


class RunningHandler:
    """A handler at work; what it need not do is left out by the classes made of this one."""

    def interrupt(self, why: Interruption) -> None:
        """Make it end soon; never waits for that."""

    def kill(self) -> None:
        """End it by force, where that is possible: it was cancelled, and has had its time."""

    def prolonged(self, expires_at: datetime, seconds: float) -> None:
        """Hear of the new end of its lease, in *seconds*, where it does not see what is held."""

    def ended(self) -> None:
        """Take back an interruption that has not arrived yet; called where the handler ran."""


class _Stage(enum.Enum):
    WAITING = enum.auto()
    RUNNING = enum.auto()
    OVER = enum.auto()


class InflightTask:
    """A leased task from the moment it is taken to the end of its handler.

    It waits, runs, and is over; only what waits can be withdrawn, only what runs interrupted.
    Times are of the monotonic clock.  To the app it is the `Control` of the attempt.
    ``group`` is the lease that it is under with others, if it is; ``lease_lost`` is whether the
    worker has noticed that it is over.
    """

    def __init__(
        self,
        task: LeasedTask,
        route: TaskRoute,
        *,
        now: float,
        lease_ends: float,
        group: GroupLease | None = None,
        codec: Codec | None = None,
        monotonic: Monotonic | None = None,
    ) -> None:
        """*codec* writes progress; without one it is not looked at before it is sent.

        *monotonic* is the clock by which a handler that asks is told that its lease is over.
        """
        self.task, self.route, self.group = task, route, group
        self.lease_lost = self.cancelled = self.abandoned = self.stopping = False
        self.expired_unbegun = False
        self.killed_at = math.inf
        self.started_at = self.seconds = 0.0
        self.soft_at = self.hard_at = math.inf
        self.stalled_seconds = 0.0
        self._asked_until = -math.inf
        self.beaten_at = now
        self.lease_ends = lease_ends
        self.lease_expires_at: datetime = task.lease.expires_at
        self._progress: object = NOTHING
        self._codec, self._monotonic = codec, monotonic
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

    @property
    def lost(self) -> bool:
        """Whether the lease is over, noticed or not: the whole process may have stood still."""
        return self.lease_lost or (self._monotonic is not None and self.seconds_left <= 0)

    @property
    def seconds_left(self) -> float:
        """How long the lease lasts from now on; without a clock for ever."""
        return math.inf if self._monotonic is None else self.lease_ends - self._monotonic()

    def progress(self, value: object) -> None:
        """Send *value*, as it is now, with the next heartbeat; only the latest one counts.

        Raises InvalidRequest for what cannot be sent, here where the handler sees it.
        """
        codec = self._codec
        if codec is not None:
            text = carried(value, codec, field="progress", most=PROGRESS_BYTES)
            value = codec.decode(bytes(text))
        self._progress = value

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
        """Let it run from *now* on; False: it was withdrawn.

        A task whose lease has ended does not begin: it is withdrawn, and `expired_unbegun` is set.
        """
        with self._lock:
            if self._stage is not _Stage.WAITING:
                return False
            if self.seconds_left <= 0:
                self._stage, self.expired_unbegun = _Stage.OVER, True
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
            self.lease_lost = self.abandoned = True
            return True

    def cancel(self, now: float) -> bool:
        """Note at *now* that it was cancelled, and make its handler end; False: that was known."""
        with self._lock:
            if self.cancelled:
                return False
            self.cancelled, self.killed_at = True, now + CANCEL_SECONDS
        self.interrupt(Interruption.CANCELLED)
        return True

    def interrupt(self, why: Interruption) -> None:
        """Make its handler end soon, if it is at work."""
        if why in {Interruption.CANCELLED, Interruption.LEASE_LOST}:
            self.lease_lost = True
        elif why is Interruption.STOPPED:
            self.stopping = True
        with self._lock:
            if self._stage is _Stage.RUNNING and self._attempt is not None:
                self._attempt.interrupt(why)

    def kill(self) -> None:
        """End its handler by force where that is possible, once."""
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

    @property
    def beat_at(self) -> float:
        """When to ask for more time: a third of the lease after it was last granted."""
        return self.beaten_at + (self.lease_ends - self.beaten_at) / 3

    def stood_still(self, seconds: float, now: float) -> bool:
        """Note that the process did nothing for *seconds* until *now*; return whether that matters.

        If the lease ended meanwhile, the worker could not renew it, and perhaps the service has
        not taken the task back yet.  So the task has a few seconds more, for a late heartbeat.
        """
        if self.lease_lost or not now - seconds <= self.lease_ends <= now:
            return False
        self.stalled_seconds, self._asked_until = seconds, now + _LATE_HEARTBEAT_SECONDS
        return True

    def awaits_late_heartbeat(self, now: float) -> bool:
        """Whether its lease has ended at *now* and is not known to be lost."""
        return self.group is None and not self.lease_lost and self.lease_ends <= now

    def overdue(self, now: float) -> Interruption | None:
        """Why it is to be interrupted at *now*: its lease or its time is over.

        The soft limit is said once, the hard one each second: it alone is left where a handler goes
        on though its lease is over.
        """
        if not self.lease_lost and max(self.lease_ends, self._asked_until) <= now:
            return Interruption.LEASE_LOST
        if self.hard_at <= now:
            self.hard_at = now + _AGAIN_SECONDS
            return Interruption.HARD_LIMIT
        if not self.lease_lost and self.soft_at <= now:
            self.soft_at = math.inf
            return Interruption.SOFT_LIMIT
        return None


Ended: TypeAlias = Callable[[InflightTask, Report | None], None]
"""Takes a task whose handler has ended, with its report; None: its lease is lost."""


class InflightTasks:
    """All in-flight tasks; threads may share it."""

    def __init__(self) -> None:
        # By task and lease: many may have one lease, and a task may come back to where it was lost.
        self._held: dict[tuple[str, str], InflightTask] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._held)

    def add(self, held: InflightTask) -> None:
        """Hold one more."""
        with self._lock:
            self._held[held.task.id, held.task.lease.id] = held

    def remove(self, held: InflightTask) -> int | None:
        """Hold one less, and return how many are left; None: it was not held any more."""
        with self._lock:
            gone = self._held.pop((held.task.id, held.task.lease.id), None)
            return None if gone is None else len(self._held)

    def all(self) -> list[InflightTask]:
        """The tasks in flight now."""
        with self._lock:
            return list(self._held.values())

    def groups(self) -> AbstractSet[GroupLease]:
        """The group leases that something is held under."""
        return {held.group for held in self.all() if held.group is not None}

    def past_limits(self, now: float) -> list[InflightTask]:
        """Interrupt what is over its time limits at *now*; return those whose lease has ended.

        What was cancelled a while ago and goes on is killed, where that is possible.
        """
        ended = []
        for held in self.all():
            why = held.overdue(now)
            if why is Interruption.LEASE_LOST:
                ended.append(held)
            elif why is not None:
                held.interrupt(why)
            if held.killed_at <= now:
                held.kill()
        return ended
