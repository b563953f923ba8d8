"""Handlers at work: sync ones in threads, async ones in an event loop, or all in child processes.

Each kind runs so many at a time, and the others wait within it.  What ends goes out by `Ended`.
"""

import asyncio
import ctypes
import queue
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from headrace.client.app.app import App
from headrace.client.app.attempts import cancel
from headrace.client.sending import Report
from headrace.client.threads import Died, call_on_death
from headrace.client.worker.inflight import Ended, InflightTask, Interruption, RunningHandler
from headrace.client.worker.isolate import Children
from headrace.client.worker.observing import Observer
from headrace.client.worker.reporting import THROWN, released, report_of
from headrace.client.worker.service import Monotonic
from headrace.client.worker.settings import WorkerSettings
from headrace.safe_logging import safe_logger

_set_async_exc: Final = ctypes.pythonapi.PyThreadState_SetAsyncExc
_log = safe_logger("headrace.worker")


class ThreadAttempt(RunningHandler):
    """A handler in a thread, which an exception can be thrown into.

    It arrives between two steps of Python: a call into C that blocks is not interrupted.
    """

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._thrown = False

    def interrupt(self, why: Interruption) -> None:
        """Throw; a second one takes the place of one that has not arrived."""
        self._thrown = True
        _set_async_exc(ctypes.c_ulong(self._thread), ctypes.py_object(THROWN[why]))

    def ended(self) -> None:
        """Take back what was thrown and has not arrived."""
        if self._thrown:
            _set_async_exc(ctypes.c_ulong(self._thread), None)


class Threads:
    """Up to *most* threads, begun as they are needed, that each run one handler at a time."""

    def __init__(
        self,
        app: App,
        most: int,
        observer: Observer,
        ended: Ended,
        monotonic: Monotonic,
        *,
        died: Died,
    ) -> None:
        self._app, self._most, self._died = app, most, died
        self._observer, self._ended, self._monotonic = observer, ended, monotonic
        self._waiting: queue.SimpleQueue[InflightTask | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def start(self, held: InflightTask) -> None:
        """Run *held* as soon as a thread is free.  Called from one thread only."""
        if len(self._threads) < self._most:
            number = len(self._threads)
            work = partial(call_on_death, self._died, self._work)
            thread = threading.Thread(target=work, name=f"headrace-task-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._waiting.put(held)

    def stop(self) -> None:
        """Let the threads end when their handlers have."""
        for _ in self._threads:
            self._waiting.put(None)

    def _work(self) -> None:
        while (held := self._waiting.get()) is not None:
            try:
                self._run(held)
            except BaseException as error:  # noqa: BLE001 (a second interruption met the first on its way out)
                held.end()
                if not held.abandoned:
                    self._finish(held, report_of(error, held.task, stopping=held.stopping))

    def _run(self, held: InflightTask) -> None:
        if not held.begin(ThreadAttempt(), self._monotonic()):
            if held.expired_unbegun:
                self._ended(held, released(held.task))
            return
        report: Report | None = None
        error: BaseException | None = None
        try:
            self._observer.started(held.task, held.route)
            report = self._app.execute(held.task, held)
        except BaseException as came:  # noqa: BLE001 (thrown while the report was being made)
            error = came
        for _ in THROWN:
            try:
                held.end()  # from here on nothing is thrown in here
                break
            except BaseException:  # noqa: BLE001 (thrown after the handler had ended, so it makes no difference)
                _log.debug("An interruption of task %s came too late", held.task.id)
        if error is not None:
            report = report_of(error, held.task, stopping=held.stopping)
        if not held.abandoned:
            self._finish(held, report)

    def _finish(self, held: InflightTask, report: Report | None) -> None:
        try:
            self._ended(held, report)
        except Exception:  # noqa: BLE001 (a thread that runs tasks must outlive a fault beside them)
            _log.exception("A fault of the worker itself")


class CoroutineAttempt(RunningHandler):
    """A handler that is a task of an event loop, which can be cancelled until it is done."""

    def __init__(self, loop: asyncio.AbstractEventLoop, task: "asyncio.Task[Any]") -> None:
        self._loop, self._task = loop, task

    def interrupt(self, why: Interruption) -> None:
        """Cancel it with the reason."""
        self._loop.call_soon_threadsafe(cancel, self._task, THROWN[why]())


class Coroutines:
    """An event loop that runs up to *most* handlers at a time; begun when the first one comes."""

    def __init__(
        self,
        app: App,
        most: int,
        observer: Observer,
        ended: Ended,
        monotonic: Monotonic,
        *,
        died: Died,
    ) -> None:
        self._app, self._most, self._died = app, most, died
        self._observer, self._ended, self._monotonic = observer, ended, monotonic
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: deque[InflightTask] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._stopping = False

    def start(self, held: InflightTask) -> None:
        """Run *held* as soon as there is room.  Called from one thread only."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            work = partial(call_on_death, self._died, self._work)
            threading.Thread(target=work, name="headrace-asyncio", daemon=True).start()
        self._loop.call_soon_threadsafe(self._arrived, held)

    def stop(self) -> None:
        """Let the loop end; handlers still at work are left where they are."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._let_go)

    def _work(self) -> None:
        loop = self._loop
        if loop is None:
            return
        asyncio.set_event_loop(loop)
        while not self._stopping:
            try:
                loop.run_forever()
            except BaseException:  # noqa: BLE001 (sys.exit() in a task that a handler has made)
                _log.exception("Something in a handler would have ended the event loop of all")
        for task in self._running:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*self._running, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    def _let_go(self) -> None:
        self._stopping = True
        if self._loop is not None:
            self._loop.stop()

    def _arrived(self, held: InflightTask) -> None:
        self._waiting.append(held)
        self._fill()

    def _fill(self) -> None:
        while self._waiting and len(self._running) < self._most:
            held = self._waiting.popleft()
            task = asyncio.ensure_future(self._run(held))
            self._running.add(task)
            task.add_done_callback(partial(self._done, held))

    def _done(self, held: InflightTask, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("A fault of the worker itself", exc_info=error)
        if (
            not held.over
        ):  # some handler has cancelled all tasks of the loop, this one before it began
            held.end()
            failure = error or asyncio.CancelledError("cancelled by code in this process")
            self._ended(held, report_of(failure, held.task, stopping=held.stopping))
        self._fill()

    async def _run(self, held: InflightTask) -> None:
        task = asyncio.current_task()
        if task is None or self._loop is None:
            return
        if not held.begin(CoroutineAttempt(self._loop, task), self._monotonic()):
            if held.expired_unbegun:
                self._ended(held, released(held.task))
            return
        self._observer.started(held.task, held.route)
        report: Report | None
        try:
            report = await self._app.execute_async(held.task, held)
        except BaseException as error:  # noqa: BLE001 (cancelled while the report was being made)
            report = report_of(error, held.task, stopping=held.stopping)
        held.end()
        if not held.abandoned:
            self._ended(held, report)


class Handlers:
    """Runs what is held, up to the concurrency of each kind at a time.

    *ended* is called where a handler ran, with its report; *fatal* when none can run at all;
    *died* in a thread that an error has ended.
    """

    def __init__(
        self,
        app: App,
        settings: WorkerSettings,
        observer: Observer,
        ended: Ended,
        monotonic: Monotonic,
        *,
        app_path: str | None = None,
        fatal: Callable[[Exception], None],
        died: Died,
    ) -> None:
        most = settings.concurrency
        self._children: Children | None = None
        if settings.isolate:
            self._children = Children(
                app, app_path, settings, observer, ended, monotonic, fatal=fatal, died=died
            )
        self._threads = Threads(app, most, observer, ended, monotonic, died=died)
        self._coroutines = Coroutines(app, most, observer, ended, monotonic, died=died)

    def start(self, held: InflightTask) -> None:
        """Run *held* as soon as there is room."""
        if self._children is not None:
            self._children.start(held)
        elif held.route.kind == "async":
            self._coroutines.start(held)
        else:
            self._threads.start(held)

    def stop(self) -> None:
        """End threads, event loop and children; nothing may be at work any more."""
        self._threads.stop()
        self._coroutines.stop()
        if self._children is not None:
            self._children.stop()
