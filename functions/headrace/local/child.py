"""Processes beside the one that is the service: begun, begun again if they end, and ended with it.

The child reads its stdin, a pipe of the service's, and ends when that does: so it outlives the
service by no more than the work that it is at, however that ends.
"""

import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Final, Self

from headrace import garbage
from headrace.client.threads import PeriodicThread
from headrace.safe_logging import SafeLogger

_AGAIN_SECONDS: Final = 2.0
"""From the end of a child that should go on until there is another."""
_END_WITHIN: Final = 5.0  # seconds
_SIGNALS: Final = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has not all of them


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs *module* with this Python, from where this one imports."""
    safe = ("-P",) if sys.flags.safe_path else ()
    return [sys.executable, *safe, "-m", module, *arguments]


def begin() -> None:
    """In a child, first: leave to the service what is sent to the whole group of processes."""
    garbage.look_seldom()
    for name in _SIGNALS:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")


def until_stdin_ends() -> None:
    """In a child, wait until the service wants its end, or has ended itself."""
    sys.stdin.buffer.read()


class SupervisedProcess:
    """Runs *command*, and again if it ends; for a with block.

    *name* says in the log what it is for; *inherits* are the numbers of open files it is given.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: logging.Logger | SafeLogger,
        inherits: Sequence[int] = (),
        again_seconds: float = _AGAIN_SECONDS,
    ) -> None:
        self._name, self._command, self._log = name, command, SafeLogger(log)
        self._inherits = inherits
        self._again_seconds = again_seconds
        self._lock = threading.Lock()  # of what follows
        self._ending = False
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = PeriodicThread(name, self._run, log=log, after_fault=again_seconds)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Let the child end, and wait for that."""
        self.let_end()
        child = self._child
        if child is not None:
            try:
                child.wait(_END_WITHIN)
            except subprocess.TimeoutExpired:
                child.kill()  # whoever comes next finds that it is gone
        self._thread.join(_END_WITHIN)

    def let_end(self) -> None:
        """Tell the child to end, and begin no other.  May be repeated."""
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
                return self._again_seconds
            child = self._child = subprocess.Popen(  # noqa: S603  our own
                self._command, stdin=subprocess.PIPE, pass_fds=self._inherits
            )
        with child:
            code = child.wait()
        if not self._ending:
            self._log.error("The process for %s ended with %d; another begins", self._name, code)
        return self._again_seconds
