"""The connections to one SQLite file: one that writes, some that read, and none during a fork.

SQLite keeps account of a file's locks in the memory of its process.  The child of a fork inherits
the account but not the locks.  So a connection that it opens takes locks for its own that it does
not have, and when another process closes the file, SQLite deletes the log that the child still
writes to.  Therefore no connection is open during a fork; parent and child open new ones.
"""

import os
import shutil
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

from headrace.domain.errors import Unavailable
from headrace.store.sqlite.file import (
    Identity,
    Unusable,
    check_same,
    create,
    refuse_network,
)
from headrace.store.sqlite.schema import (
    WAIT_SECONDS,
    bring_up_to_date,
    check_library,
    empty_tables,
)

MEMORY: Final = ":memory:"
_IDLE_READERS: Final = 8  # reading connections that stay open while no call reads
_CHECK_SECONDS: Final = 0.5  # between two checks by readers that the file is still the same
_LARGEST_LOG: Final = 64 * 1024 * 1024  # bytes that the log beside the file keeps after a burst
_FORK_PATIENCE_SECONDS: Final = 5.0
_FORK_PAUSE_SECONDS: Final = 0.0005


class Connections:
    """The connections to the file at *path*, or with ``:memory:`` to a database in memory.

    Raises Unusable, with the reason, for a file that cannot be used.
    """

    def __init__(self, path: str) -> None:
        check_library()
        self.name = path
        # Resolved now: readers are opened later, when the current folder may be another one.
        self._path = None if path == MEMORY else Path(os.path.realpath(path))
        self._errors = errors(path, self._path)
        self._identity: Identity | None = None
        self._closed = False
        self._carried_over = False
        self._checked_until = 0.0
        self.on_fork: list[Callable[[], None]] = []  # called in the child
        self._reset()
        with self._errors:
            if self._path is not None:
                refuse_network(path, self._path)
                self._identity = create(path, self._path)
            self._writing()
        with _open_mutex:
            _open.add(self)

    @property
    def path(self) -> Path | None:
        """The path of the file; None in memory."""
        return self._path

    @property
    def shared(self) -> bool:
        """Whether other processes may write to the database too."""
        return self._path is not None

    def _reset(self) -> None:
        self._gate = threading.Lock()  # every read and write passes through it before it begins
        self._memory = threading.RLock()
        self._mutex = threading.Lock()  # guards the readers
        self._readers: list[sqlite3.Connection] = []
        self._lent: set[object] = set()  # a token for each reader in use
        self._writer_mutex = threading.Lock()  # guards the writing connection
        self._writer: sqlite3.Connection | None = None
        self._lazy = False  # whether the writing connection does not sync

    def _check_open(self) -> None:
        if self._closed or sys.is_finalizing():  # no thread would do the work
            raise Unavailable(f"{self.name}: it is closed")
        if self._carried_over:
            raise Unusable(
                f"{self.name}: it was in use when this process was forked; open it in a new one"
            )

    def _check_same_file(self) -> None:
        if self._path is not None:
            check_same(self.name, self._path, self._identity)

    # -- reading -------------------------------------------------------------------------------

    @contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection for statements that change nothing."""
        with self._errors:
            self._pass_gate()
            if time.monotonic() > self._checked_until:  # every write checks too
                self._check_same_file()
                self._checked_until = time.monotonic() + _CHECK_SECONDS
            if self._path is None:
                with self._memory:
                    self._check_open()
                    yield self._writing()
                return
            token = object()
            try:
                db = self._borrow(token)
                try:
                    yield db
                except BaseException:
                    # A half-read statement keeps this connection at an old state of the file.
                    db.close()
                    raise
                self._take_back(db)
            finally:
                self._lent.discard(token)

    def _borrow(self, token: object) -> sqlite3.Connection:
        with self._mutex:
            self._check_open()
            self._lent.add(token)
            if self._readers:
                return self._readers.pop()
        db = self._connect()
        try:
            db.execute("PRAGMA query_only = ON")
            self._check_same_file()
        except BaseException:
            db.close()
            raise
        return db

    def _take_back(self, db: sqlite3.Connection) -> None:
        with self._mutex:
            if not self._closed and len(self._readers) < _IDLE_READERS:
                self._readers.append(db)
                return
        db.close()

    def _pass_gate(self) -> None:
        with self._gate:
            pass

    # -- opening and closing -------------------------------------------------------------------

    def _writing(self) -> sqlite3.Connection:
        """Return the only connection that writes."""
        if self._writer is None:
            db = self._connect()
            try:
                if self._path is None:
                    empty_tables().backup(db)
                else:
                    bring_up_to_date(db, self.name)
                db.execute("PRAGMA synchronous = FULL")
                db.execute("PRAGMA fullfsync = ON")  # macOS: a sync that reaches the disk
                db.execute("PRAGMA checkpoint_fullfsync = ON")
                db.execute(f"PRAGMA journal_size_limit = {_LARGEST_LOG}")
                db.execute("PRAGMA busy_timeout = 0")  # see retry_while_busy()
            except BaseException:
                db.close()
                raise
            self._writer, self._lazy = db, False
        return self._writer

    def _connect(self) -> sqlite3.Connection:
        # As a URI with mode=rw, which does not create a missing file.
        place = MEMORY if self._path is None else f"{self._path.as_uri()}?mode=rw"
        db = sqlite3.connect(
            place,
            uri=self._path is not None,
            timeout=WAIT_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        db.execute("PRAGMA temp_store = MEMORY")
        return db

    def _drop_connections(self) -> None:
        self._drop_writer()
        for db in self._readers:
            db.close()
        self._readers = []

    def _drop_writer(self) -> None:
        db, self._writer = self._writer, None
        if db is not None:
            db.close()

    # -- forks ---------------------------------------------------------------------------------

    def close_gate(self) -> None:
        """Let no read or write begin until ``open_gate()``."""
        self._gate.acquire()

    def try_disconnect(self) -> bool:
        """Close all connections until ``open_gate()``; return False while one is in use."""
        locks = (self._memory, self._writer_mutex, self._mutex)
        held = [lock for lock in locks if lock.acquire(blocking=False)]
        if len(held) == len(locks) and not self._lent:
            if self._path is not None:
                self._drop_connections()
            return True
        for lock in held:
            lock.release()
        return False

    def open_gate(self, *, disconnected: bool) -> None:
        """Let reads and writes begin again, in the process that was forked."""
        if disconnected:
            for lock in (self._memory, self._writer_mutex, self._mutex):
                lock.release()
        self._gate.release()

    def reset_in_child(self, *, disconnected: bool) -> None:
        """Start again in the child of a fork.

        Connections that were in use during the fork cannot be used in the child.
        """
        writer, readers = self._writer, self._readers
        self._reset()
        if self._path is None:
            self._writer = writer  # the memory is the child's own
        else:
            _abandoned.append((writer, readers))
            self._carried_over = self._carried_over or not disconnected
        for call in self.on_fork:
            call()


_abandoned: Final[list[Any]] = []
"""Connections of a parent, kept open in its child: to close them might undo the parent's writes."""

_open: Final[WeakSet[Connections]] = WeakSet()
_open_mutex: Final = threading.Lock()  # held by the thread that forks, in the child too
_disconnected: Final[list[Connections]] = []
_in_use: Final[list[Connections]] = []


def _before_fork() -> None:
    _open_mutex.acquire()
    deadline = time.monotonic() + _FORK_PATIENCE_SECONDS
    _in_use[:] = list(_open)
    for database in _in_use:
        database.close_gate()
    while _in_use:
        for database in list(_in_use):
            if database.try_disconnect():
                _in_use.remove(database)
                _disconnected.append(database)
        if not _in_use or time.monotonic() > deadline:
            break
        time.sleep(_FORK_PAUSE_SECONDS)


def _after_fork_in_parent() -> None:
    for database in _disconnected:
        database.open_gate(disconnected=True)
    for database in _in_use:
        database.open_gate(disconnected=False)
    _end_fork()


def _after_fork_in_child() -> None:
    for database in _disconnected:
        database.reset_in_child(disconnected=True)
    for database in _in_use:
        database.reset_in_child(disconnected=False)
    _end_fork()


def _end_fork() -> None:
    _disconnected.clear()
    _in_use.clear()
    _open_mutex.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )


# -------------------------------------------------------------------------------- errors of SQLite

_BUSY: Final = "another process has held it for too long"
_FULL: Final = "the disk is full, and nothing of this was written: make room on it"
_PASSING: Final = {
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_LOCKED: _BUSY,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_IOERR: "the disk does not answer as it should",
    sqlite3.SQLITE_NOMEM: "there is no memory left",
}
_LASTING: Final = {
    sqlite3.SQLITE_READONLY: "it may not be written to, or its folder may not",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened, or its folder not be written to",
    sqlite3.SQLITE_CORRUPT: "it is damaged: restore a backup (headrace doctor shows the damage)",
    sqlite3.SQLITE_NOTADB: "it is no database: name another file, or restore a backup",
    sqlite3.SQLITE_PERM: "access is denied",
    sqlite3.SQLITE_PROTOCOL: "the file system does not lock as it should",
}
_SCARCE: Final = 256 * 1024  # bytes: less than SQLite may want at once


class errors:  # noqa: N801  a block, as those of contextlib
    """A block in which errors of SQLite become Unavailable or Unusable with an explanation.

    *name* is the name of the file in messages, *path* its path (None: in memory).  Several threads
    may enter the block, and more than once.
    """

    __slots__ = ("_name", "_path")

    def __init__(self, name: str, path: Path | None = None) -> None:
        self._name = name
        self._path = path

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Raise the meaning of *error*, if it is an error of SQLite."""
        if not isinstance(error, sqlite3.DatabaseError):
            return
        code = getattr(error, "sqlite_errorcode", None)
        if code is None or isinstance(error, sqlite3.ProgrammingError | sqlite3.IntegrityError):
            return  # a defect of Headrace
        raise _meaning(code & 0xFF, f"{self._name}: ", str(error), self._path) from error


def _meaning(code: int, name: str, message: str, path: Path | None) -> Unavailable:
    if code == sqlite3.SQLITE_IOERR and path is not None and _no_room(path):
        return Unavailable(name + _FULL)  # the memory beside the file could not be made larger
    if code in _PASSING:
        return Unavailable(name + _PASSING[code])
    return Unusable(name + _LASTING.get(code, message))


def _no_room(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < _SCARCE
    except OSError:
        return False
