"""The timers of the local service, in a process of their own beside the one that answers.

To count what was written takes a sixth of the CPU of a task here.  A process of Python runs one
thread at a time, so in the one that answers every request would wait for that.
"""

import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Final, Self

from headrace.client.threads import PeriodicThread
from headrace.domain.errors import Unavailable
from headrace.embedded.service import service_on
from headrace.embedded.timers import FileTimers
from headrace.runtime.wiring import Settings

_MODULE: Final = "headrace.local.timers"
_AGAIN_SECONDS: Final = 2.0
"""From the end of a child that should go on until there is another."""
_END_WITHIN: Final = 5.0  # seconds
_SIGNALS: Final = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has not all of them

_log: Final = logging.getLogger("headrace.timers")


class TimersProcess:
    """Runs the timers of the file at *path* in a child, and in another if that one ends.

    For a with block.  The child ends when its stdin does, so it outlives this process by no more
    than the work that it is at, however this process ends.
    """

    def __init__(
        self,
        path: str,
        *,
        command: Sequence[str] | None = None,
        again_seconds: float = _AGAIN_SECONDS,
    ) -> None:
        """*command* takes the place of the timers, in tests."""
        safe = ("-P",) if sys.flags.safe_path else ()
        self._command = command or [sys.executable, *safe, "-m", _MODULE, path]
        self._again_seconds = again_seconds
        self._lock = threading.Lock()  # of what follows
        self._ending = False
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = PeriodicThread("timers", self._run, log=_log, after_fault=again_seconds)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Let the child end, and wait for that."""
        self._thread.stop()
        with self._lock:
            self._ending = True
            child = self._child
        if child is not None:
            _end(child)
        self._thread.join(_END_WITHIN)

    def _run(self) -> float:
        """Run a child until it ends; return the seconds until the next one."""
        with self._lock:
            if self._ending:
                return self._again_seconds
            child = self._child = subprocess.Popen(  # noqa: S603  our own
                self._command, stdin=subprocess.PIPE
            )
        with child:
            code = child.wait()
        if not self._ending:
            _log.error("The process of the timers ended with %d; another begins", code)
        return self._again_seconds


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.stdin is not None:
        child.stdin.close()
    try:
        child.wait(_END_WITHIN)
    except subprocess.TimeoutExpired:
        child.kill()  # whoever comes next finds that it is gone


def main(path: str) -> int:
    """Run the timers of the file at *path* until stdin ends; return the exit code."""
    # They reach the whole group of processes: the service ends first, and then this.
    for name in _SIGNALS:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        service = service_on(path, Settings.from_env())
    except Unavailable as error:
        _log.error("The timers cannot run: %s", error.detail)
        return 1
    try:
        with FileTimers(service, now=service.use.now):
            sys.stdin.buffer.read()
    finally:
        service.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
