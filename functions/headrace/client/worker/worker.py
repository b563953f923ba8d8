"""The worker: what it is made of, how it starts, and how it ends."""

import logging
import queue
import random
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from headrace.client.app.app import App
from headrace.client.client import Client
from headrace.client.settings import utc_now
from headrace.client.threads import signals_to
from headrace.client.worker import logs
from headrace.client.worker.dispatcher import Dispatcher
from headrace.client.worker.fetcher import Fetcher
from headrace.client.worker.groups import OpenGroups
from headrace.client.worker.heartbeats import Heartbeats, Registry
from headrace.client.worker.logs import LogFormat
from headrace.client.worker.observing import Observer
from headrace.client.worker.service import Monotonic, RemoteService, ServiceClock, WorkerService
from headrace.client.worker.settings import Queues, WorkerSettings
from headrace.client.worker.timekeeping import Timekeeper
from headrace.domain.errors import HeadraceError, Unavailable

_CHECK_SECONDS: Final = 0.05
_UNWIND_SECONDS: Final = 1.0
"""How long an interrupted handler may take to end, before its task is released without it."""

_LAST_REPORTS_SECONDS: Final = 5.0
"""The least time that finished results have to reach the service when a worker ends."""

_BURST_SECONDS: Final = 30.0
"""How long a burst waits for a service that is away."""

_log = logging.getLogger("headrace.worker")


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
        keepalive: seconds that leases last between two heartbeats; the task's own by default.
        group_lease: hold all tasks under one lease, which lasts *keepalive* (60) seconds and is
            extended by one call.
        app_path: ``module:name`` of the app, for the child processes; found by itself by default.
        version: of the program, for operators to see.
        observers: are notified of what happens, to count it.
        log_format: ``"text"`` or ``"json"`` sets up logging; None leaves it to the program.
        service: takes the place of the client, in tests.
        monotonic, now, chance: clocks and dice, in tests.

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
        keepalive: float | None = None,
        group_lease: bool = False,
        app_path: str | None = None,
        version: str = "",
        observers: Sequence[Observer] = (),
        log_format: LogFormat | None = None,
        service: WorkerService | None = None,
        monotonic: Monotonic = time.monotonic,
        now: Callable[[], datetime] = utc_now,
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
            keepalive=keepalive,
            group_lease=group_lease,
        )
        chance = chance or random.Random()  # noqa: S311 (spreads load, hides nothing)
        self._log_format: LogFormat | None = log_format
        self._clock = clock = ServiceClock(monotonic)
        self._commands: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._failure: Exception | None = None
        self._burst = False
        self._where = ""
        if service is None:
            client = client or app.client
            self._where = f" at {client.settings.url}"
            service = RemoteService(client)
        self.dispatcher = dispatcher = Dispatcher(
            app,
            service,
            clock,
            self.settings,
            app_path=app_path,
            observers=observers,
            fatal=self._fail,
            chance=chance,
        )
        self._groups = self._grouped(service) if group_lease else None
        self._fetcher = Fetcher(
            service,
            clock,
            self.settings,
            dispatcher,
            prepare=lambda: service.prepare(app),
            fatal=self._fail,
            drained=self._drained,
            groups=self._groups,
            ready=self._ready,
            away=self._away,
            chance=chance,
        )
        self.heartbeats = Heartbeats(
            service,
            clock,
            dispatcher.inflight,
            keepalive=keepalive,
            lost=dispatcher.lost,
            chance=chance,
        )
        self.registry = Registry(
            service,
            self.settings,
            dispatcher.inflight,
            version=version,
            started_at=now(),
            command=self._commands.put,
        )
        self._loops = [
            self.heartbeats.loop,
            Timekeeper(dispatcher.inflight, monotonic, dispatcher.lost).loop,
            dispatcher.reporter.loop,
            self.registry.loop,
            self._fetcher.loop,
        ]

    # ------------------------------------------------------------------------- for those outside

    def run(self, *, burst: bool = False) -> None:
        """Work until stopped, or with *burst* until the queues have nothing to give.

        In the main thread SIGTERM and SIGINT stop it.  Can be called once.

        Raises:
            NotFound, Forbidden, Unauthenticated: no task can be taken at all, and why.
            Unavailable: the service was away for 30 seconds of a *burst*, with nothing at work.

        """
        if self._log_format is not None:
            logs.configure(self._log_format)
        self._burst = burst
        with signals_to(self.stop):
            for loop in self._loops:
                loop.start()
            try:
                self._obey()
                self._shut_down()
            finally:
                for loop in self._loops:
                    loop.stop()
                self.dispatcher.handlers.stop()
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

    # -------------------------------------------------------------------------- the main thread

    def _obey(self) -> None:
        """Wait for the command to stop."""
        while True:
            command = self._commands.get()
            if command == "quiet":
                _log.info("Asked to be quiet: taking no more tasks")
                self._fetcher.quiet()
            else:
                return

    def _shut_down(self) -> None:
        monotonic, dispatcher = self._clock.monotonic, self.dispatcher
        ends_at = monotonic() + self.settings.shutdown_timeout
        running = sum(held.running for held in dispatcher.inflight.all())
        _log.info("Stopping%s", _shutdown_wait(running, self.settings.shutdown_timeout))
        self._fetcher.quiet()
        self._fetcher.loop.stop()
        dispatcher.close()
        if not self._wait_until(self._nothing_held, ends_at):
            ends_at = 0.0
        if dispatcher.inflight:
            dispatcher.clear(monotonic() + _UNWIND_SECONDS)
        dispatcher.reporter.hurry()
        self._wait_until(
            self._nothing_unreported, max(ends_at, monotonic() + _LAST_REPORTS_SECONDS)
        )
        if dispatcher.reporter.unreported:
            _log.warning("Some reports could not be sent before the end")
        if self._groups is not None:
            self._groups.close()
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

    def _nothing_held(self) -> bool:
        return not self.dispatcher.inflight and self._fetcher.loop.join(0)

    def _nothing_unreported(self) -> bool:
        return not self.dispatcher.reporter.unreported and self._fetcher.loop.join(0)

    def _grouped(self, service: WorkerService) -> OpenGroups:
        dispatcher = self.dispatcher
        return OpenGroups(
            service,
            self._clock.monotonic,
            dispatcher.inflight,
            keepalive=self.settings.keepalive,
            unreported=dispatcher.reporter.unreported_under,
        )

    # ------------------------------------------------------------------------- its other threads

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._commands.put("failed")

    def _ready(self) -> None:
        _log.info(
            "Worker %s takes tasks of %s%s, %d at a time",
            self.settings.name,
            ", ".join(self.settings.queues),
            self._where,
            self.settings.concurrency,
        )

    def _away(self, error: HeadraceError, seconds: float) -> None:
        """Give up a burst that waits for nothing but the service."""
        patient = not self._burst or self.dispatcher.inflight or self.dispatcher.reporter.unreported
        if isinstance(error, Unavailable) and seconds >= _BURST_SECONDS and not patient:
            self._fail(error)

    def _drained(self) -> None:
        if self._burst and not self.dispatcher.inflight and not self.dispatcher.reporter.unreported:
            self._commands.put("drained")


def _shutdown_wait(running: int, seconds: float) -> str:
    """The part of the log line that says what a stopping worker waits for."""
    if not running:
        return ""
    tasks, them = ("1 task has", "it") if running == 1 else (f"{running} tasks have", "them")
    return f": {tasks} {seconds:g} s to end; Ctrl-C again gives {them} back now"
