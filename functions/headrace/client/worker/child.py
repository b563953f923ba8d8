"""The inside of a child process, which runs one task at a time and returns its report."""

import asyncio
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, MutableSequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from types import FrameType
from typing import Final, Literal, TypeAlias

from headrace.client.app.app import App
from headrace.client.app.attempts import cancel
from headrace.client.app.discovery import find_app
from headrace.client.app.outcomes import Cancelled, SoftTimeLimit
from headrace.client.codec import remember_codec
from headrace.client.sending import Report
from headrace.client.settings import working_folder
from headrace.client.threads import stop_signals
from headrace.client.worker.logs import Configured
from headrace.client.worker.reports import failed, report_of
from headrace.client.worker.service import seconds_awake
from headrace.safe_logging import safe_logger
from headrace.wire.tasks import LeasedTask

ToChild: TypeAlias = tuple[LeasedTask, Literal["sync", "async"]] | None
"""A task and how it is run; None: the process must end."""

Lease: TypeAlias = MutableSequence[float]
FromChild: TypeAlias = (
    tuple[Literal["ready"]]
    | tuple[Literal["unfit"], str]
    | tuple[Literal["progress"], object]
    | tuple[Literal["report"], Report | None]
)

SIGNAL: Final = getattr(signal, "SIGUSR2", signal.SIGTERM)  # Windows has no child processes here
"""Interrupts the handler: for a cancel if that field is set, else for the soft limit."""

ENDS, EXPIRES_AT, CANCELLED = range(3)
LEASE_FIELDS: Final = 3
"""The lease in shared memory: its end by `seconds_awake`, by the service, and 1 for a cancel."""

_log: Final = safe_logger("headrace.worker")


def main(
    pipe: Connection, lease: Lease, app_path: str, logging_as: Configured | None, folder: str
) -> None:
    """Run what comes through *pipe* with the app at *app_path*, ``module:name``.

    The worker's app was made in *folder*.  So the app is loaded there, and a relative path names
    the same file as in the worker.

    *logging_as* is how the worker's own process logs; None leaves it to the app's module.
    """
    with suppress(OSError):
        os.setsid()  # so that what the handlers start is killed with this process
    for number in stop_signals():  # sent to all of a container or terminal
        signal.signal(number, _ignore)
    if logging_as is not None:
        logging_as.again()
    try:
        with working_in(folder):
            _, app = find_app(app_path)
        app.fix_address(folder)
        app.call_hooks("process_start")
    except Exception as error:  # noqa: BLE001 (of somebody else's module; the end of this process)
        _log.exception("The app %s cannot be loaded in a child process", app_path)
        pipe.send(("unfit", f"{type(error).__name__}: {error}"))
        sys.exit(1)
    if logging_as is not None:
        logging_as.again()  # as in the worker, over what the app's module has set up
    ChildWorker(pipe, lease, app).work()


@contextmanager
def working_in(folder: str) -> Iterator[None]:
    """Do a block in *folder*, if it is still there."""
    before = working_folder()
    with suppress(OSError):
        os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


class ChildWorker:
    """Runs handlers in the main thread."""

    def __init__(self, pipe: Connection, lease: Lease, app: App) -> None:
        self._pipe, self._lease, self._app = pipe, lease, app
        self._lock = threading.Lock()  # of the pipe's sending end, for progress of any thread
        self._running: ChildControl | None = None
        self._cancel_async: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def work(self) -> None:
        """Run tasks until the worker ends."""
        signal.signal(SIGNAL, self._interrupted)
        threading.Thread(target=_end_with_worker, name="headrace-parent", daemon=True).start()
        self._say(("ready",))
        with suppress(EOFError):
            while (given := self._receive()) is not None:
                task, kind = given
                report = self._run(task, kind)
                try:
                    self._say(("report", report))
                except Exception as error:  # noqa: BLE001 (of a codec's value that cannot be pickled)
                    message = f"its report cannot leave the process: {error}"
                    self._say(("report", failed(task, type(error).__name__, message)))
        if self._loop is not None:
            self._loop.close()

    def _receive(self) -> ToChild:
        message: ToChild = self._pipe.recv()
        return message

    def _run(self, task: LeasedTask, kind: str) -> Report | None:
        control = ChildControl(self._say, self._lease)
        remember_codec(task, self._app.codec)
        report: Report | None
        try:
            self._running = control
            if kind == "async":
                report = self._run_async(task, control)
            else:
                report = self._app.execute(task, control)
        except BaseException as error:  # noqa: BLE001 (interrupted while the report was being made)
            report = report_of(error, task, stopping=False)  # the worker kills a child to stop it
        self._running = None
        return report

    def _run_async(self, task: LeasedTask, control: "ChildControl") -> Report | None:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
        reports: list[Report | None] = []

        async def attempt() -> None:
            reports.append(await self._app.execute_async(task, control))

        self._cancel_async = self._loop.create_task(attempt())
        try:
            self._loop.run_until_complete(self._cancel_async)
        except asyncio.CancelledError:
            if not reports:  # else the handler cancelled its own task and then returned
                raise
        finally:
            self._cancel_async = None
        return reports[0]

    def _interrupted(self, _number: int, _frame: FrameType | None) -> None:
        """Interrupt the handler; a signal reaches it even while it waits inside a call into C."""
        control = self._running
        why = Cancelled if control is not None and control.cancelled else SoftTimeLimit
        if self._cancel_async is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(cancel, self._cancel_async, why())
        elif control is not None:
            raise why

    def _say(self, message: FromChild) -> None:
        with self._lock:
            self._pipe.send(message)


class ChildControl:
    """What a handler in a child process may do to its lease; one that lost it is killed.

    One whose task was ``cancelled`` has a little time before.
    """

    stopping = False  # the worker kills a child to stop it

    def __init__(self, say: Callable[[FromChild], None], lease: Lease) -> None:
        self._say, self._lease = say, lease

    @property
    def cancelled(self) -> bool:
        """Whether the task was cancelled."""
        return bool(self._lease[CANCELLED])

    @property
    def lease_expires_at(self) -> datetime:
        """The end of the lease as last heard of."""
        return datetime.fromtimestamp(self._lease[EXPIRES_AT], UTC)

    @property
    def lost(self) -> bool:
        """Whether the lease is over: all of the worker may have stood still."""
        return self.cancelled or self._lease[ENDS] <= seconds_awake()

    def progress(self, value: object) -> None:
        """Send *value* with the next heartbeat."""
        self._say(("progress", value))


def _end_with_worker() -> None:
    """Kill this process and all that it has started when the process of the worker has ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.killpg(os.getpgrp(), signal.SIGKILL)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Leave it to the worker to end this process; a handler, so that subprocesses have none."""
