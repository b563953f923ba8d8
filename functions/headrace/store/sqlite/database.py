"""One SQLite file: its connections, its transactions, and what its errors mean.

Callers of a process hand what they write to one thread, which does what has gathered in one
transaction, so one sync to the disk serves many.  Readers have connections of their own, and
neither wait for a writer nor hold one up.
"""

import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar
from weakref import WeakSet

from headrace.domain.errors import Unavailable
from headrace.store.base import CALL_SECONDS
from headrace.store.sqlite.schema import bring_up_to_date, check_library

MEMORY: Final = ":memory:"
_BUSY_SECONDS: Final = CALL_SECONDS
_TOGETHER: Final = 64  # callers whose work is done in one transaction
_SHORTEST_PAUSE: Final = 0.0002
_LONGEST_PAUSE: Final = 0.004
_MEANINGS: Final = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "it may not be written to",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened, or its folder not be written to",
    sqlite3.SQLITE_CORRUPT: "it is damaged: restore a backup (headrace doctor shows the damage)",
    sqlite3.SQLITE_NOTADB: "it is no database",
    sqlite3.SQLITE_BUSY: "another process has held it for too long",
    sqlite3.SQLITE_LOCKED: "another process has held it for too long",
    sqlite3.SQLITE_IOERR: "the disk does not answer as it should",
    sqlite3.SQLITE_PERM: "access is denied",
    sqlite3.SQLITE_PROTOCOL: "the file system does not lock as it should",
}
_NETWORKED: Final = frozenset(
    {"9p", "afs", "ceph", "cifs", "fuse.sshfs", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4"}
    | {"smb3", "smbfs", "virtiofs"}
)

_T = TypeVar("_T")


def _locked() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(slots=True)
class _Job(Generic[_T]):
    """What one caller wants to write, and what became of it."""

    work: Callable[[sqlite3.Connection], _T]
    done: threading.Lock = field(default_factory=_locked)
    result: _T | None = None
    error: BaseException | None = None


class Database:
    """The file at *path*, or with ``:memory:`` nothing but this process's memory.

    Raises Unavailable for a file that cannot be used, saying why.
    """

    def __init__(self, path: str) -> None:
        check_library()
        self.name = path
        self._memory = threading.RLock() if path == MEMORY else None
        if self._memory is None:
            _refuse_network(Path(path))
        self._fresh()
        with self.errors():
            bring_up_to_date(self._writing(), path)
        _OPEN.add(self)

    @property
    def shared(self) -> bool:
        """Whether other processes may write to it too."""
        return self._memory is None

    def _fresh(self) -> None:
        self._mutex = threading.Lock()
        self._jobs: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._readers: list[sqlite3.Connection] = []
        self._writer: sqlite3.Connection | None = None

    # -- writing -------------------------------------------------------------------------------

    def write(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Do *work* in a transaction, together with that of others, and return what it returns.

        When this returns, it is on the disk; when it raises, nothing of it is done.  *work* may be
        done twice, the first time in vain.  Raises what it raises, and Unavailable.

        A thread of its own does it: a handler's thread may be interrupted anywhere.
        """
        job = _Job(work)
        if self._memory is not None:
            with self._memory:
                self._do([job])
        else:
            if self._thread is None:
                self._start()
            self._jobs.put(job)
            job.done.acquire()
        if job.error is not None:
            raise job.error
        return job.result  # type: ignore[return-value]  # set, as there was no error

    def _start(self) -> None:
        with self._mutex:
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_all, name="sqlite", daemon=True)
                self._thread.start()

    def _write_all(self) -> None:
        """Do what is handed in, as much at a time as has gathered meanwhile."""
        take = self._jobs
        while (job := take.get()) is not None:
            jobs = [job]
            while len(jobs) < _TOGETHER and not take.empty():
                another = take.get_nowait()
                if another is None:
                    take.put(None)
                    break
                jobs.append(another)
            self._do(jobs)
            for job in jobs:
                job.done.release()

    def _do(self, jobs: Sequence[_Job[Any]]) -> None:
        try:
            self._together(jobs)
        except BaseException as error:  # noqa: BLE001  each caller hears of its own
            if len(jobs) == 1:
                jobs[0].error = error
                return
            for job in jobs:  # one of them failed, and the others shall not with it
                self._do([job])

    def _together(self, jobs: Sequence[_Job[Any]]) -> None:
        with self.errors():
            db = self._writing()
            _begin(db)
            try:
                results = [job.work(db) for job in jobs]
                db.execute("COMMIT")
            finally:
                if db.in_transaction:
                    with suppress(sqlite3.Error):  # the first error is the one to tell
                        db.execute("ROLLBACK")
        for job, result in zip(jobs, results, strict=True):
            job.result = result

    # -- reading -------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection for statements that change nothing.  Raises Unavailable."""
        with self.errors():
            if self._memory is not None:
                with self._memory:
                    yield self._writing()
                return
            with self._mutex:
                db = self._readers.pop() if self._readers else None
            db = db or self._opened()
            try:
                yield db
            finally:
                with self._mutex:
                    self._readers.append(db)

    # -- the file ------------------------------------------------------------------------------

    def close(self) -> None:
        """Do what was handed in, and close every connection; nothing may be asked any more."""
        thread = self._thread
        if thread is not None:
            self._jobs.put(None)
            thread.join()
        with self._mutex:
            for db in (self._writer, *self._readers):
                if db is not None:
                    db.close()
            self._readers = []

    def after_fork(self) -> None:
        """Open anew in the child: SQLite's connections must not be carried over a fork.

        Those of the parent are left alone; to close them would let go of its locks.
        """
        if self._memory is None:
            _ABANDONED.append((self._writer, self._readers))
            self._fresh()

    def _writing(self) -> sqlite3.Connection:
        """Return the connection that writes, of which there is one."""
        if self._writer is None:
            self._writer = self._opened()
            self._writer.execute("PRAGMA busy_timeout = 0")  # see _begin
        return self._writer

    def _opened(self) -> sqlite3.Connection:
        if self._memory is None:
            with suppress(FileExistsError):
                _create(self.name)
        db = sqlite3.connect(
            self.name,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA temp_store = MEMORY")
        return db

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn SQLite's errors into Unavailable, with what it means and which file it is."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            code = getattr(error, "sqlite_errorcode", None)
            if code is None or isinstance(error, sqlite3.ProgrammingError | sqlite3.IntegrityError):
                raise
            meaning = _MEANINGS.get(code & 0xFF, str(error))
            raise Unavailable(f"{self.name}: {meaning}") from error
        except OSError as error:
            raise Unavailable(f"{self.name}: {error.strerror or error}") from error


def _begin(db: sqlite3.Connection) -> None:
    """Begin to write, once no other process does.

    SQLite's own wait grows to 100 ms between two looks, which is many transactions.
    """
    deadline = time.monotonic() + _BUSY_SECONDS
    pause = _SHORTEST_PAUSE
    while True:
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            if time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(pause / 2, pause))  # noqa: S311  jitter is no secret
            pause = min(pause * 1.5, _LONGEST_PAUSE)
        else:
            return


def _create(path: str) -> None:
    """Make the file for its owner alone; SQLite gives those beside it the same rights."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _refuse_network(path: Path) -> None:
    """Raise Unavailable where *path* is on a file system that several machines share.

    Write-ahead logging needs memory that all processes share; on such a one SQLite would lose data.
    """
    try:
        mounts = Path("/proc/mounts").read_text().splitlines()
    except OSError:  # not Linux
        return
    where = path.resolve()
    best, kind = -1, ""
    for mount in mounts:
        _, at, of, *_ = mount.split(" ")
        folder = Path(at.encode().decode("unicode_escape"))
        if (folder == where or folder in where.parents) and len(folder.parts) >= best:
            best, kind = len(folder.parts), of
    if kind in _NETWORKED:
        raise Unavailable(f"{path}: is on a network file system ({kind}); use a local disk")


_OPEN: Final[WeakSet[Database]] = WeakSet()
_ABANDONED: Final[list[object]] = []


def _after_fork() -> None:
    for database in list(_OPEN):
        database.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
