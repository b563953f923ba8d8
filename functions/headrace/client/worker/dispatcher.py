"""The dispatcher: each task from when it is fetched until its report is on its way."""

import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import Final

from headrace.client.app.execution import Executor
from headrace.client.models import LeasedTask, Reported
from headrace.client.sending import Report, carried
from headrace.client.worker.groups import GroupLease
from headrace.client.worker.inflight import InflightTask, InflightTasks, Interruption
from headrace.client.worker.logs import about
from headrace.client.worker.observing import Observer, Observers
from headrace.client.worker.prefetch import Prefetch
from headrace.client.worker.reporting import Reporter, came_of, released
from headrace.client.worker.running import Handlers
from headrace.client.worker.service import ServiceClock, WorkerService
from headrace.client.worker.settings import WorkerSettings
from headrace.domain.limits import PROGRESS_BYTES

_CHECK_SECONDS: Final = 0.01

_log = logging.getLogger("headrace.worker")


class Dispatcher:
    """Starts what is taken, sends the reports of what has ended, gives back what is not wanted.

    Its methods are called from whatever thread something happens in.
    """

    def __init__(
        self,
        app: Executor,
        service: WorkerService,
        clock: ServiceClock,
        settings: WorkerSettings,
        *,
        app_path: str | None = None,
        observers: Sequence[Observer] = (),
        fatal: Callable[[Exception], None],
        chance: random.Random,
    ) -> None:
        """*fatal* is called with the reason why no task can be run at all."""
        self.inflight = InflightTasks()
        self.prefetch = Prefetch(settings.concurrency, settings.prefetch)
        self.reporter = Reporter(
            service,
            clock,
            idle=lambda: not self.inflight,
            settled=self._settled,
            dropped=self._dropped,
            chance=chance,
        )
        self.handlers = Handlers(
            app,
            settings,
            self._started,
            self._ended,
            clock.monotonic,
            app_path=app_path,
            fatal=fatal,
        )
        self._app, self._service, self._clock = app, service, clock
        self._observers = Observers(observers) if observers else None
        self.closed = False

    def take(self, task: LeasedTask, lease_ends: float, group: GroupLease | None = None) -> None:
        """Hold *task* and let it run; its lease ends at *lease_ends*, if not put off by *group*."""
        now = self._clock.monotonic()
        held = InflightTask(
            task, self._app.route(task), now=now, lease_ends=lease_ends, group=group
        )
        held.copy_progress_with(self._copy_progress)
        self.inflight.add(held)
        if self.closed:
            self._release_waiting(held)
        else:
            self.handlers.start(held)

    def taken(self, queue: str, count: int) -> None:
        """Note that a call brought *count* tasks."""
        if self._observers is not None:
            self._observers.taken(queue, count)

    def lost(self, held: InflightTask, why: str) -> None:
        """Note that a lease is over, or that a report came to nothing."""
        if held.withdraw():
            self.inflight.remove(held)
        held.interrupt(Interruption.LEASE_LOST)
        _log.warning("The lease of a task is lost: %s", why, extra=about(held.task))
        if self._observers is not None:
            self._observers.lost(held.task, why)

    def _dropped(self, held: InflightTask, why: str) -> None:
        _log.warning("What came of a task was dropped: %s", why, extra=about(held.task))
        held.lost = True
        if self._observers is not None:
            self._observers.lost(held.task, why)

    def close(self) -> None:
        """Give back what has not begun, and all that still comes."""
        self.closed = True
        for held in self.inflight.all():
            self._release_waiting(held)

    def clear(self, until: float) -> None:
        """Interrupt what still runs; what does not end *until* then is released all the same."""
        for held in self.inflight.all():
            held.interrupt(Interruption.STOPPED)
        while self.inflight and self._clock.monotonic() < until:
            time.sleep(_CHECK_SECONDS)
        for held in self.inflight.all():
            if held.abandon():
                _log.warning(
                    "It does not end, and is released all the same", extra=about(held.task)
                )
                self._release(held)
            else:
                self._release_waiting(held)

    def _release_waiting(self, held: InflightTask) -> None:
        if held.withdraw():
            self._release(held)

    def _release(self, held: InflightTask) -> None:
        self.inflight.remove(held)
        self.reporter.add(held, released(held.task))

    def _started(self, held: InflightTask) -> None:
        if self._observers is not None:
            self._observers.started(held.task, held.route)

    def _ended(self, held: InflightTask, report: Report | None) -> None:
        seconds = held.ran_until(self._clock.monotonic())
        self.inflight.remove(held)
        if held.begun:
            self.prefetch.ran(seconds)
        if report is not None:
            self.reporter.add(held, report)
        if self._observers is not None and held.begun:
            outcome = "LOST" if report is None else report.status
            self._observers.ended(held.task, held.route, outcome, seconds)

    def _settled(self, held: InflightTask, report: Report, result: Reported) -> None:
        """Log how a task ended, once the service has taken it.

        One thread says it for all: handlers that fought for the log would pay more for a line
        than for everything else.
        """
        if not _log.isEnabledFor(logging.INFO):
            return
        name, outcome, seconds = held.route.name, report.status, held.seconds
        extra = about(held.task, task_name=name, outcome=outcome, seconds=round(seconds, 6))
        ending = came_of(report, result, held.task)
        _log.info("%s %s in %.3f s%s", name, outcome.lower(), seconds, ending, extra=extra)

    def _copy_progress(self, value: object) -> object:
        """Return *value* as it is now.  Raises InvalidRequest for what cannot be sent."""
        codec = self._service.codec
        return codec.decode(bytes(carried(value, codec, field="progress", most=PROGRESS_BYTES)))
