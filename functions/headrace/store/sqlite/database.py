"""One SQLite file: its connections, and its transactions.

Callers of a process hand what they write to one thread, which does what has gathered in one
transaction, so one sync to the disk serves many.  Readers have connections of their own, and
neither wait for a writer nor hold one up.

Long, because whoever judges whether a write is safe has to see all that begins, joins, ends and
undoes a transaction.
"""

import os
import sqlite3
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

from headrace.domain.errors import Unavailable
from headrace.store.sqlite import forks
from headrace.store.sqlite.failures import Unusable, errors
from headrace.store.sqlite.location import Identity, check_same, create, refuse_network
from headrace.store.sqlite.schema import (
    WAIT_SECONDS,
    begin,
    bring_up_to_date,
    check_library,
    empty_tables,
    roll_back,
)

MEMORY: Final = ":memory:"
_TOGETHER: Final = 64  # callers whose work is done in one transaction
_IDLE_READERS: Final = 8  # connections that are kept while nobody reads
_LOOK_SECONDS: Final = 0.5  # between two looks of readers whether the file is still the same
_LARGEST_LOG: Final = 64 * 1024 * 1024  # bytes that the log beside the file keeps after a burst

_T = TypeVar("_T")


def _locked() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(slots=True)
class _WriterJob(Generic[_T]):
    """What one caller wants to write, and what became of it."""

    work: Callable[[sqlite3.Connection], _T]
    lazy: bool = False
    done: threading.Lock = field(default_factory=_locked)
    result: _T | None = None
    error: BaseException | None = None


class Database:
    """The file at *path*, or with ``:memory:`` nothing but this process's memory.

    Raises Unusable for a file that cannot be used, saying why.
    """

    def __init__(self, path: str) -> None:
        check_library()
        self.name = path
        # Settled now: readers are opened later, and somebody may change the folder meanwhile.
        self._path = None if path == MEMORY else Path(os.path.realpath(path))
        self._errors = errors(path, self._path)
        self._identity: Identity | None = None
        self._closed = False
        self._carried_over = False
        self._checked_until = 0.0
        self.on_fork: list[Callable[[], None]] = []  # in the child
        self._fresh()
        with self._errors:
            if self._path is not None:
                refuse_network(path, self._path)
                self._identity = create(path, self._path)
            self._writing()
        forks.watch(self)

    @property
    def path(self) -> Path | None:
        """Where the file is; None where there is none."""
        return self._path

    @property
    def shared(self) -> bool:
        """Whether other processes may write to it too."""
        return self._path is not None

    def _fresh(self) -> None:
        self._gate = threading.Lock()  # what begins passes through it
        self._memory = threading.RLock()
        self._mutex = threading.Lock()  # of what follows
        self._jobs: SimpleQueue[_WriterJob[Any] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._readers: list[sqlite3.Connection] = []
        self._lent: set[object] = set()  # a token for each reader
        self._writer_mutex = threading.Lock()  # of the connection that writes
        self._writer: sqlite3.Connection | None = None
        self._lazy = False  # what it commits is not synced
        self._joined: tuple[int, sqlite3.Connection] | None = None  # a thread, and what it is in
        self._outcomes: list[Callable[[bool], None]] = []  # hear of the transaction under way

    # -- writing -------------------------------------------------------------------------------

    def write(self, work: Callable[[sqlite3.Connection], _T], *, lazy: bool = False) -> _T:
        """Do *work* in a transaction, together with that of others, and return what it returns.

        When this returns, it is on the disk; when it raises, nothing of it is done.  (Except that
        what interrupts the caller leaves that open.)  *work* may be done twice, the first time in
        vain.  Raises what it raises, and Unavailable.

        Work that is *lazy* is on the disk when the next that is not has returned, of whatever
        process; a crash of the machine before that undoes it.

        A thread of its own does it: a handler's thread may be interrupted anywhere.
        """
        within = self._within()
        if within is not None:
            return self._written_within(within, work)
        job = _WriterJob(work, lazy)
        if self._path is None:
            self._pass_gate()
            with self._memory:
                self._check_open()
                self._do([job])
        else:
            with self._mutex:  # what is handed in before it is closed is done
                self._check_open()
                if self._thread is None:
                    self._thread = self._started()
                self._jobs.put(job)
            job.done.acquire()
        if job.error is not None:
            try:
                raise job.error
            finally:
                del job  # which would hold the error, which holds this frame
        return job.result  # type: ignore[return-value]  # set, as there was no error

    def _started(self) -> threading.Thread:
        # It holds no database while it waits, or none would ever be let go of.
        known = (weakref.ref(self), self._jobs)
        thread = threading.Thread(target=_take_jobs, args=known, name="sqlite", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise Unavailable(f"{self.name}: {error}") from error
        return thread

    def _check_open(self) -> None:
        if self._closed or sys.is_finalizing():  # no thread would do it
            raise Unavailable(f"{self.name}: it is closed")
        if self._carried_over:
            raise Unusable(
                f"{self.name}: it was in use when this process was forked; open it in a new one"
            )

    def write_all(
        self, jobs: "list[_WriterJob[Any]]", gather: "Callable[[list[_WriterJob[Any]]], None]"
    ) -> None:
        """Do *jobs* together, and what *gather* adds to them; for the thread that writes."""
        self._pass_gate()
        with self._writer_mutex:
            self._do(jobs, gather)

    def _do(
        self,
        jobs: list[_WriterJob[Any]],
        gather: Callable[[list[_WriterJob[Any]]], None] | None = None,
    ) -> None:
        """Do *jobs* in one transaction, or each in its own where one of them fails.

        What comes while another process holds the file is *gathered* too, if that will be synced.
        """
        try:
            with self._errors:
                db = self._writing()
                self._check_same_file()
                lazy = all(job.lazy for job in jobs)
                self._sync(db, lazy=lazy)
                begin(db)
                if gather is not None and not lazy:
                    gather(jobs)
        except BaseException as error:  # noqa: BLE001  of nobody's work: each caller hears of it
            for job in jobs:
                job.error = type(error)(str(error)) if isinstance(error, Unavailable) else error
            return
        try:
            with self._errors:
                self._together(db, jobs)
        except BaseException as error:  # noqa: BLE001  each caller hears of its own
            if self._path is not None:
                self._drop_writer()
            if len(jobs) == 1:
                jobs[0].error = error
                return
            for job in jobs:
                self._do([job])

    def _sync(self, db: sqlite3.Connection, *, lazy: bool) -> None:
        """Let the next transaction reach the disk, or if it is *lazy* only the log beside the file.

        The log has it in order: whatever syncs a later transaction syncs this one.
        """
        if lazy != self._lazy and self._path is not None:
            db.execute(f"PRAGMA synchronous = {'NORMAL' if lazy else 'FULL'}")
            self._lazy = lazy

    def _together(self, db: sqlite3.Connection, jobs: Sequence[_WriterJob[Any]]) -> None:
        stands = False
        try:
            for job in jobs:
                job.result = job.work(db)
            db.execute("COMMIT")  # nothing may come after it: what is done must not be done again
            stands = True
        finally:
            roll_back(db)
            outcomes, self._outcomes = self._outcomes, []
            for tell in outcomes:
                with suppress(Exception):  # what is done must not be done again
                    tell(stands)

    @contextmanager
    def joined(self, db: sqlite3.Connection) -> Iterator[Callable[[], None]]:
        """Make what this thread reads and writes in the block a part of the transaction of *db*.

        For work that is being done in that transaction.  What the block is given undoes all that
        was done in it so far.  Raises what the block raises, and Unavailable where the transaction
        cannot go on: all of it is to fail then.
        """
        with self._errors:
            db.execute("SAVEPOINT joined")
            self._joined = (threading.get_ident(), db)
            try:
                yield lambda: _undo(db, "joined")
            finally:
                self._joined = None
            self._check_under_way(db)
            db.execute("RELEASE joined")

    @property
    def may_be_joined(self) -> bool:
        """Whether the transaction that is under way is synced, and nobody has joined it."""
        return self._joined is None and not self._lazy

    def when_over(self, tell: Callable[[bool], None]) -> None:
        """Call *tell* with whether the transaction stands, once the one under way is over.

        In a block of joined(), or in work that is being done.  *tell* must not take long.
        """
        self._outcomes.append(tell)

    def once_it_stands(self, tell: Callable[[], None]) -> None:
        """Call *tell* now; in a block of joined() once the transaction stands."""
        if self._within() is None:
            tell()
        else:
            self.when_over(lambda stands: tell() if stands else None)

    def _within(self) -> sqlite3.Connection | None:
        """Return the connection of the transaction that this thread has joined."""
        joined = self._joined
        return joined[1] if joined is not None and joined[0] == threading.get_ident() else None

    def _written_within(
        self, db: sqlite3.Connection, work: Callable[[sqlite3.Connection], _T]
    ) -> _T:
        with self._errors:
            self._check_under_way(db)
            db.execute("SAVEPOINT written")
            try:
                result = work(db)
                db.execute("RELEASE written")
            except BaseException:
                _undo(db, "written")
                raise
            return result

    def _check_under_way(self, db: sqlite3.Connection) -> None:
        """Raise Unavailable where an error of SQLite's has undone all of a transaction."""
        if not db.in_transaction:  # what comes now would be one of its own
            raise Unavailable(f"{self.name}: all of a write is undone")

    def _check_same_file(self) -> None:
        if self._path is not None:
            check_same(self.name, self._path, self._identity)

    # -- reading -------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection for statements that change nothing.  Raises Unavailable."""
        with self._errors:
            within = self._within()
            if within is not None:
                self._check_under_way(within)
                yield within
                return
            self._pass_gate()
            if time.monotonic() > self._checked_until:  # each write looks by itself
                self._check_same_file()
                self._checked_until = time.monotonic() + _LOOK_SECONDS
            if self._path is None:
                with self._memory:
                    self._check_open()
                    yield self._writing()
                return
            token = object()
            try:
                db = self._borrowed(token)
                try:
                    yield db
                except BaseException:
                    # A statement may be half read, and keep this connection at an old state.
                    db.close()
                    raise
                self._take_back(db)
            finally:
                self._lent.discard(token)

    def _borrowed(self, token: object) -> sqlite3.Connection:
        with self._mutex:
            self._check_open()
            self._lent.add(token)
            if self._readers:
                return self._readers.pop()
        db = self._connected()
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

    # -- the file ------------------------------------------------------------------------------

    def close(self) -> None:
        """Do what was handed in, and close every connection; what is asked later is refused."""
        with self._mutex:
            self._closed = True
            thread, self._thread = self._thread, None
            if thread is not None:
                self._jobs.put(None)
        if thread is not None:
            thread.join()
        with self._memory, self._writer_mutex, self._mutex:
            self._drop_connections()

    def __del__(self) -> None:
        """Close what nobody closed: all that was handed in is done, or its caller would be here."""
        with suppress(AttributeError, sqlite3.Error):
            self._jobs.put(None)
            self._drop_connections()

    def _drop_connections(self) -> None:
        self._drop_writer()
        for db in self._readers:
            db.close()
        self._readers = []

    def _drop_writer(self) -> None:
        db, self._writer = self._writer, None
        if db is not None:
            db.close()

    def _writing(self) -> sqlite3.Connection:
        """Return the connection that writes, of which there is one."""
        if self._writer is None:
            db = self._connected()
            try:
                if self._path is None:
                    empty_tables().backup(db)
                else:
                    bring_up_to_date(db, self.name)
                db.execute("PRAGMA synchronous = FULL")
                db.execute("PRAGMA fullfsync = ON")  # macOS: a sync that reaches the disk
                db.execute("PRAGMA checkpoint_fullfsync = ON")
                db.execute(f"PRAGMA journal_size_limit = {_LARGEST_LOG}")
                db.execute("PRAGMA busy_timeout = 0")  # see patiently()
            except BaseException:
                db.close()
                raise
            self._writer, self._lazy = db, False
        return self._writer

    def _connected(self) -> sqlite3.Connection:
        # As an address, which makes no file where there is none.
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

    # -- forks ---------------------------------------------------------------------------------

    def hold(self) -> None:
        """Let nothing begin until ``go_on()``."""
        self._gate.acquire()

    def try_quiet(self) -> bool:
        """Close what is open, until ``go_on()``; tell whether so: not while it is used."""
        locks = (self._memory, self._writer_mutex, self._mutex)
        held = [lock for lock in locks if lock.acquire(blocking=False)]
        if len(held) == len(locks) and not self._lent:
            if self._path is not None:
                self._drop_connections()
            return True
        for lock in held:
            lock.release()
        return False

    def go_on(self, *, quiet: bool) -> None:
        """Let it be used again, in the process that was forked."""
        if quiet:
            for lock in (self._memory, self._writer_mutex, self._mutex):
                lock.release()
        self._gate.release()

    def begin_anew(self, *, quiet: bool) -> None:
        """Begin anew in the child of a fork; connections that it was not *quiet* of are no use."""
        writer, readers = self._writer, self._readers
        self._fresh()
        if self._path is None:
            self._writer = writer  # memory is the child's own
        else:
            forks.ABANDONED.append((writer, readers))
            self._carried_over = self._carried_over or not quiet
        for begin_anew in self.on_fork:
            begin_anew()


def _undo(db: sqlite3.Connection, savepoint: str) -> None:
    """Undo what was done since *savepoint*; all of the transaction where that cannot be."""
    if db.in_transaction:
        try:
            db.execute(f"ROLLBACK TO {savepoint}")
        except BaseException:
            roll_back(db)
            raise


def _take_jobs(known: weakref.ref[Database], take: SimpleQueue[_WriterJob[Any] | None]) -> None:
    """Do what is handed in, as much at a time as has gathered meanwhile."""

    def gather(jobs: list[_WriterJob[Any]]) -> None:
        while len(jobs) < _TOGETHER and not take.empty():
            another = take.get_nowait()
            if another is None:
                take.put(None)
                return
            jobs.append(another)

    while (job := take.get()) is not None:
        jobs = [job]
        gather(jobs)
        database = known()
        if database is None:  # whoever handed it in was interrupted, and waits no more
            return
        try:
            database.write_all(jobs, gather)
        except BaseException as error:  # noqa: BLE001  each caller hears of it, and the next is served
            for job in jobs:
                job.error = job.error or error
        del database
        for job in jobs:
            job.done.release()
        del job, jobs  # what came of it is the callers'
