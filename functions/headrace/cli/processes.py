"""`headrace work --processes`: one process that starts and supervises several worker processes.

The supervisor imports no app: each worker process is a fork of it that loads the app itself.
"""

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from types import FrameType
from typing import Any, Final

from headrace.cli.session import Exit, Failed
from headrace.client.threads import stop_signals
from headrace.safe_logging import safe_logger

RECYCLE: Final = 75
"""The exit code of a worker process that asks for a new one in its place."""

_FAILED_STARTS: Final = 3
"""Worker processes in a row that end soon after their start: a new one would end too."""

_STARTED_SECONDS: Final = 5.0

_ENDS_ALL: Final = frozenset({Exit.USAGE, Exit.NOT_FOUND, Exit.NOT_ALLOWED})
"""Codes of a start that fails again in the same way: a wrong option, module, queue or key."""

_PAUSE_SECONDS: Final = 1.0
"""The pause before a worker process that died is replaced."""

_PR_SET_PDEATHSIG: Final = 1

_log = safe_logger("headrace.worker")


class Supervisor:
    """Keeps *count* worker processes running, and passes signals on to them.

    A worker process that died, or asked to be recycled, is replaced.  One that ended with code 0,
    or 6 for results that were not reported, is not: an operator has stopped it, or its burst is
    done.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._running: dict[int, tuple[int, float]] = {}  # by pid: number, and when it started
        self._codes: list[int] = []  # of those that were not replaced
        self._failed_starts = 0  # in a row
        self._stops = 0  # signals that were passed on
        self._before: dict[signal.Signals, Any] = {}  # handlers

    def run(self) -> int:
        """Return the number of this process, from 1, in each worker process.

        In the supervisor return 0, once all worker processes have ended.  Raises Failed on Windows.
        """
        if not hasattr(os, "fork"):
            message = "--processes, --max-tasks and --max-memory need Linux or macOS"
            raise Failed(message, Exit.USAGE)
        self._before = {number: signal.signal(number, self._pass_on) for number in stop_signals()}
        try:
            wanted = list(range(1, self._count + 1))
            while wanted or self._running:
                for number in wanted:
                    if not self._stops and self._is_child(number):
                        return number
                wanted = []
                if self._running:
                    pid, status = os.wait()
                    wanted = self._ended(pid, os.waitstatus_to_exitcode(status))
            return 0
        finally:
            self._restore_handlers()

    @property
    def exit_code(self) -> int:
        """The code of all worker processes that did not end with 0, or 1 if they differ."""
        codes = {code if code > 0 else Exit.FAILED for code in self._codes if code}
        return codes.pop() if len(codes) == 1 else int(bool(codes))

    def _is_child(self, number: int) -> bool:
        """Fork worker process *number*; return whether this is it."""
        parent = os.getpid()
        # No signal may come between the fork and the note of its pid.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._before)
        try:
            pid = os.fork()
            if pid:
                self._running[pid] = number, time.monotonic()
                return False
            self._restore_handlers()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.setpgid(0, 0)  # a Ctrl-C comes once, from the supervisor
        if sys.platform == "linux":  # do not outlive a supervisor that is killed
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:
                sys.exit(1)
        return True

    def _ended(self, pid: int, code: int) -> list[int]:
        """Note that a process has ended; return the numbers of those to start in its place."""
        if pid not in self._running:  # an orphan, if this is process 1 of a container
            return []
        number, started = self._running.pop(pid)
        if self._stops == 1 and (-code in self._before or code == Exit.INTERRUPTED):
            code = Exit.DONE  # it had not begun to work
        if self._stops or code in {Exit.DONE, Exit.UNAVAILABLE}:
            self._codes.append(code)
            return []
        if code == RECYCLE:
            return [number]
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        _log.error("Worker process %d (%d) %s", number, pid, how)
        soon = code > 0 and time.monotonic() - started < _STARTED_SECONDS
        self._failed_starts = self._failed_starts + 1 if soon else 0
        if self._failed_starts >= _FAILED_STARTS or (soon and code in _ENDS_ALL):
            _log.error("No worker process can work here, so all are stopped")
            self._codes.append(code)
            self._pass_on(signal.SIGTERM, None)
            return []
        time.sleep(_PAUSE_SECONDS)
        return [number]

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        self._stops += 1
        for pid in self._running:
            with suppress(ProcessLookupError):  # it has just been waited for
                os.kill(pid, number)

    def _restore_handlers(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
