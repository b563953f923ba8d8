"""Sync handlers in threads."""

import ctypes
import logging
import queue
import threading
from collections.abc import Callable
from datetime import datetime
from typing import Final, TypeAlias

from headrace.client.app.execution import Executor
from headrace.client.sending import Report
from headrace.client.worker.clocks import Monotonic
from headrace.client.worker.endings import THROWN, released, report_of
from headrace.client.worker.inflight import InflightTask, Interruption

Started: TypeAlias = Callable[[InflightTask], None]
Ended: TypeAlias = Callable[[InflightTask, Report | None], None]

_set_async_exc: Final = ctypes.pythonapi.PyThreadState_SetAsyncExc
_log = logging.getLogger("headrace.worker")


class ThreadAttempt:
    """A handler in a thread, which an exception can be thrown into.

    It arrives between two steps of Python: a call into C that blocks is not interrupted.
    """

    def __init__(self) -> None:
        self._thread = ctypes.c_ulong(threading.get_ident())
        self._thrown = False

    def interrupt(self, why: Interruption) -> None:
        """Throw; a second one takes the place of one that has not arrived."""
        self._thrown = True
        _set_async_exc(self._thread, ctypes.py_object(THROWN[why]))

    def prolonged(self, expires_at: datetime) -> None:
        """Do nothing: the handler sees what is held."""

    def ended(self) -> None:
        """Take back what was thrown and has not arrived."""
        if self._thrown:
            _set_async_exc(self._thread, None)


class Threads:
    """Up to *most* threads, begun as they are needed, that each run one handler at a time."""

    def __init__(
        self,
        app: Executor,
        most: int,
        started: Started,
        ended: Ended,
        monotonic: Monotonic,
    ) -> None:
        self._app, self._most = app, most
        self._started, self._ended, self._monotonic = started, ended, monotonic
        self._waiting: queue.SimpleQueue[InflightTask | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def start(self, held: InflightTask) -> None:
        """Run *held* as soon as a thread is free.  Called from one thread only."""
        if len(self._threads) < self._most:
            number = len(self._threads)
            thread = threading.Thread(
                target=self._work, name=f"headrace-task-{number}", daemon=True
            )
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
            except BaseException:  # noqa: BLE001 (a second interruption met the first on its way out)
                held.end()
                self._finish(held, released(held.task))

    def _run(self, held: InflightTask) -> None:
        if not held.begin(ThreadAttempt(), self._monotonic()):
            return
        report: Report | None = None
        error: BaseException | None = None
        try:
            self._started(held)
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
            report = report_of(error, held.task)
        if not held.abandoned:
            self._finish(held, report)

    def _finish(self, held: InflightTask, report: Report | None) -> None:
        try:
            self._ended(held, report)
        except Exception:  # noqa: BLE001 (a thread that runs tasks must outlive a fault beside them)
            _log.exception("A fault of the worker itself")
