"""Handlers in child processes, which can be killed: one task each at a time.

``ProcessPoolExecutor`` cannot cancel a running call, breaks for all when one child dies, and cannot
send a running child the new end of its lease.  ``multiprocessing.Pool`` waits for ever for a child
that was killed.  So the processes and pipes are those of ``multiprocessing``, and only the messages
are ours.
"""

import multiprocessing
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from datetime import datetime
from importlib.machinery import ModuleSpec
from multiprocessing.context import SpawnProcess
from typing import TYPE_CHECKING, Final

from headrace.client.sending import Report
from headrace.client.worker import child, logs
from headrace.client.worker.inflight import InflightTask, Interruption, RunningHandler
from headrace.client.worker.reports import failed, released
from headrace.client.worker.run import ThreadPool
from headrace.client.worker.service import WorkerParts, seconds_awake
from headrace.domain.errors import HeadraceError, InvalidRequest
from headrace.domain.texts import amount
from headrace.safe_logging import safe_logger

if TYPE_CHECKING:
    from headrace.client.worker.held import HeldTasks

_END_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.2
"""How often a silent child is checked."""

_LATER_SECONDS: Final = 5.0
"""How long a task is left alone that no child could be started for."""

_PAUSE_SECONDS: Final = 0.5
_FAILED_STARTS: Final = 3
"""Children in a row that die before they take a task: then it is no accident."""

_spawn: Final = multiprocessing.get_context("spawn")
_log = safe_logger("headrace.worker")


class ChildProcess:
    """A child process, the pipe to it, and the lease of its task in shared memory."""

    def __init__(self, app_path: str, folder: str) -> None:
        self.pipe, theirs = _spawn.Pipe()
        self.lease = _spawn.Array("d", child.LEASE_FIELDS, lock=False)
        self.process: SpawnProcess = _spawn.Process(
            target=child.main,
            args=(theirs, self.lease, app_path, logs.configured(), folder),
            name="headrace-child",
        )
        self.last_words = ""
        self.too_slow = False
        try:
            self.process.start()
        except BaseException:
            self.pipe.close()
            raise
        finally:
            theirs.close()

    def is_ready(self, within: float, stopping: threading.Event) -> bool:
        """Wait until it can take tasks; False: it has died before.

        A child that takes longer than *within* seconds is killed, and `too_slow` is set; so is
        one that still starts when the worker is *stopping*.
        """
        until = time.monotonic() + within
        try:
            while not self.pipe.poll(_LOOK_SECONDS):
                self.too_slow = time.monotonic() >= until
                if self.too_slow or stopping.is_set():
                    self.kill()
                    return False
                if not self.process.is_alive() and not self.pipe.poll(0):
                    return False
            message: child.FromChild = self.pipe.recv()
        except (EOFError, OSError):
            return False
        if message[0] == "unfit":
            self.last_words = message[1]
        return message[0] == "ready"

    def hear(self) -> child.FromChild:
        """Wait for its next message.

        Raises EOFError or OSError when it is gone, even if something that it has forked holds
        the other end of the pipe, and of what tells of its end.
        """
        while not self.pipe.poll(_LOOK_SECONDS):
            if not self.process.is_alive() and not self.pipe.poll(0):
                raise EOFError
        message: child.FromChild = self.pipe.recv()
        return message

    def say(self, message: child.ToChild) -> None:
        """Send *message*; a child that is gone is noticed where its answer is waited for."""
        with suppress(OSError):
            self.pipe.send(message)

    def prolong(self, expires_at: datetime, seconds: float) -> None:
        """Write the end of the lease, in *seconds*; this never waits for the child."""
        self.lease[child.EXPIRES_AT] = expires_at.timestamp()
        self.lease[child.ENDS] = seconds_awake() + seconds

    def interrupt(self, *, cancelled: bool) -> None:
        """Interrupt the handler, because of its soft limit or because it was *cancelled*."""
        if cancelled:
            self.lease[child.CANCELLED] = 1.0
        if self.process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, child.SIGNAL)

    def kill(self) -> None:
        """Kill it and what it has started."""
        pid = self.process.pid
        if pid is None:
            return
        try:
            os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):  # it has no process group yet
            self.process.kill()

    def end(self) -> None:
        """Let it end by itself, or kill it when it does not."""
        self.say(None)
        self.process.join(_END_SECONDS)
        if self.process.is_alive():
            self.kill()
            self.process.join()
        self.pipe.close()

    def reap(self) -> str:
        """Wait for the end of a child that is going, kill what it leaves, and return how it was."""
        self.process.join(_END_SECONDS)
        self.kill()
        self.process.join()
        self.pipe.close()
        code = self.process.exitcode or 0
        if code >= 0:
            return f"ended with exit code {code}"
        try:
            name = signal.Signals(-code).name
        except ValueError:  # of those for real time most have no name
            name = f"signal {-code}"
        return f"was killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")


class ChildAttempt(RunningHandler):
    """A handler in a child process; one that was killed has no further task."""

    def __init__(self, process: ChildProcess) -> None:
        self._process = process
        self.killed: Interruption | None = None

    def interrupt(self, why: Interruption) -> None:
        """Interrupt it for its soft limit or a cancel; kill it for anything else."""
        if why in {Interruption.SOFT_LIMIT, Interruption.CANCELLED}:
            self._process.interrupt(cancelled=why is Interruption.CANCELLED)
        else:
            self._kill(why)

    def kill(self) -> None:
        """Kill it: it was cancelled, and did not end."""
        self._kill(Interruption.CANCELLED)

    def _kill(self, why: Interruption) -> None:
        if self.killed is None:
            self._process.kill()
        self.killed = why

    def prolonged(self, expires_at: datetime, seconds: float) -> None:
        """Write the new end."""
        self._process.prolong(expires_at, seconds)


class Children:
    """Runs each handler in a child process; a process that dies is replaced."""

    def __init__(self, parts: WorkerParts, tasks: "HeldTasks") -> None:
        if sys.platform == "win32":
            message = "needs signals and process groups, which Windows does not have"
            raise InvalidRequest.of("isolate", message)
        app, settings = parts.app, parts.settings
        self._parts, self._tasks = parts, tasks
        self._start_timeout = settings.child_start_timeout
        self._app_path, self._folder = settings.app_path or path_of(app), app.folder
        self._failed_starts = 0  # in a row
        self._stopping = threading.Event()
        self._pool = ThreadPool("headrace-child", settings.concurrency, self._tend, died=parts.died)
        self.start = self._pool.start

    def stop(self) -> None:
        """End the children and wait for that."""
        self._stopping.set()
        self._pool.stop(wait=2 * _END_SECONDS)

    def _tend(self, pool: ThreadPool) -> None:
        """Give one child process after the other one task after the other."""
        process: ChildProcess | None = None
        while (held := pool.next()) is not None:
            try:
                if process is None and not held.over:
                    process = self._new_child(held)
                if process is None:
                    self._give_back(held, released(held.task, delay=_LATER_SECONDS))
                elif not self._run(held, process):
                    process = None
            except Exception as error:  # noqa: BLE001 (the thread must outlive a fault beside the tasks)
                _log.exception("A fault of the worker itself")
                self._fail(held, error)
                if process is not None:
                    process.kill()
                    process.reap()
                    process = None
            pool.done()
        if process is not None:
            process.end()

    def _new_child(self, held: InflightTask) -> ChildProcess | None:
        """Return a child that can take *held*; None: there cannot be one at present.

        If the child takes too long to start, the attempt of *held* fails: a task must not wait
        without end.
        """
        while not (self._stopping.is_set() or held.over):
            try:
                process = ChildProcess(self._app_path, self._folder)
            except OSError as error:  # no memory, no processes, no open files left
                _log.error("No child process can be started at present: %s", error)
                self._give_back(held, released(held.task, delay=_LATER_SECONDS))
                self._stopping.wait(_PAUSE_SECONDS)
                return None
            if process.is_ready(self._start_timeout, self._stopping):
                self._failed_starts = 0
                return process
            how_it_ended = process.reap()
            if self._stopping.is_set():
                return None
            if process.too_slow:
                how_it_ended = f"took longer than {self._start_timeout:g} s to load the app"
                message = f"its child process {how_it_ended} and was killed"
                self._give_back(held, failed(held.task, "ProcessNotStarted", message))
            elif process.last_words:
                how_it_ended = f"{how_it_ended}: {process.last_words}"
            _log.error("A child process %s before it could take a task", how_it_ended)
            self._failed_starts += 1
            if self._failed_starts >= _FAILED_STARTS:
                message = f"{_FAILED_STARTS} child processes in a row could not begin; the last one"
                self._parts.fail(HeadraceError(f"{message}: {how_it_ended}"))
                return None
            self._stopping.wait(_PAUSE_SECONDS)
        return None

    def _give_back(self, held: InflightTask, report: Report) -> None:
        """End a task that has not begun with *report*."""
        if held.withdraw():
            self._tasks.finish(held, report)

    def _fail(self, held: InflightTask, error: Exception) -> None:
        """End a task after a fault of the worker."""
        self._give_back(held, released(held.task, delay=_LATER_SECONDS))
        if not held.over:
            held.end()
            self._tasks.finish(held, failed(held.task, type(error).__name__, str(error)))

    def _run(self, held: InflightTask, process: ChildProcess) -> bool:
        """Run one task; return whether the child is good for another."""
        attempt = ChildAttempt(process)
        process.lease[child.CANCELLED] = 0.0
        if not held.begin(attempt):
            self._tasks.release_expired(held)
            return True
        self._parts.notify("started", held.task, held.route)
        process.prolong(held.lease_expires_at, held.seconds_left)
        process.say((held.task, held.route.kind))
        how_it_died: str | None = None
        report: Report | None = None
        try:
            report = _answer(process, held)
        except (EOFError, OSError):
            how_it_died = process.reap()
        except Exception as error:  # noqa: BLE001 (whatever cannot be read in this process)
            process.kill()
            how_it_died = f"{process.reap()}, for what it said cannot be read here: {error}"
        held.end()
        if how_it_died is not None:
            if attempt.killed is not None:
                report = _killed(held, attempt.killed)
            else:
                _log.error("A child process %s while it ran a task", how_it_died)
                report = failed(held.task, "ProcessDied", f"the process that ran it {how_it_died}")
        elif attempt.killed is not None:
            process.reap()
        self._tasks.finish(held, report)
        return how_it_died is None and attempt.killed is None


def _killed(held: InflightTask, why: Interruption) -> Report | None:
    if held.lease_lost:
        return None
    if why is Interruption.HARD_LIMIT:
        limit = f"the hard time limit of {amount(held.route.hard_timeout or 0, 'second')} is over"
        return failed(held.task, "TimeLimit", f"{limit}; its process was killed")
    return released(held.task) if why is Interruption.STOPPED else None


def _answer(process: ChildProcess, held: InflightTask) -> Report | None:
    """Wait for the report, and pass progress on until then."""
    while True:
        message = process.hear()
        if message[0] == "report":
            return message[1]
        if message[0] == "progress":
            held.progress(message[1])


def _importable(name: str, module: object) -> str:
    """The modules a child imports: of programs it finds all as ``__main__`` but a package's."""
    spec: ModuleSpec | None = getattr(module, "__spec__", None)
    if name == "__main__" and spec is not None and spec.name.endswith(".__main__"):
        return spec.name
    return name


def path_of(app: object) -> str:
    """Return ``module:name`` of an app that is a module's own.

    Raises InvalidRequest for another app, because child processes could not find it.
    """
    for module_name, module in list(sys.modules.items()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is app:
                return f"{_importable(module_name, module)}:{name}"
    message = "must be a variable of a module, or app_path name it, to be found by child processes"
    raise InvalidRequest.of("app", message)
