"""The worker, from top to bottom: fetch tasks, start them, keep their leases, report, stop.

Each step is a method here, in the order in which a task meets them.  Fetching, reporting and
heartbeats have a thread each, so that none waits for another's answer; the thread of `Worker.run`
keeps the time limits and obeys commands.
"""

import logging
import queue
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import datetime
from typing import Final, Unpack

from headrace.client.app.app import App
from headrace.client.client import Client
from headrace.client.embedding import TimersBeside, TimersElsewhere, timers_of
from headrace.client.sending import Report
from headrace.client.settings import utc_now
from headrace.client.threads import UNTIL_WOKEN, PeriodicThread, Step, signals_to
from headrace.client.worker import logs
from headrace.client.worker.fetch import Fetched, Fetcher, Prefetch
from headrace.client.worker.inflight import InflightTask, InflightTasks, Interruption
from headrace.client.worker.leases import CHECK_SECONDS, Heartbeats, Registry
from headrace.client.worker.logs import LogFormat, about
from headrace.client.worker.observing import Observer, Observers
from headrace.client.worker.reports import Reporter, next_step, released, settled_as
from headrace.client.worker.run import Handlers, RunContext
from headrace.client.worker.service import Monotonic, ServiceClock, WorkerService, seconds_awake
from headrace.client.worker.settings import WorkerOptions, WorkerSettings
from headrace.domain.errors import HeadraceError, Unavailable
from headrace.domain.limits import BATCH
from headrace.safe_logging import safe_logger
from headrace.wire.tasks import LeasedTask, Reported

_UNREPORTED: Final = 250
"""Reports that may wait for the service before no more tasks are fetched."""

_TICK_SECONDS: Final = 0.1
"""How late a time limit or a report may be."""

_STALL_SECONDS: Final = 0.5
"""How long a process must do nothing to have stood still."""

_UNWIND_SECONDS: Final = 1.0
"""How long an interrupted handler may take to end, before its task is released without it."""

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
        service: takes the place of the client, in tests.
        monotonic, now, chance: clocks and dice, in tests.
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
        service: WorkerService | None = None,
        monotonic: Monotonic = seconds_awake,
        now: Callable[[], datetime] = utc_now,
        chance: random.Random | None = None,
        **options: Unpack[WorkerOptions],
    ) -> None:
        app.import_tasks()
        self.settings = settings = WorkerSettings.of(app.queues, **options)
        chance = chance or random.SystemRandom()
        self._where = ""
        self._timers: TimersBeside = TimersElsewhere()
        if service is None:
            client = client or app.client
            self._where = f" at {client.settings.url}"
            self._timers = timers_of(client.settings.address)
            service = WorkerService(client)
        self._app, self._codec, self._log_format = app, service.codec, log_format
        self._clock = clock = ServiceClock(monotonic)
        self._commands: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._failure: Exception | None = None
        self._burst = self._quiet = self._closed = False
        self._caught_up_at = -1.0  # monotonic
        self._fetch_at = -1  # how few tasks are left when there is room for more
        self._awake_at = monotonic()
        self.unreported_tasks = 0
        """After `run`: the number of tasks whose result was not reported."""

        self._observers = Observers(observers)
        self._prefetch = Prefetch(settings.concurrency, settings.prefetch)
        self._fetcher = Fetcher(service, clock, settings, app, chance=chance)
        self.inflight = InflightTasks()
        self._handlers = Handlers(
            RunContext(app, settings, self._observers, self._ended, self._fail, self._thread_died)
        )
        lease_seconds = settings.lease_seconds
        self._heartbeats = Heartbeats(service, clock, lease_seconds=lease_seconds, chance=chance)
        self._registry = Registry(service, clock, settings, started_at=now())
        self._reporter = Reporter(service, clock, chance=chance)
        self._fetching = self._thread("fetching", self._fetch)
        self._reporting = self._thread("reports", self._report)
        self._beating = self._thread("heartbeats", self._beat)
        self.threads = (self._beating, self._reporting, self._fetching)

    # ------------------------------------------------------------------------- for those outside

    def run(self, *, burst: bool = False) -> None:
        """Work until stopped, or with *burst* until the queues have nothing to give.

        In the main thread SIGTERM, SIGINT and SIGHUP stop it.  Can be called once.  Then
        `unreported_tasks` tells whether all results have reached the service.

        Raises:
            NotFound, Forbidden, Unauthenticated: no task can be taken at all, and why.
            Unavailable: the service was away for 30 seconds of a *burst*, while no handler ran.

        """
        if self._log_format is not None:
            logs.configure(self._log_format)
        self._burst = burst
        with self._timers, signals_to(self.stop):
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
                self._handlers.stop()
                self._app.call_end_hooks("worker_stop")
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Take nothing more, let handlers end, release the rest; a second time: at once.

        May be called from any thread, and from a signal handler.
        """
        self._commands.put("stop")

    def quiet(self) -> None:
        """Take nothing more, and go on with what is held."""
        self._commands.put("quiet")

    # --------------------------------------------------------------------------------- 1. fetch

    def _fetch(self) -> float:
        """Ask for tasks if there is room, and start them; return the seconds until the next try."""
        if self._quiet:
            return UNTIL_WOKEN
        if self._has_overdue_calls():
            return _TICK_SECONDS
        fetched = self._fetcher.fetch(self._room(), may_wait=not self._burst)
        if fetched is None:
            return UNTIL_WOKEN
        if fetched.prepared:
            _log.info(
                "Worker %s takes tasks of %s%s, %d at a time",
                self.settings.name,
                ", ".join(self.settings.queues),
                self._where,
                self.settings.concurrency,
            )
        for name, count in Counter(task.queue for task in fetched.tasks).items():
            self._observers.taken(name, count)
        for task in fetched.tasks:
            self._start(task)
        if fetched.fatal is not None:
            self._quiet = True
            self._fail(fetched.fatal)
        elif self._burst:
            self._end_burst(fetched)
        return fetched.rest

    def _has_overdue_calls(self) -> bool:
        """Whether reports or heartbeats have to come before the next dequeue.

        A dequeue reclaims tasks whose lease has ended.  After a standstill of the process it would
        take back tasks that this worker can still renew or report on.
        """
        now = self._clock.monotonic()
        return self._reporter.is_behind(now, most=_UNREPORTED) or any(
            held.awaits_late_heartbeat(now) for held in self.inflight.all()
        )

    def _room(self) -> int:
        """Return how many tasks to ask for: whole batches, unless handlers have nothing to do."""
        concurrency = self.settings.concurrency
        most = concurrency + self._prefetch.size
        self._fetch_at = max(concurrency - 1, most - BATCH)  # before the look, to miss no change
        held = len(self.inflight)
        return 0 if held > self._fetch_at else most - held

    def _end_burst(self, fetched: Fetched) -> None:
        """Stop a burst when the queues are empty, or the service is away, and nothing is held."""
        if self.inflight or self._reporter:
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

    # --------------------------------------------------------------------------------- 2. start

    def _start(self, task: LeasedTask) -> None:
        """Hold *task* and run it as soon as there is room."""
        held = InflightTask(
            task,
            self._app.route(task),
            lease_ends=self._clock.monotonic_at(task.lease.expires_at),
            codec=self._codec,
            monotonic=self._clock.monotonic,
        )
        self.inflight.add(held)
        if self._closed:
            self._release_waiting(held)
        else:
            self._handlers.start(held)

    # ------------------------------------------------------------ 3. keep leases and time limits

    def _beat(self) -> float:
        """Send the heartbeats that are due, of tasks and of the worker itself."""
        inflight = self.inflight.all()
        for held, why, cancelled in self._heartbeats.beat(inflight):
            if cancelled:
                self._cancelled(held)
            else:
                self._lost(held, why)
        command = self._registry.beat(inflight)
        if command is not None:
            self._commands.put(command)
        return CHECK_SECONDS

    def _keep_limits(self) -> None:
        """Interrupt handlers whose time is up."""
        now = self._clock.monotonic()
        self._look_for_stall(now)
        for held in self.inflight.past_limits(now):
            self._lost(held, "it ended without word from the service", release=True)

    def _look_for_stall(self, now: float) -> None:
        """Have leases that ended while this process stood still renewed late."""
        seconds, self._awake_at = now - self._awake_at, now
        if seconds < _STALL_SECONDS:
            return
        stalled = [held for held in self.inflight.all() if held.stood_still(seconds, now)]
        if not stalled:
            return
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
        self._beating.wake()

    def _lost(self, held: InflightTask, why: str, *, release: bool = False) -> None:
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
        self._observers.lost(held.task, why)

    def _cancelled(self, held: InflightTask) -> None:
        if held.withdraw():
            self._let_go(held)
        if held.cancel():
            _log.info("A task was cancelled", extra=about(held.task))
            self._observers.cancelled(held.task)

    # -------------------------------------------------------------------------------- 4. report

    def _ended(self, held: InflightTask, report: Report | None) -> None:
        """Let go of a task whose handler has ended; called where that ran."""
        held.note_end()
        if report is None and held.lost and not held.lease_lost:  # its handler has seen it first
            held.lease_lost = True
            self._observers.lost(held.task, "it ended without word from the service")
        if held.begun:
            self._prefetch.ran(held.seconds)
        self._let_go(held, report)
        if held.begun:
            lost = "CANCELLED" if held.cancelled else "LOST"
            outcome = lost if report is None or held.cancelled else report.status
            self._observers.ended(held.task, held.route, outcome, held.seconds)

    def _let_go(self, held: InflightTask, report: Report | None = None) -> None:
        """Hold *held* no longer, but first keep its report, so that one of them is seen.

        Nothing is reported of a cancelled task, however its handler has ended.
        """
        if held.cancelled:
            report = None
        to_send = report is not None and self._reporter.add(held, report)
        left = self.inflight.remove(held)
        if left is not None and left <= self._fetch_at:
            self._fetching.wake()
        if to_send or (report is not None and left == 0):
            self._reporting.wake()

    def _report(self) -> float:
        """Send a batch of reports if it is time for one, and note the answers."""
        with closing(self._reporter.send(idle=not self.inflight)) as answers:
            for answer in answers:
                if answer.result is not None:
                    self._settled(answer.held, answer.report, answer.result)
                elif answer.cancelled:
                    self._cancelled(answer.held)
                else:
                    self._dropped(answer.held, answer.report, answer.dropped)
        return self._reporter.rest(idle=not self.inflight)

    def _dropped(self, held: InflightTask, report: Report, why: str) -> None:
        if report.status == "RELEASED" and held.lease_lost:  # known to be lost before
            _log.info("A task could not be released: %s", why, extra=about(held.task))
            return
        _log.warning("Task result discarded: %s", why, extra=about(held.task))
        held.lease_lost = True
        self._observers.lost(held.task, why)

    def _settled(self, held: InflightTask, report: Report, result: Reported) -> None:
        """Count and log how an attempt ended, once the service has taken the report.

        One thread does it for all: handlers that wait for the log would pay more for a line than
        for the rest of a task.
        """
        if held.begun:
            self._observers.settled(held.task, held.route, settled_as(report, result))
        if not _log.isEnabledFor(logging.INFO):
            return
        name, outcome, seconds = held.route.title, report.status, held.seconds
        extra = about(held.task, task_name=name, outcome=outcome, seconds=round(seconds, 6))
        ending = next_step(report, result, held.task)
        _log.info("%s %s in %.3f s%s", name, outcome.lower(), seconds, ending, extra=extra)

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
            self._keep_limits()

    def _obey(self) -> None:
        """Keep the time limits, in the thread of `run`, until a command to stop."""
        while (command := self._next_command()) in {None, "quiet"}:
            if command == "quiet":
                self._quiet = True
                _log.info("Asked to be quiet: taking no more tasks")

    def _shut_down(self) -> None:
        """Give back what waits, let handlers end until the deadline, and send the last reports."""
        monotonic = self._clock.monotonic
        ends_at = monotonic() + self.settings.shutdown_timeout
        running = sum(held.running for held in self.inflight.all())
        wait = _shutdown_wait(running, len(self._reporter), self.settings.shutdown_timeout)
        _log.info("Stopping%s", wait)
        self._quiet = self._closed = True
        self._fetching.stop()
        gives_back = bool(self.inflight)
        for held in self.inflight.all():
            self._release_waiting(held)
        reports_seconds = _LAST_REPORTS_SECONDS
        if not self._wait_until(lambda: not self.inflight and self._fetching.join(0), ends_at):
            ends_at = 0.0
            if not gives_back:  # else the reports of what is given back have their time
                reports_seconds = 0.0
        self._interrupt_all()
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
        if self._beating.join(_UNWIND_SECONDS):  # else a heartbeat under way would come after this
            self._registry.sign_off()
        _log.info("Stopped")

    def _wait_until(self, done: Callable[[], bool], until: float) -> bool:
        """Wait for *done*, or *until* (monotonic); False: stopped a second time."""
        while not done() and (left := until - self._clock.monotonic()) > 0:
            if self._next_command(min(left, _TICK_SECONDS / 2)) == "stop":
                _log.warning("Told to stop at once")
                return False
        return True

    def _interrupt_all(self) -> None:
        """Interrupt what still runs; what does not end is released, unless its lease is lost."""
        until = self._clock.monotonic() + _UNWIND_SECONDS
        for held in self.inflight.all():
            held.interrupt(Interruption.STOPPED)
        while self.inflight and self._clock.monotonic() < until:
            time.sleep(0.01)
        for held in self.inflight.all():
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
