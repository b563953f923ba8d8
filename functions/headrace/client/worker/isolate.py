"""Handlers in child processes, which can be killed: one task each at a time."""

import logging
import multiprocessing
import os
import queue
import signal
import sys
import threading
from contextlib import suppress
from datetime import datetime
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Final

from headrace.client.app.execution import Executor
from headrace.client.sending import Report
from headrace.client.worker import child
from headrace.client.worker.clocks import Monotonic
from headrace.client.worker.endings import failed, released
from headrace.client.worker.holding import Held, Interruption
from headrace.client.worker.threads import Ended, Started
from headrace.domain.errors import FieldError, InvalidRequest

_END_SECONDS: Final = 2.0

_spawn: Final = multiprocessing.get_context("spawn")
_log = logging.getLogger("headrace.worker")


class ChildProcess:
    """A child process and the pipe to it."""

    def __init__(self, app_path: str) -> None:
        self.pipe, theirs = _spawn.Pipe()
        self.process: SpawnProcess = _spawn.Process(
            target=child.main, args=(theirs, app_path), name="headrace-child"
        )
        self._lock = threading.Lock()  # of the pipe's sending end
        self.process.start()
        theirs.close()

    def is_ready(self) -> bool:
        """Wait until it can take tasks; False: it has died before."""
        try:
            self.pipe.recv()
        except (EOFError, OSError):
            return False
        return True

    def say(self, message: child.ToChild) -> None:
        """Send *message*; a child that is gone is noticed where its answer is waited for."""
        with suppress(OSError), self._lock:
            self.pipe.send(message)

    def kill(self) -> None:
        """Kill it and what it has started."""
        pid = self.process.pid
        if pid is None:
            return
        try:
            os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):  # it has no group of its own yet
            self.process.kill()

    def end(self) -> None:
        """Let it end by itself, or kill it when it does not."""
        self.say(("end",))
        self.process.join(_END_SECONDS)
        if self.process.is_alive():
            self.kill()
            self.process.join()
        self.pipe.close()

    def buried(self) -> str:
        """Wait for the end of a child that is going, and say how it was."""
        self.process.join(_END_SECONDS)
        if self.process.is_alive():
            self.kill()
            self.process.join()
        self.pipe.close()
        code = self.process.exitcode or 0
        if code >= 0:
            return f"exited with code {code}"
        name = signal.Signals(-code).name
        return f"killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")


class ChildAttempt:
    """A handler in a child process."""

    def __init__(self, process: ChildProcess) -> None:
        self._process = process
        self.killed: Interruption | None = None

    def interrupt(self, why: Interruption) -> None:
        """Tell it of the soft limit, kill it for anything else."""
        if why is Interruption.SOFT_LIMIT:
            self._process.say(("soft",))
        else:
            self.killed = why
            self._process.kill()

    def prolonged(self, expires_at: datetime) -> None:
        """Tell it."""
        self._process.say(("lease", expires_at))

    def ended(self) -> None:
        """Do nothing: a child that was killed has no further task."""


class Children:
    """Up to *most* child processes, begun as they are needed and replaced when they die."""

    def __init__(
        self,
        app: Executor,
        app_path: str | None,
        most: int,
        started: Started,
        ended: Ended,
        monotonic: Monotonic,
    ) -> None:
        self._app_path = app_path or path_of(app)
        self._most = most
        self._started, self._ended, self._monotonic = started, ended, monotonic
        self._waiting: queue.SimpleQueue[Held | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def start(self, held: Held) -> None:
        """Run *held* as soon as a child is free.  Called from one thread only."""
        if len(self._threads) < self._most:
            name = f"headrace-child-{len(self._threads)}"
            thread = threading.Thread(target=self._tend, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        self._waiting.put(held)

    def stop(self) -> None:
        """End the children and wait for that."""
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join(2 * _END_SECONDS)

    def _tend(self) -> None:
        """Give one child, and those that take its place, one task after the other."""
        process: ChildProcess | None = None
        while (held := self._waiting.get()) is not None:
            try:
                if process is None:
                    process = ChildProcess(self._app_path)
                    if not process.is_ready():
                        self._not_begun(held, process.buried())
                        process = None
                        continue
                if not self._run(held, process):
                    process = None
            except Exception:  # noqa: BLE001 (the thread must outlive a fault beside the tasks)
                _log.exception("A fault of the worker itself")
        if process is not None:
            process.end()

    def _not_begun(self, held: Held, how_it_died: str) -> None:
        """Fail a task whose child did not come to life: what it says is in the worker's stderr."""
        _log.error("A child process was %s before it could take a task", how_it_died)
        if held.withdraw():
            message = f"no process could be started to run it; it was {how_it_died}"
            self._ended(held, failed(held.task, "ProcessDied", message))

    def _run(self, held: Held, process: ChildProcess) -> bool:
        """Run one task; return whether the child is good for another."""
        attempt = ChildAttempt(process)
        if not held.begin(attempt, self._monotonic()):
            return True
        self._started(held)
        process.say(("run", held.task, held.route.kind))
        how_it_died: str | None = None
        report: Report | None = None
        try:
            report = _answer(process.pipe, held)
        except (EOFError, OSError):
            how_it_died = process.buried()
        except Exception as error:  # noqa: BLE001 (whatever cannot be read in this process)
            process.kill()
            how_it_died = f"{process.buried()}, for what it said cannot be read here: {error}"
        held.end()
        if how_it_died is not None:
            if attempt.killed is not None:
                report = _killed(held, attempt.killed)
            else:
                _log.error("A child process was %s while it ran a task", how_it_died)
                report = failed(
                    held.task, "ProcessDied", f"the process that ran it was {how_it_died}"
                )
        elif attempt.killed is not None:
            process.buried()
        if not held.abandoned:
            self._ended(held, report)
        return how_it_died is None and attempt.killed is None


def _killed(held: Held, why: Interruption) -> Report | None:
    if why is Interruption.HARD_LIMIT:
        limit = f"the hard time limit of {held.route.hard_timeout} seconds is over"
        return failed(held.task, "TimeLimit", f"{limit}; its process was killed")
    return released(held.task) if why is Interruption.STOPPED else None


def _answer(pipe: Connection, held: Held) -> Report | None:
    """Wait for the report, and pass progress on until then."""
    while True:
        message: child.FromChild = pipe.recv()
        if message[0] == "report":
            return message[1]
        if message[0] == "progress":
            held.progress(message[1])


def path_of(app: object) -> str:
    """Return ``module:name`` of an app that is a module's own.

    Raises InvalidRequest for one that is none: child processes could not find it.
    """
    for module_name, module in list(sys.modules.items()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is app:
                return f"{module_name}:{name}"
    message = "must be a variable of a module, or app_path name it, to be found by child processes"
    raise InvalidRequest(f"app {message}", errors=[FieldError("app", message)])
