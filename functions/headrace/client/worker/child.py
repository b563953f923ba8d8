"""The inside of a child process, which runs one task at a time and returns its report."""

import asyncio
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
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
from headrace.client.threads import call_on_death, stop_signals
from headrace.client.worker.logs import Configured
from headrace.client.worker.reports import failed, report_of
from headrace.client.worker.service import seconds_awake
from headrace.safe_logging import safe_logger
from headrace.wire.tasks import LeasedTask

ToChild: TypeAlias = (
    tuple[Literal["run"], LeasedTask, Literal["sync", "async"], float]
    | tuple[Literal["lease"], datetime, float]
    | tuple[Literal["soft"]]
    | tuple[Literal["cancel"]]
    | tuple[Literal["end"]]
)
FromChild: TypeAlias = (
    tuple[Literal["ready"]]
    | tuple[Literal["unfit"], str]
    | tuple[Literal["progress"], object]
    | tuple[Literal["report"], Report | None]
)

_SIGNAL: Final = getattr(signal, "SIGUSR2", signal.SIGTERM)  # Windows has none, nor isolate


_log: Final = safe_logger("headrace.worker")


def main(
    pipe: Connection, app_path: str, logging_as: Configured | None = None, folder: str = "."
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
    ChildWorker(pipe, app).work()


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
    """Runs handlers in the main thread, and listens in another one."""

    def __init__(self, pipe: Connection, app: App) -> None:
        self._pipe, self._app = pipe, app
        self._tasks: queue.SimpleQueue[tuple[LeasedTask, str, ChildControl] | None] = (
            queue.SimpleQueue()
        )
        self._lock = threading.Lock()  # of the pipe's sending end
        self._running: ChildControl | None = None
        self._cancel_async: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def work(self) -> None:
        """Run tasks until the worker ends."""
        signal.signal(_SIGNAL, self._interrupted)
        listen = partial(call_on_death, _kill_group, self._listen)
        threading.Thread(target=listen, name="headrace-parent", daemon=True).start()
        self._say(("ready",))
        while (given := self._tasks.get()) is not None:
            report = self._run(*given)
            task = given[0]
            try:
                self._say(("report", report))
            except Exception as error:  # noqa: BLE001 (of a codec's value that cannot be pickled)
                message = f"its report cannot leave the process: {error}"
                self._say(("report", failed(task, type(error).__name__, message)))
        if self._loop is not None:
            self._loop.close()

    def _run(self, task: LeasedTask, kind: str, control: "ChildControl") -> Report | None:
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

    def _listen(self) -> None:
        while True:
            try:
                message: ToChild = self._pipe.recv()
            except (EOFError, OSError) as error:  # the worker is gone, and takes no report
                _kill_group(error)
                return
            running = self._running
            if message[0] == "run":
                _, task, kind, seconds = message
                control = ChildControl(self._say, task.lease.expires_at, seconds)
                self._tasks.put((task, kind, control))
            elif message[0] == "lease" and running is not None:
                running.prolonged(*message[1:])
            elif message[0] in {"soft", "cancel"} and running is not None:
                running.cancelled = running.cancelled or message[0] == "cancel"
                signal.pthread_kill(threading.main_thread().ident or 0, _SIGNAL)
            elif message[0] == "end":
                self._tasks.put(None)
                return


class ChildControl:
    """What a handler in a child process may do to its lease; one that lost it is killed.

    One whose task was ``cancelled`` has a little time before.
    """

    def __init__(
        self, say: Callable[[FromChild], None], lease_expires_at: datetime, seconds: float
    ) -> None:
        self._say = say
        self.cancelled = False
        self.stopping = False  # the worker kills a child to stop it
        self.prolonged(lease_expires_at, seconds)

    def prolonged(self, lease_expires_at: datetime, seconds: float) -> None:
        """Note the end of the lease, which is *seconds* from now."""
        self.lease_expires_at = lease_expires_at
        self._lease_ends = seconds_awake() + seconds

    @property
    def lost(self) -> bool:
        """Whether the lease is over: all of the worker may have stood still."""
        return self.cancelled or self._lease_ends <= seconds_awake()

    def progress(self, value: object) -> None:
        """Send *value* with the next heartbeat."""
        self._say(("progress", value))


def _kill_group(_error: BaseException) -> None:
    """End this process and all that it has started, because the worker is gone."""
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Leave it to the worker to end this process; a handler, so that subprocesses have none."""
