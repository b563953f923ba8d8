"""The tasks that a worker holds: started, interrupted, ended, and reported."""

import logging
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Final

from headrace.client.sending import Report
from headrace.client.threads import PeriodicThread
from headrace.client.worker.fetch import Prefetch
from headrace.client.worker.inflight import InflightTask, Interruption
from headrace.client.worker.logs import about
from headrace.client.worker.reports import Reporter, next_step, released, settled_as
from headrace.client.worker.run import Handlers
from headrace.client.worker.service import WorkerParts
from headrace.domain.limits import BATCH
from headrace.safe_logging import safe_logger
from headrace.wire.tasks import LeasedTask, Reported

_STALL_SECONDS: Final = 0.5
"""How long a process must do nothing to have stood still."""

_UNWIND_SECONDS: Final = 1.0
"""How long an interrupted handler may take to end, before its task is released without it."""

_log = safe_logger("headrace.worker")


class HeldTasks:
    """Runs the tasks of a worker and reports on them.

    It wakes *fetching* when there is room for more tasks, and *reporting* when there are reports.
    """

    def __init__(
        self, parts: WorkerParts, *, fetching: PeriodicThread, reporting: PeriodicThread
    ) -> None:
        self._parts, self._clock = parts, parts.clock
        self._fetching, self._reporting = fetching, reporting
        # By task and lease, because a task may be delivered again to the worker that lost it.
        self._held: dict[tuple[str, str], InflightTask] = {}
        self._lock = threading.Lock()
        self._fetch_at = -1  # how few tasks are left when there is room for more
        self._awake_at = parts.clock.monotonic()
        self._prefetch = Prefetch(parts.settings.concurrency, parts.settings.prefetch)
        self._closed = False  # and releases all tasks that have not begun
        self.ended_tasks = 0
        """How many tasks have ended."""

        self.reporter = Reporter(parts)
        self.handlers = Handlers(parts, self)

    def __len__(self) -> int:
        """Return how many tasks are in flight."""
        return len(self._held)

    def all(self) -> list[InflightTask]:
        """Return the tasks in flight now."""
        with self._lock:
            return list(self._held.values())

    @property
    def is_idle(self) -> bool:
        """Whether no task is in flight and all reports are answered."""
        return not self._held and not self.reporter

    def room(self) -> int:
        """Return how many tasks to ask for: whole batches, unless handlers have nothing to do."""
        concurrency, max_tasks = self._parts.settings.concurrency, self._parts.settings.max_tasks
        most = concurrency + self._prefetch.size
        self._fetch_at = max(concurrency - 1, most - BATCH)  # before the look, to miss no change
        held = len(self._held)
        room = 0 if held > self._fetch_at else most - held
        return room if max_tasks is None else min(room, max_tasks - self.ended_tasks - held)

    # ------------------------------------------------------------------------------ start and end

    def start(self, tasks: Sequence[LeasedTask]) -> None:
        """Hold *tasks*, and then run each as soon as there is room."""
        started = [
            InflightTask(
                task,
                self._parts.app.route(task),
                lease_ends=self._clock.monotonic_at(task.lease.expires_at),
                codec=self._parts.service.codec,
                monotonic=self._clock.monotonic,
            )
            for task in tasks
        ]
        with self._lock:
            self._held |= {(held.task.id, held.task.lease.id): held for held in started}
        for held in started:
            if self._closed:
                self._release_waiting(held)
            else:
                self.handlers.start(held)

    def release_expired(self, held: InflightTask) -> None:
        """Release a task that did not begin, if that is because its lease has ended."""
        if held.expired_unbegun:
            self.finish(held, released(held.task))

    def finish(self, held: InflightTask, report: Report | None) -> None:
        """Note that a handler has ended, with its report; None: its lease is lost.

        The thread of the handler calls this.  A report that comes after the worker has given up on
        the task is ignored.
        """
        if held.abandoned:
            return
        held.note_end()
        if report is None and held.lost and not held.lease_lost:  # its handler has seen it first
            held.lease_lost = True
            self._parts.notify("lost", held.task, "it ended without word from the service")
        if held.begun:
            self._prefetch.ran(held.seconds)
        self._let_go(held, report)
        if held.begun:
            lost = "CANCELLED" if held.cancelled else "LOST"
            outcome = lost if report is None or held.cancelled else report.status
            self._parts.notify("ended", held.task, held.route, outcome, held.seconds)

    def _let_go(self, held: InflightTask, report: Report | None = None) -> None:
        """Hold *held* no longer, but first keep its report, so that one of them is seen.

        Nothing is reported of a cancelled task, however its handler has ended.
        """
        if held.cancelled:
            report = None
        to_send = report is not None and self.reporter.add(held, report)
        with self._lock:
            known = self._held.pop((held.task.id, held.task.lease.id), None) is not None
            left = len(self._held)
            self.ended_tasks += known
        if known and left <= self._fetch_at:
            self._fetching.wake()
        if to_send or (report is not None and known and left == 0):
            self._reporting.wake()

    # ------------------------------------------------------------------- interrupt what is over

    def keep_limits(self) -> bool:
        """Interrupt handlers whose time is up; return whether leases must be renewed at once."""
        now = self._clock.monotonic()
        stalled = self.look_for_stall()
        for held in self.all():
            why = held.overdue(now)
            if why is Interruption.LEASE_LOST:
                self.lost(held, "it ended without word from the service", release=True)
            elif why is not None:
                held.interrupt(why)
            if held.killed_at <= now:
                held.kill()
        return stalled

    def look_for_stall(self) -> bool:
        """Return whether leases ended while this process stood still; release what waits.

        Two threads call this several times a second: the first one that goes on notices.
        """
        with self._lock:
            now = self._clock.monotonic()
            seconds, self._awake_at = now - self._awake_at, now
        if seconds < _STALL_SECONDS:
            return False
        stalled = [held for held in self.all() if held.stood_still(seconds, now)]
        if not stalled:
            return False
        _log.warning(
            "This process stood still for %.1f s, and the leases of %d tasks ended meanwhile. They"
            " are renewed late, if the service has not taken the tasks back. A handler that does"
            " not let other threads run is a common cause; so are a suspended machine and a lack"
            " of CPU or memory",
            seconds,
            len(stalled),
        )
        for held in stalled:
            self._release_waiting(held)
        return True

    def lost(self, held: InflightTask, why: str, *, release: bool = False) -> None:
        """Interrupt the handler of a task whose lease is lost.

        With *release*, a task that has not begun is reported as released: a late report counts
        as long as the service has not taken the task back.
        """
        if held.stalled_seconds:
            why = f"{why}; this process stood still for {held.stalled_seconds:.1f} s"
        if held.withdraw():
            self._let_go(held, released(held.task) if release else None)
        held.interrupt(Interruption.LEASE_LOST)
        _log.warning("The lease of a task is lost: %s", why, extra=about(held.task))
        self._parts.notify("lost", held.task, why)

    def cancelled(self, held: InflightTask) -> None:
        """Interrupt the handler of a task that was cancelled."""
        if held.withdraw():
            self._let_go(held)
        if held.cancel():
            _log.info("A task was cancelled", extra=about(held.task))
            self._parts.notify("cancelled", held.task)

    def release_all_waiting(self) -> None:
        """Release the tasks that have not begun, now and later."""
        self._closed = True
        for held in self.all():
            self._release_waiting(held)

    def interrupt_all(self) -> None:
        """Interrupt what still runs; what does not end is released, unless its lease is lost."""
        until = self._clock.monotonic() + _UNWIND_SECONDS
        for held in self.all():
            held.interrupt(Interruption.STOPPED)
        while self._held and self._clock.monotonic() < until:
            time.sleep(0.01)
        for held in self.all():
            lost = held.lease_lost
            if held.abandon():
                fate = "lost its lease before" if lost else "is released all the same"
                fate = "was cancelled" if held.cancelled else fate
                _log.warning("It does not end, and %s", fate, extra=about(held.task))
                self._let_go(held, None if lost else released(held.task))
            else:
                self._release_waiting(held)

    def _release_waiting(self, held: InflightTask) -> None:
        if held.withdraw():
            self._let_go(held, released(held.task))

    # ------------------------------------------------------------------------------------- report

    def report(self) -> float:
        """Send a batch of reports if it is time for one; return the seconds until the next."""
        with closing(self.reporter.send(idle=not self._held)) as answers:
            for answer in answers:
                if answer.result is not None:
                    self._settled(answer.held, answer.report, answer.result)
                elif answer.cancelled:
                    self.cancelled(answer.held)
                else:
                    self._dropped(answer.held, answer.report, answer.dropped)
        return self.reporter.rest(idle=not self._held)

    def _dropped(self, held: InflightTask, report: Report, why: str) -> None:
        if report.status == "RELEASED" and held.lease_lost:  # known to be lost before
            _log.info("A task could not be released: %s", why, extra=about(held.task))
            return
        _log.warning("Task result discarded: %s", why, extra=about(held.task))
        held.lease_lost = True
        self._parts.notify("lost", held.task, why)

    def _settled(self, held: InflightTask, report: Report, result: Reported) -> None:
        """Count and log how an attempt ended, once the service has taken the report.

        One thread does it for all: handlers that wait for the log would pay more for a line than
        for the rest of a task.
        """
        if held.begun:
            self._parts.notify("settled", held.task, held.route, settled_as(report, result))
        if not _log.isEnabledFor(logging.INFO):
            return
        name, outcome, seconds = held.route.title, report.status, held.seconds
        extra = about(held.task, task_name=name, outcome=outcome, seconds=round(seconds, 6))
        ending = next_step(report, result, held.task)
        _log.info("%s %s in %.3f s%s", name, outcome.lower(), seconds, ending, extra=extra)
