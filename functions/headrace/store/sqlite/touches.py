"""Notifications of commits between the processes that share the file, on Linux.

A process that has committed sets the times of the file, and inotify reports that to the waiting
processes.  No process opens the file for it: closing the file would release SQLite's locks on it.
On other systems there are no notifications.
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
_BYTES: Final = 4096  # more than the events that can be pending


def touch(path: Path) -> None:
    """Notify the watches of the file at *path*; without the right to do so, nothing happens."""
    try:
        os.utime(path)
    except OSError as error:
        if error.errno is None:  # a TimeoutError that interrupts this thread
            raise


class TouchWatch:
    """Watches one file.  Raises OSError if the platform cannot watch it."""

    def __init__(self, path: Path) -> None:
        self._files: list[int] = []
        if sys.platform != "linux":
            raise OSError(errno.ENOSYS, "inotify needs Linux")
        start, add = _inotify()
        for opened in (start, lambda: os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)):
            self._files.append(opened())
        self._touched, self._woken = self._files
        add(self._touched, os.fsencode(path), _ATTRIBUTES)
        self._poll = select.poll()
        for file in self._files:
            self._poll.register(file, select.POLLIN)

    def wait(self, seconds: float) -> None:
        """Wait for a touch or wake() since the last wait, for at most *seconds*."""
        for file, _ in self._poll.poll(seconds * 1000):
            with suppress(BlockingIOError):
                os.read(file, _BYTES)

    def wake(self) -> None:
        """End the current wait, or the next one."""
        os.write(self._woken, (1).to_bytes(8, sys.byteorder))

    def __del__(self) -> None:
        for file in self._files:
            os.close(file)


def _inotify() -> tuple[Callable[[], int], Callable[..., int]]:
    """Return two functions: one opens a non-blocking inotify, the other adds a file to it."""
    library = ctypes.CDLL(None, use_errno=True)

    def function_of(name: str) -> Callable[..., int]:
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

    start = function_of("inotify_init1")
    return lambda: start(os.O_NONBLOCK | os.O_CLOEXEC), function_of("inotify_add_watch")
