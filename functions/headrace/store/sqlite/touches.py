"""How processes that share the file tell each other, on Linux, that they have committed.

Whoever has sets the times of the file, and whoever waits hears of that from inotify.  Neither opens
the file: to close it would give up the locks that SQLite has on it.  Elsewhere nobody is told.
"""

import ctypes
import errno
import os
import select
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

_ATTRIBUTES: Final = 0x4  # IN_ATTRIB: the times of a file, among others
_BYTES: Final = 4096  # of events, more than can have come


def touch(path: Path) -> None:
    """Tell those who watch the file at *path*; where that may not be, they look by themselves."""
    try:
        os.utime(path)
    except OSError as error:
        if error.errno is None:  # a TimeoutError thrown into this thread, which is to end
            raise


class TouchWatch:
    """Watches one file.  Raises OSError where that cannot be."""

    def __init__(self, path: Path) -> None:
        self._files: list[int] = []
        if sys.platform != "linux":
            raise OSError(errno.ENOSYS, "there is no inotify here")
        start, add = _inotify()
        for opened in (start, lambda: os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)):
            self._files.append(opened())
        self._touched, self._woken = self._files
        add(self._touched, os.fsencode(path), _ATTRIBUTES)
        self._poll = select.poll()
        for file in self._files:
            self._poll.register(file, select.POLLIN)

    def wait(self, seconds: float) -> None:
        """Return once the file is touched or wake() is called, or was since; or after *seconds*."""
        for file, _ in self._poll.poll(seconds * 1000):
            with suppress(BlockingIOError):
                os.read(file, _BYTES)

    def wake(self) -> None:
        """Let whoever waits go on."""
        os.write(self._woken, (1).to_bytes(8, sys.byteorder))

    def __del__(self) -> None:
        """Watch no longer."""
        for file in self._files:
            os.close(file)


def _inotify() -> tuple[Callable[[], int], Callable[..., int]]:
    """Return what begins to watch, without blocking, and what adds a file to that."""
    library = ctypes.CDLL(None, use_errno=True)

    def called(name: str) -> Callable[..., int]:
        try:
            function: Any = getattr(library, name)
        except AttributeError as error:
            raise OSError(errno.ENOSYS, str(error)) from error

        def call(*arguments: object) -> int:
            result: int = function(*arguments)
            if result < 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
            return result

        return call

    start = called("inotify_init1")
    return lambda: start(os.O_NONBLOCK | os.O_CLOEXEC), called("inotify_add_watch")
