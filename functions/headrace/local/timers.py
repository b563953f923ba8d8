"""The timers of the local service, in a process beside the one that answers.

The recorder takes a sixth of the CPU of a task.  A Python process runs one thread at a time, so in
the process that answers every request would wait for the recorder.

The child reads its stdin, a pipe of the service, and ends when that does: so it ends with the
service, even if that is killed.
"""

import logging
import signal
import subprocess
import sys
import threading
from typing import Final, Self

from headrace import garbage
from headrace.client.threads import PeriodicThread
from headrace.domain.errors import Unavailable
from headrace.embedded.service import service_at
from headrace.embedded.timers import EmbeddedTimers
from headrace.runtime.wiring import Settings
from headrace.safe_logging import safe_logger

_RESTART_SECONDS: Final = 2.0
_END_SECONDS: Final = 5.0
_SIGNALS: Final = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has not all of them

_log: Final = safe_logger("headrace.timers")


class TimersProcess:
    """A process that runs the timers, and is started again if it ends.  Use it in a with block.

    The timers work on the file at *path*, or on the DynamoDB tables that the environment names.
    """

    def __init__(self, path: str | None) -> None:
        safe = ("-P",) if sys.flags.safe_path else ()
        arguments = (path,) if path else ()
        self._command = [sys.executable, *safe, "-m", "headrace.local.timers", *arguments]
        self._lock = threading.Lock()  # of what follows
        self._ending = False
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = PeriodicThread("timers", self._run, log=_log, after_fault=_RESTART_SECONDS)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the child, and wait until it has ended."""
        self.end()
        child = self._child
        if child is not None:
            try:
                child.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
        self._thread.join(_END_SECONDS)

    def end(self) -> None:
        """Let the child end, and start no other.  May be repeated."""
        self._thread.stop()
        with self._lock:
            self._ending = True
            child = self._child
        if child is not None and child.stdin is not None:
            child.stdin.close()

    def _run(self) -> float:
        """Run a child until it ends; return the seconds until the next one."""
        with self._lock:
            if self._ending:
                return _RESTART_SECONDS
            child = self._child = subprocess.Popen(self._command, stdin=subprocess.PIPE)  # noqa: S603  our own
        with child:
            code = child.wait()
        if not self._ending:
            _log.error("The process for timers ended with %d; another begins", code)
        return _RESTART_SECONDS


def main(path: str | None = None) -> int:
    """Run the timers until stdin ends; return the exit code."""
    garbage.collect_rarely()
    for name in _SIGNALS:  # the service ends its child
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        service = service_at(path, Settings.from_env())
    except Unavailable as error:
        _log.error("The timers cannot run: %s", error.detail)
        return 1
    try:
        with EmbeddedTimers(service, now=service.use.now):
            sys.stdin.buffer.read()
    finally:
        service.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
