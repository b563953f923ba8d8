"""The worker, from top to bottom: fetch tasks, start them, keep their leases, report, stop.

Each step is a method here, in the order in which a task meets them.  A step that calls the service
has a thread of its own, so that none waits for another's answer; it asks one part for what there
is, and acts on what that gives.  The parts know nothing of each other, nor of the worker: only a
handler that has ended is handed in from where it ran.

Long, because that is to be read in one place, and a third of it is the settings.
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
from typing import Final

from headrace.client.app.app import App
from headrace.client.client import Client
from headrace.client.embedding import TimersBeside, TimersElsewhere, timers_of
from headrace.client.sending import Report
from headrace.client.settings import utc_now
from headrace.client.threads import UNTIL_WOKEN, PeriodicThread, Step, signals_to
from headrace.client.worker import logs
from headrace.client.worker.fetcher import Fetched, Fetcher, Prefetch
from headrace.client.worker.groups import GroupLease, GroupsInUse, OpenGroups
from headrace.client.worker.handlers import Handlers
from headrace.client.worker.heartbeats import Heartbeats, Registry
from headrace.client.worker.inflight import InflightTask, InflightTasks, Interruption
from headrace.client.worker.logs import LogFormat, about
from headrace.client.worker.observing import Observer, Observers
from headrace.client.worker.reporting import Reporter, came_of, released
from headrace.client.worker.service import (
    Monotonic,
    ServiceClock,
    WorkerService,
    seconds_awake,
)
from headrace.client.worker.settings import Queues, WorkerSettings
from headrace.domain.errors import HeadraceError, Unavailable
from headrace.domain.limits import BATCH
from headrace.safe_logging import safe_logger
from headrace.wire.tasks import LeasedTask, Reported

_UNREPORTED: Final = 250
"""Reports that may wait for the service before no more tasks are fetched."""

_UNREPORTED_SECONDS: Final = 0.1
_LIMITS_SECONDS: Final = 0.1
"""How late a time limit may be."""

_STALL_SECONDS: Final = 0.5
"""How long a process must do nothing to have stood still; it looks every 0.1 s."""

_CHECK_SECONDS: Final = 0.05

_LET_BEGIN_SECONDS: Final = 0.0005
"""How long handlers that may all begin have Python's lock, before more tasks are asked for."""

_UNWIND_SECONDS: Final = 1.0
"""How long an interrupted handler may take to end, before its task is released without it."""

_UNWIND_CHECK_SECONDS: Final = 0.01
_LAST_REPORTS_SECONDS: Final = 5.0
"""The least time that finished results have to reach the service when a worker ends."""

_LAST_SIGN_SECONDS: Final = 1.0
"""How long a worker that ends waits for a worker heartbeat under way."""

_BURST_SECONDS: Final = 30.0
"""How long a burst waits for a service that is away."""

_log = safe_logger("headrace.worker")


class Worker:
    """Takes tasks from queues and runs the handlers of an app, until it is stopped.

    Args:
        app: what runs the tasks.
        client: how to reach the service; the app's by default.
        queues: names, or a mapping of names to weights; the app's own by default.
        strict: ask the queues in order, a later one only while the ones before have nothing.
        concurrency: tasks at a time; 10, or one for each processor with *isolate*.
        isolate: run each task in a child process, which can be killed.
        prefetch: tasks to hold beyond those that run; None: what starts within half a second.
        name: how operators see it; host and process by default.
        shutdown_timeout: seconds that running tasks may take to end when it stops.
        child_start_timeout: seconds that a child process of *isolate* may take to load the app.
        keepalive: seconds that leases last between two heartbeats; the task's own by default.
        group_lease: hold all tasks under one lease, which lasts *keepalive* (60) seconds and is
            extended by one call.
        sync: bring queues and schedules to what the app declares, before the first task.
        prune: remove the schedules that the app has made and declares no more, with *sync*.
        app_path: ``module:name`` of the app, for the child processes; found by itself by default.
        version: of the program, for operators to see.
        observers: are notified of what happens, to count it.
        log_format: ``"text"`` or ``"json"`` sets up logging; None leaves it to the program.
        service: takes the place of the client, in tests.
        monotonic, now, sleep, chance: clocks and dice, in tests.

    Raises:
        InvalidRequest: a setting is out of its limits.

    """

    def __init__(  # noqa: PLR0913 (each a keyword)
        self,
        app: App,
        *,
        client: Client | None = None,
        queues: Queues | None = None,
        strict: bool = False,
        concurrency: int | None = None,
        isolate: bool = False,
        prefetch: int | None = None,
        name: str | None = None,
        shutdown_timeout: float = 30.0,
        child_start_timeout: float = 30.0,
        keepalive: float | None = None,
        group_lease: bool = False,
        sync: bool = False,
        prune: bool = False,
        app_path: str | None = None,
        version: str = "",
        observers: Sequence[Observer] = (),
        log_format: LogFormat | None = None,
        service: WorkerService | None = None,
        monotonic: Monotonic = seconds_awake,
        now: Callable[[], datetime] = utc_now,
        sleep: Callable[[float], None] = time.sleep,
        chance: random.Random | None = None,
    ) -> None:
        self.settings = WorkerSettings.of(
            app.queues if queues is None else queues,
            strict=strict,
            concurrency=concurrency,
            isolate=isolate,
            prefetch=prefetch,
            name=name,
            shutdown_timeout=shutdown_timeout,
            child_start_timeout=child_start_timeout,
            keepalive=keepalive,
            group_lease=group_lease,
            app_path=app_path,
            sync=sync,
            prune=prune,
        )
        chance = chance or random.SystemRandom()
        self._where = ""
        self._timers: TimersBeside = TimersElsewhere()
        if service is None:
            client = client or app.client
            self._where = f" at {client.settings.url}"
            self._timers = timers_of(client.settings.address)
            service = WorkerService(client)
        self._app, self._codec = app, service.codec
        self._log_format: LogFormat | None = log_format
        self._clock = clock = ServiceClock(monotonic)
        self._sleep = sleep
        self._commands: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._failure: Exception | None = None
        self._burst = self._quiet = False
        self._caught_up_at = -1.0  # monotonic
        self._fetch_at = -1  # how few tasks are left when there is room for more
        self.closed = False
        """Whether it gives back all that has not begun."""

        self.unreported_tasks = 0
        """After `run`: of how many tasks the service could not be told what came of them."""

        self._observers = Observers(observers)
        self.prefetch = Prefetch(self.settings.concurrency, prefetch)
        self._groups = OpenGroups(service, monotonic, keepalive=keepalive) if group_lease else None
        self._fetcher = Fetcher(
            service, clock, self.settings, app, groups=self._groups, chance=chance
        )
        self.inflight = InflightTasks()
        self._awake, self._awake_at = threading.Lock(), monotonic()
        self._handlers = Handlers(
            app,
            self.settings,
            self._observers,
            self._ended,
            monotonic,
            app_path=app_path,
            fatal=self._fail,
            died=self._thread_died,
        )
        self._heartbeats = Heartbeats(service, clock, keepalive=keepalive, chance=chance)
        self._registry = Registry(service, self.settings, version=version, started_at=now())
        self.reporter = Reporter(service, clock, chance=chance)
        self._fetching = self._thread("fetching", self._fetch)
        self._reporting = self._thread("reports", self._report)
        self.threads = {
            "heartbeats": self._thread("heartbeats", self._beat),
            "time-limits": self._thread("time-limits", self._interrupt_late),
            "reports": self._reporting,
            "worker-heartbeat": self._thread("worker-heartbeat", self._beat_for_itself),
            "fetching": self._fetching,
        }

    # ------------------------------------------------------------------------- for those outside

    def run(self, *, burst: bool = False) -> None:
        """Work until stopped, or with *burst* until the queues have nothing to give.

        In the main thread SIGTERM, SIGINT and SIGHUP stop it.  Can be called once.  Then
        `unreported_tasks` tells whether all results have reached the service.

        Raises:
            NotFound, Forbidden, Unauthenticated: no task can be taken at all, and why.
            Unavailable: the service was away for 30 seconds of a *burst*, with nothing at work.

        """
        if self._log_format is not None:
            logs.configure(self._log_format)
        self._burst = burst
        with self._timers, signals_to(self.stop):
            for thread in self.threads.values():
                thread.start()
            try:
                self._obey()
                self._shut_down()
            finally:
                for thread in self.threads.values():
                    thread.stop()
                self._handlers.stop()
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
            return _UNREPORTED_SECONDS
        fetched = self._fetcher.fetch(self._room(), self._groups_in_use(), may_wait=not self._burst)
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
            self._start(task, fetched.group)
        if 0 < len(fetched.tasks) <= self.settings.concurrency:
            self._sleep(_LET_BEGIN_SECONDS)  # or they begin when the next call is under way
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
        reporter, now = self.reporter, self._clock.monotonic()
        if reporter.is_retrying or len(reporter) >= _UNREPORTED or reporter.has_late(now):
            return True
        return any(held.awaits_late_heartbeat(now) for held in self.inflight.all())

    def _room(self) -> int:
        """How many tasks to ask for: whole batches, unless handlers have nothing to do."""
        concurrency = self.settings.concurrency
        most = concurrency + self.prefetch.size
        self._fetch_at = max(concurrency - 1, most - BATCH)
        held = len(self.inflight)  # looked at when it is known what to wait for, to miss no change
        return 0 if held > self._fetch_at else most - held

    def _groups_in_use(self) -> GroupsInUse | None:
        if self._groups is None:
            return None
        return GroupsInUse(held=self.inflight.groups(), unreported=self.reporter.groups())

    def _end_burst(self, fetched: Fetched) -> None:
        """Stop a burst when the queues are empty, or the service is away, and nothing at work."""
        if self.inflight or self.reporter.unreported:
            return
        if isinstance(fetched.away, Unavailable) and fetched.away_seconds >= _BURST_SECONDS:
            self._fail(fetched.away)
            return
        # What a report has moved may be in a queue that was empty before.
        since = max(self.reporter.last_report_at, self._caught_up_at)
        drained = fetched.answered and self._fetcher.found_nothing(since)
        if drained and not self._caught_up():
            self._commands.put("drained")

    def _caught_up(self) -> bool:
        """Have what was reported counted, once; tell whether that may have made more tasks."""
        if self._caught_up_at > self.reporter.last_report_at:
            return False
        try:
            counted = self._timers.catch_up()
        except Unavailable:  # the next to run timers does it
            return False
        self._caught_up_at = self._clock.monotonic()
        return counted

    # --------------------------------------------------------------------------------- 2. start

    def _start(self, task: LeasedTask, group: GroupLease | None) -> None:
        """Hold *task* and let it run as soon as there is a place for it."""
        held = InflightTask(
            task,
            self._app.route(task),
            now=self._clock.monotonic(),
            lease_ends=self._clock.monotonic_at(task.lease.expires_at),
            group=group,
            codec=self._codec,
            monotonic=self._clock.monotonic,
        )
        self.inflight.add(held)
        if self.closed:
            self._release_waiting(held)
        else:
            self._handlers.start(held)

    # ------------------------------------------------------------ 3. keep leases and time limits

    def _beat(self) -> float:
        """Send the heartbeats that are due."""
        self._look_for_stall(self._clock.monotonic())
        for held, why, cancelled in self._heartbeats.beat(self.inflight.all()):
            if cancelled:
                self._cancelled(held)
            else:
                self._lost(held, why)
        return self._heartbeats.rest

    def _interrupt_late(self) -> float:
        """Interrupt handlers whose time is up; this thread never waits for the network."""
        now = self._clock.monotonic()
        self._look_for_stall(now)
        for held in self.inflight.past_limits(now):
            self._lost(held, "it ended without word from the service", release=True)
        return _LIMITS_SECONDS

    def _look_for_stall(self, now: float) -> None:
        """Have leases that ended while this process stood still renewed late.

        Two threads call this several times a second, so a longer pause of both is a standstill.
        """
        with self._awake:
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
        self.threads["heartbeats"].wake()

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
        if held.cancel(self._clock.monotonic()):
            _log.info("A task was cancelled", extra=about(held.task))
            self._observers.cancelled(held.task)

    def _beat_for_itself(self) -> float:
        """Send a worker heartbeat, and obey the command of an operator that it brings."""
        command = self._registry.beat(self.inflight.all())
        if command is not None:
            self._commands.put(command)
        return self._registry.rest

    # -------------------------------------------------------------------------------- 4. report

    def _ended(self, held: InflightTask, report: Report | None) -> None:
        """Let go of a task whose handler has ended; called where that ran."""
        seconds = held.ran_until(self._clock.monotonic())
        if report is None and held.lost and not held.lease_lost:  # its handler has seen it first
            held.lease_lost = True
            self._observers.lost(held.task, "it ended without word from the service")
        if held.begun:
            self.prefetch.ran(seconds)
        self._let_go(held, report)
        if held.begun:
            lost = "CANCELLED" if held.cancelled else "LOST"
            outcome = lost if report is None or held.cancelled else report.status
            self._observers.ended(held.task, held.route, outcome, seconds)

    def _let_go(self, held: InflightTask, report: Report | None = None) -> None:
        """Hold *held* no longer, but first keep its report: one of them is seen at any time.

        Of one that was cancelled nothing is reported, however its handler has ended.
        """
        if held.cancelled:
            report = None
        to_send = report is not None and self.reporter.add(held, report)
        left = self.inflight.remove(held)
        if left is not None and left <= self._fetch_at:
            self._fetching.wake()
        if to_send or (report is not None and left == 0):
            self._reporting.wake()

    def _report(self) -> float:
        """Send a batch of reports if it is time for one, and note what the service makes of it."""
        with closing(self.reporter.send(idle=not self.inflight)) as answers:
            for answer in answers:
                if answer.result is not None:
                    self._log_end(answer.held, answer.report, answer.result)
                elif answer.cancelled:
                    self._cancelled(answer.held)
                else:
                    self._dropped(answer.held, answer.report, answer.dropped)
        return self.reporter.rest(idle=not self.inflight)

    def _dropped(self, held: InflightTask, report: Report, why: str) -> None:
        if report.status == "RELEASED" and held.lease_lost:  # known to be lost before
            _log.info("A task could not be released: %s", why, extra=about(held.task))
            return
        _log.warning("What came of a task was dropped: %s", why, extra=about(held.task))
        held.lease_lost = True
        self._observers.lost(held.task, why)

    def _log_end(self, held: InflightTask, report: Report, result: Reported) -> None:
        """Log how a task ended, once the service has taken it.

        One thread does it for all: handlers that fought for the log would pay more for a line than
        for everything else.
        """
        if not _log.isEnabledFor(logging.INFO):
            return
        name, outcome, seconds = held.route.title, report.status, held.seconds
        extra = about(held.task, task_name=name, outcome=outcome, seconds=round(seconds, 6))
        ending = came_of(report, result, held.task)
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

    def _obey(self) -> None:
        """Wait, in the thread of `run`, for the command to stop."""
        while self._commands.get() == "quiet":
            self._quiet = True
            _log.info("Asked to be quiet: taking no more tasks")

    def _shut_down(self) -> None:
        """Give back what waits, let handlers end until the deadline, and send the last reports."""
        monotonic = self._clock.monotonic
        ends_at = monotonic() + self.settings.shutdown_timeout
        running = sum(held.running for held in self.inflight.all())
        wait = _shutdown_wait(running, len(self.reporter), self.settings.shutdown_timeout)
        _log.info("Stopping%s", wait)
        self._quiet = True
        self._fetching.stop()
        self.closed = True
        gives_back = bool(self.inflight)
        for held in self.inflight.all():
            self._release_waiting(held)
        reports_seconds = _LAST_REPORTS_SECONDS
        if not self._wait_until(lambda: not self.inflight and self._fetching.join(0), ends_at):
            ends_at = 0.0
            if not gives_back:  # else the reports of what is given back have their time
                reports_seconds = 0.0
        self._interrupt_all()
        self.reporter.hurry()
        self._reporting.wake()
        reports_end_at = max(ends_at, monotonic() + reports_seconds)
        self._wait_until(
            lambda: not self.reporter.unreported and self._fetching.join(0), reports_end_at
        )
        self.unreported_tasks = len(self.reporter)
        if self.unreported_tasks:
            _log.warning(
                "What came of %d tasks could not be reported before the end: they run again once"
                " their leases have lapsed",
                self.unreported_tasks,
            )
        if self._groups is not None:
            self._groups.close()
        signs = self.threads["worker-heartbeat"]
        signs.stop()
        if signs.join(_LAST_SIGN_SECONDS):  # else a heartbeat under way would come after the last
            self._registry.sign_off()
        _log.info("Stopped")

    def _wait_until(self, done: Callable[[], bool], until: float) -> bool:
        """Wait for *done*, or *until* (monotonic); False: stopped a second time."""
        while not done():
            left = until - self._clock.monotonic()
            if left <= 0:
                break
            try:
                command = self._commands.get(timeout=min(left, _CHECK_SECONDS))
            except queue.Empty:
                continue
            if command == "stop":
                _log.warning("Told to stop at once")
                return False
        return True

    def _interrupt_all(self) -> None:
        """Interrupt what still runs; what does not end is released, if it is this worker's yet."""
        until = self._clock.monotonic() + _UNWIND_SECONDS
        for held in self.inflight.all():
            held.interrupt(Interruption.STOPPED)
        while self.inflight and self._clock.monotonic() < until:
            time.sleep(_UNWIND_CHECK_SECONDS)
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
    """The part of the log line that says what a stopping worker waits for."""
    if not running and not unreported:
        return ""
    if not running:
        reports = "1 report has" if unreported == 1 else f"{unreported} reports have"
        seconds = max(seconds, _LAST_REPORTS_SECONDS)
        return f": {reports} {seconds:g} s to reach the service; Ctrl-C again ends it now"
    tasks, them = ("1 task has", "it") if running == 1 else (f"{running} tasks have", "them")
    return f": {tasks} {seconds:g} s to end; Ctrl-C again gives {them} back now"
