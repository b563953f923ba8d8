"""The worker: fetch tasks, run them, keep their leases, report, stop.

Fetching, reporting and heartbeats have a thread each, so that none waits for another's answer; the
thread of `Worker.run` keeps the time limits and obeys commands.  `HeldTasks` runs the tasks.
"""

import os
import queue
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, Unpack

from headrace.client.app.app import App
from headrace.client.client import Client
from headrace.client.embedding import timers_of
from headrace.client.settings import utc_now
from headrace.client.threads import UNTIL_WOKEN, PeriodicThread, Step, signals_to
from headrace.client.worker import logs
from headrace.client.worker.fetch import Fetched, Fetcher
from headrace.client.worker.held import HeldTasks
from headrace.client.worker.leases import Heartbeats, Registry
from headrace.client.worker.logs import LogFormat
from headrace.client.worker.service import (
    Monotonic,
    Observer,
    ServiceClock,
    WorkerParts,
    WorkerService,
    seconds_awake,
)
from headrace.client.worker.settings import WorkerOptions, WorkerSettings
from headrace.domain.errors import HeadraceError, InvalidRequest, Unavailable
from headrace.domain.texts import amount
from headrace.safe_logging import safe_logger

_UNREPORTED: Final = 250
"""With this many unsent reports, the worker fetches no tasks."""

_TICK_SECONDS: Final = 0.1
"""How late a time limit or a report may be."""

_BEGIN_SECONDS: Final = 0.001
"""The pause after a fetch whose tasks can all begin: otherwise the next call delays their start."""

_LAST_REPORTS_SECONDS: Final = 5.0
"""The least time that finished results have to reach the service when a worker ends."""

_BURST_SECONDS: Final = 30.0
"""How long a burst waits for a service that is away."""

_log = safe_logger("headrace.worker")


class Worker:
    """Takes tasks from queues and runs the handlers of an app, until it is stopped.

    Args:
        app: what runs the tasks.
        client: how to reach the service; the app's by default.
        observers: are notified of what happens, to count it.
        log_format: ``"text"`` or ``"json"`` sets up logging; None leaves it to the program.
        monotonic: a clock, for tests.
        now: a clock, for tests.
        chance: a source of random numbers, for tests.
        **options: as in `WorkerOptions`: ``queues``, ``concurrency``, ``isolate`` and more.

    Raises:
        InvalidRequest: an option is out of its limits.

    """

    def __init__(
        self,
        app: App,
        *,
        client: Client | None = None,
        observers: Sequence[Observer] = (),
        log_format: LogFormat | None = None,
        monotonic: Monotonic = seconds_awake,
        now: Callable[[], datetime] = utc_now,
        chance: random.Random | None = None,
        **options: Unpack[WorkerOptions],
    ) -> None:
        app.import_tasks()
        self.settings = settings = WorkerSettings.of(app.queues, **options)
        client = client or app.client
        self._url = client.settings.url
        self._timers = timers_of(client.settings.address)
        service = WorkerService(client)
        self._app, self._log_format = app, log_format
        self._clock = ServiceClock(monotonic)
        self._commands: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._failure: Exception | None = None
        self._burst = self._quiet = False
        self._caught_up_at = -1.0  # monotonic
        self.unreported_tasks = 0
        """After `run`: the number of tasks whose result was not reported."""

        self.recycled = False
        """After `run`: whether it ended because of ``max_tasks`` or ``max_memory``."""

        self._fetching = self._thread("fetching", self._fetch)
        self._reporting = self._thread("reports", self._report)
        self._beating = self._thread("heartbeats", self._beat)
        self.threads = (self._beating, self._reporting, self._fetching)
        self._parts = parts = WorkerParts(
            app,
            settings,
            service,
            self._clock,
            observers,
            chance or random.SystemRandom(),
            self._fail,
            self._thread_died,
        )
        self._held = HeldTasks(parts, fetching=self._fetching, reporting=self._reporting)
        self._reporter, self._fetcher = self._held.reporter, Fetcher(parts)
        self._heartbeats = Heartbeats(parts)
        self._registry = Registry(parts, started_at=now())

    # ------------------------------------------------------------------------- for those outside

    def run(self, *, burst: bool = False) -> None:
        """Work until stopped, or with *burst* until the queues have nothing to give.

        In the main thread SIGTERM, SIGINT and SIGHUP stop it.  Can be called once.  Then
        `unreported_tasks` tells whether all results have reached the service.

        Raises:
            NotFound, Forbidden, Unauthenticated: no task can be taken at all, and why.
            Unavailable: the service was away for 30 seconds of a *burst*, while no handler ran.
            InvalidRequest: the process takes more than ``max_memory`` before its first task.

        """
        most, memory = self.settings.max_memory, memory_megabytes()
        if most is not None and memory > most:
            message = f"must be more than {most:g} MB: the process takes {memory:.0f} MB already"
            raise InvalidRequest.of("max_memory", message)
        if self._log_format is not None:
            logs.configure(self._log_format)
        self._burst = burst
        with self._timers, signals_to(self.stop):
            if self._app.has_start_hooks:
                self._parts.service.check_key(next(iter(self.settings.queues)))
            self._app.call_hooks("worker_start")
            if not self.settings.isolate:
                self._app.call_hooks("process_start")
            for thread in self.threads:
                thread.start()
            try:
                self._obey()
                self._shut_down()
            finally:
                for thread in self.threads:
                    thread.stop()
                self._held.handlers.stop()
                self._app.call_end_hooks("worker_stop")
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Stop fetching, let handlers end, and release the rest; immediately if called again.

        May be called from any thread, and from a signal handler.
        """
        self._commands.put("stop")

    def quiet(self) -> None:
        """Stop fetching, and go on with the tasks that are held."""
        self._commands.put("quiet")

    # --------------------------------------------------------------------------------- 1. fetch

    def _fetch(self) -> float:
        """Ask for tasks if there is room, and start them; return the seconds until the next try."""
        if self._quiet:
            return UNTIL_WOKEN
        if self._has_overdue_calls():
            return _TICK_SECONDS
        fetched = self._fetcher.fetch(self._held.room(), may_wait=not self._burst)
        if fetched is None:
            return UNTIL_WOKEN
        if fetched.prepared:
            _log.info(
                "Worker %s takes tasks of %s at %s, %d at a time",
                self.settings.name,
                ", ".join(self.settings.queues),
                self._url,
                self.settings.concurrency,
            )
        for name, count in Counter(task.queue for task in fetched.tasks).items():
            self._parts.notify("taken", name, count)
        self._held.start(fetched.tasks)
        if fetched.fatal is not None:
            self._quiet = True
            self._fail(fetched.fatal)
        elif self._burst:
            self._end_burst(fetched)
        if 0 < len(fetched.tasks) <= self.settings.concurrency:
            return max(fetched.rest, _BEGIN_SECONDS)
        return fetched.rest

    def _has_overdue_calls(self) -> bool:
        """Whether reports or heartbeats have to come before the next dequeue.

        A dequeue reclaims tasks whose lease has ended.  After a standstill of the process it would
        take back tasks that this worker can still renew or report on.
        """
        now = self._clock.monotonic()
        return self._reporter.is_behind(now, most=_UNREPORTED) or any(
            held.awaits_late_heartbeat(now) for held in self._held.all()
        )

    def _end_burst(self, fetched: Fetched) -> None:
        """Stop a burst when the queues are empty, or the service is away, and nothing is held."""
        if not self._held.is_idle:
            return
        if isinstance(fetched.away, Unavailable) and fetched.away_seconds >= _BURST_SECONDS:
            self._fail(fetched.away)
            return
        # A report may have moved a task into a queue that was empty before.
        since = max(self._reporter.last_report_at, self._caught_up_at)
        drained = fetched.answered and self._fetcher.found_nothing(since)
        if drained and not self._caught_up():
            self._commands.put("drained")

    def _caught_up(self) -> bool:
        """Have reports counted, once; return whether that may have made more tasks."""
        if self._caught_up_at > self._reporter.last_report_at:
            return False
        try:
            counted = self._timers.catch_up()
        except Unavailable:  # the next process that runs timers does it
            return False
        self._caught_up_at = self._clock.monotonic()
        return counted

    # ------------------------------------------------------------------- 2. heartbeats and reports

    def _beat(self) -> float:
        """Send the heartbeats that are due, of tasks and of the worker itself."""
        self._held.look_for_stall()
        inflight = self._held.all()
        for held, why, cancelled in self._heartbeats.beat(inflight):
            if cancelled:
                self._held.cancelled(held)
            else:
                self._held.lost(held, why)
        command = self._registry.beat(inflight)
        if command is not None:
            self._commands.put(command)
        return self._heartbeats.rest(inflight)

    def _report(self) -> float:
        """Send a batch of reports if it is time for one; return the seconds until the next."""
        return self._held.report()

    # ---------------------------------------------------------------------------------- 5. stop

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._commands.put("failed")

    def _thread(self, name: str, step: Step) -> PeriodicThread:
        fault = "A fault of the worker itself, in thread %s"
        return PeriodicThread(
            f"headrace-{name}", step, log=_log, fault=fault, died=self._thread_died
        )

    def _thread_died(self, error: BaseException) -> None:
        """End the worker: without one of its threads it would take tasks and not report them."""
        thread = threading.current_thread().name
        _log.error("Thread %s of the worker has ended", thread, exc_info=error)
        message = f"thread {thread} of the worker has ended: {type(error).__name__}: {error}"
        self._fail(HeadraceError(message))

    def _next_command(self, seconds: float = _TICK_SECONDS) -> str | None:
        """Wait up to *seconds* for a command, and keep the time limits."""
        try:
            return self._commands.get(timeout=min(seconds, _TICK_SECONDS))
        except queue.Empty:
            return None
        finally:
            if self._held.keep_limits():
                self._beating.wake()

    def _obey(self) -> None:
        """Keep the time limits, in the thread of `run`, until it is time to stop."""
        while (command := self._next_command()) in {None, "quiet"}:
            if command == "quiet":
                self._quiet = True
                _log.info("Asked to be quiet: no more tasks are taken")
            if self._is_used_up() and self._held.is_idle:
                return

    def _is_used_up(self) -> bool:
        """Stop fetching if ``max_tasks`` or ``max_memory`` is reached; return whether it is."""
        most_tasks, most_memory = self.settings.max_tasks, self.settings.max_memory
        if self.recycled or (most_tasks is None and most_memory is None):
            return self.recycled
        why = ""
        if most_tasks is not None and self._held.ended_tasks >= most_tasks:
            why = f"the limit of {amount(most_tasks, 'task')} is reached"
        elif most_memory is not None and (memory := memory_megabytes()) > most_memory:
            why = f"the process takes {memory:.0f} MB"
        if why:
            self.recycled = self._quiet = True
            _log.info("Ending for a new process: %s", why)
        return self.recycled

    def _shut_down(self) -> None:
        """Release waiting tasks, let handlers end until the deadline, and send the last reports."""
        monotonic = self._clock.monotonic
        ends_at = monotonic() + self.settings.shutdown_timeout
        running = sum(held.running for held in self._held.all())
        wait = _shutdown_wait(running, len(self._reporter), self.settings.shutdown_timeout)
        _log.info("Stopping%s", wait)
        self._quiet = True
        self._fetching.stop()
        gives_back = bool(self._held)
        self._held.release_all_waiting()
        reports_seconds = _LAST_REPORTS_SECONDS
        if not self._wait_until(lambda: not self._held and self._fetching.join(0), ends_at):
            ends_at = 0.0
            if not gives_back:  # else the reports of the released tasks have their time
                reports_seconds = 0.0
        self._held.interrupt_all()
        self._reporter.hurry()
        self._reporting.wake()
        reports_end_at = max(ends_at, monotonic() + reports_seconds)
        self._wait_until(lambda: not self._reporter and self._fetching.join(0), reports_end_at)
        self.unreported_tasks = len(self._reporter)
        if self.unreported_tasks:
            _log.warning(
                "The results of %d tasks could not be reported before the end: these tasks run"
                " again once their leases have lapsed",
                self.unreported_tasks,
            )
        self._beating.stop()
        if self._beating.join(1.0):  # else a heartbeat under way would come after this
            self._registry.sign_off()
        _log.info("Stopped")

    def _wait_until(self, done: Callable[[], bool], until: float) -> bool:
        """Wait for *done*, or *until* (monotonic); False: stopped a second time."""
        while not done() and (left := until - self._clock.monotonic()) > 0:
            if self._next_command(min(left, _TICK_SECONDS / 2)) == "stop":
                _log.warning("Asked to stop immediately")
                return False
        return True


def _shutdown_wait(running: int, unreported: int, seconds: float) -> str:
    """Return the part of the log line that says what a stopping worker waits for."""
    if not running and not unreported:
        return ""
    if not running:
        reports = "1 report has" if unreported == 1 else f"{unreported} reports have"
        seconds = max(seconds, _LAST_REPORTS_SECONDS)
        return f": {reports} {seconds:g} s to reach the service; Ctrl-C again ends it now"
    tasks, them = ("1 task has", "it") if running == 1 else (f"{running} tasks have", "them")
    return f": {tasks} {seconds:g} s to end; Ctrl-C again gives {them} back now"


def memory_megabytes() -> float:
    """Return the memory of this process, on other systems than Linux its maximum so far."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:  # not Linux
        import resource  # noqa: PLC0415 (not on Windows)

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
