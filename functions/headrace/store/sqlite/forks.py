"""What becomes of open files when the process forks.

SQLite keeps account of a file's locks in the memory of its process.  A child inherits the account
but not the locks: a connection that it opens believes to hold what it does not, and when another
process closes the file, the log that the child still writes to is deleted.  So no connection is
open during a fork; parent and child open them again.
"""

import os
import threading
import time
from typing import Any, Final, Protocol
from weakref import WeakSet

_PATIENCE_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.0005

ABANDONED: Final[list[Any]] = []
"""Connections of a parent, kept in its child: closed there, they might undo what it writes."""


class Forked(Protocol):
    """What is watched."""

    def hold(self) -> None: ...
    def try_quiet(self) -> bool: ...
    def go_on(self, *, quiet: bool) -> None: ...
    def begin_anew(self, *, quiet: bool) -> None: ...


_OPEN: Final[WeakSet[Any]] = WeakSet()
_OPEN_MUTEX: Final = threading.Lock()  # held by the thread that forks, in the child too
_quiet: Final[list[Forked]] = []
_busy: Final[list[Forked]] = []


def watch(database: Forked) -> None:
    """Let *database* have its connections closed before each fork."""
    with _OPEN_MUTEX:
        _OPEN.add(database)


def _before() -> None:
    _OPEN_MUTEX.acquire()
    deadline = time.monotonic() + _PATIENCE_SECONDS
    _busy[:] = list(_OPEN)
    for database in _busy:
        database.hold()
    while _busy:
        for database in list(_busy):
            if database.try_quiet():
                _busy.remove(database)
                _quiet.append(database)
        if not _busy or time.monotonic() > deadline:
            break
        time.sleep(_PAUSE_SECONDS)


def _after_in_parent() -> None:
    for database in _quiet:
        database.go_on(quiet=True)
    for database in _busy:
        database.go_on(quiet=False)
    _done()


def _after_in_child() -> None:
    for database in _quiet:
        database.begin_anew(quiet=True)
    for database in _busy:
        database.begin_anew(quiet=False)
    _done()


def _done() -> None:
    _quiet.clear()
    _busy.clear()
    _OPEN_MUTEX.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
