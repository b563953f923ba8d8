"""Running handlers: sync ones in threads, async ones in an event loop, isolated ones in processes.

Each kind runs up to the concurrency of the worker at a time, and the others wait.
"""

import asyncio
import ctypes
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from headrace.client.app.attempts import cancel
from headrace.client.app.outcomes import (
    Cancelled,
    HardTimeLimit,
    SoftTimeLimit,
    Stopped,
)
from headrace.client.sending import Report
from headrace.client.threads import Died, call_on_death
from headrace.client.worker.inflight import InflightTask, Interruption, RunningHandler
from headrace.client.worker.reports import report_of
from headrace.client.worker.service import WorkerParts
from headrace.domain.errors import LeaseLost
from headrace.safe_logging import safe_logger

if TYPE_CHECKING:
    from headrace.client.worker.held import HeldTasks


class LeaseOver(LeaseLost):
    """Thrown into a handler whose lease is lost; a thread can only be thrown a class."""

    def __init__(self, detail: str = "the lease of this task is over") -> None:
        super().__init__(detail)


class _TakenBack(BaseException):
    """Takes the place of what was thrown into a handler that has ended."""


THROWN: Final[dict[Interruption, type[BaseException]]] = {
    Interruption.SOFT_LIMIT: SoftTimeLimit,
    Interruption.HARD_LIMIT: HardTimeLimit,
    Interruption.STOPPED: Stopped,
    Interruption.CANCELLED: Cancelled,
    Interruption.LEASE_LOST: LeaseOver,
}

_IDLE_SECONDS: Final = 10.0
"""How long a thread waits for a task before it ends, so that an idle worker has few threads."""

_set_async_exc: Final = ctypes.pythonapi.PyThreadState_SetAsyncExc
_log = safe_logger("headrace.worker")


class ThreadPool:
    """Threads that each take one task after the other; they start as needed."""

    def __init__(
        self,
        name: str,
        most: int,
        work: Callable[["ThreadPool"], object],
        *,
        died: Died,
        idle_seconds: float | None = None,
    ) -> None:
        """*work* runs in each thread: it calls `next` until that returns None.

        A thread ends after *idle_seconds* without a task; None: it stays.
        """
        self._name, self._most, self._idle_seconds = name, most, idle_seconds
        self._work = partial(call_on_death, died, partial(work, self))
        self._waiting: SimpleQueue[InflightTask | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._spare = 0  # free threads, less the tasks that wait for one

    def start(self, held: InflightTask) -> None:
        """Let a free thread take *held*, or the first one to be free."""
        with self._lock:
            self._waiting.put(held)
            self._spare -= 1
            if self._spare >= 0 or len(self._threads) >= self._most:
                return
            self._spare += 1
            thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._threads.append(thread)
        thread.start()

    def next(self) -> InflightTask | None:
        """Return the next task for this thread; None: the thread must end."""
        while True:
            try:
                return self._waiting.get(timeout=self._idle_seconds)
            except Empty:
                with self._lock:
                    if self._spare > 0:
                        self._spare -= 1
                        self._threads.remove(threading.current_thread())
                        return None

    def done(self) -> None:
        """Note that this thread is free again."""
        with self._lock:
            self._spare += 1

    def stop(self, wait: float = 0.0) -> None:
        """Let the threads end when their handlers have; wait up to *wait* seconds for each."""
        threads = list(self._threads)
        for _ in threads:
            self._waiting.put(None)
        for thread in threads if wait else ():
            thread.join(wait)


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
        """Take back what was thrown and has not arrived, in the thread of the handler.

        This throws in its place: CPython 3.11 would go on looking for what is only taken back, and
        a thread under a profiler or debugger would never begin.
        """
        if self._thrown:
            try:
                _set_async_exc(ctypes.c_ulong(self._thread), ctypes.py_object(_TakenBack))
                for _ in range(10):  # it arrives between two of these
                    pass
            except _TakenBack:
                self._thrown = False


class Threads:
    """Runs each handler in a thread."""

    def __init__(self, parts: WorkerParts, tasks: "HeldTasks") -> None:
        self._parts, self._tasks = parts, tasks
        self._pool = ThreadPool(
            "headrace-task",
            parts.settings.concurrency,
            self._work,
            died=parts.died,
            idle_seconds=_IDLE_SECONDS,
        )
        self.start, self.stop = self._pool.start, self._pool.stop

    def _work(self, pool: ThreadPool) -> None:
        while (held := pool.next()) is not None:
            try:
                self._run(held)
            except BaseException as error:  # noqa: BLE001 (a second interruption met the first on its way out)
                held.end()
                self._finish(held, report_of(error, held.task, stopping=held.stopping))
            pool.done()

    def _run(self, held: InflightTask) -> None:
        if not held.begin(ThreadAttempt()):
            self._tasks.release_expired(held)
            return
        report: Report | None = None
        error: BaseException | None = None
        try:
            self._parts.notify("started", held.task, held.route)
            report = self._parts.app.execute(held.task, held)
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
        self._finish(held, report)

    def _finish(self, held: InflightTask, report: Report | None) -> None:
        try:
            self._tasks.finish(held, report)
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
    """Runs handlers in one event loop, which starts with the first one."""

    def __init__(self, parts: WorkerParts, tasks: "HeldTasks") -> None:
        self._parts, self._tasks = parts, tasks
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: deque[InflightTask] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._stopping = False

    def start(self, held: InflightTask) -> None:
        """Run *held* as soon as there is room.  Called from one thread only."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            work = partial(call_on_death, self._parts.died, partial(self._work, self._loop))
            threading.Thread(target=work, name="headrace-asyncio", daemon=True).start()
        self._loop.call_soon_threadsafe(self._arrived, held)

    def stop(self) -> None:
        """Let the loop end; handlers that still run are left where they are."""
        self._stopping = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
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

    def _arrived(self, held: InflightTask) -> None:
        self._waiting.append(held)
        self._fill()

    def _fill(self) -> None:
        while self._waiting and len(self._running) < self._parts.settings.concurrency:
            held = self._waiting.popleft()
            task = asyncio.ensure_future(self._run(held))
            self._running.add(task)
            task.add_done_callback(partial(self._done, held))

    def _done(self, held: InflightTask, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("A fault of the worker itself", exc_info=error)
        if not held.over:  # a handler has cancelled all tasks of the loop, this one before it began
            held.end()
            failure = error or asyncio.CancelledError("cancelled by code in this process")
            self._tasks.finish(held, report_of(failure, held.task, stopping=held.stopping))
        self._fill()

    async def _run(self, held: InflightTask) -> None:
        task = asyncio.current_task()
        if task is None or self._loop is None:
            return
        if not held.begin(CoroutineAttempt(self._loop, task)):
            self._tasks.release_expired(held)
            return
        self._parts.notify("started", held.task, held.route)
        report: Report | None
        try:
            report = await self._parts.app.execute_async(held.task, held)
        except BaseException as error:  # noqa: BLE001 (cancelled while the report was being made)
            report = report_of(error, held.task, stopping=held.stopping)
        held.end()
        self._tasks.finish(held, report)


class Handlers:
    """Runs each task in its way: in a thread, in the event loop or in a child process."""

    def __init__(self, parts: WorkerParts, tasks: "HeldTasks") -> None:
        from headrace.client.worker.children import Children  # noqa: PLC0415 (few workers need it)

        self._isolate = parts.settings.isolate
        self._threads, self._coroutines = Threads(parts, tasks), Coroutines(parts, tasks)
        isolates = self._isolate or parts.app.isolates
        self._children = Children(parts, tasks) if isolates else None

    def start(self, held: InflightTask) -> None:
        """Run *held* as soon as there is room."""
        if self._children is not None and (self._isolate or held.route.isolate):
            self._children.start(held)
        elif held.route.kind == "async":
            self._coroutines.start(held)
        else:
            self._threads.start(held)

    def stop(self) -> None:
        """End threads, event loop and children, after all handlers."""
        self._threads.stop()
        self._coroutines.stop()
        if self._children is not None:
            self._children.stop()
