"""Transactions on one SQLite file.

The callers of a process hand their writes to one thread.  It makes all writes that have gathered in
one transaction, so that one sync to the disk serves many callers.  Readers have connections of
their own: they neither wait for a writer nor delay it.
"""

import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

from headrace.domain.errors import Unavailable
from headrace.store.sqlite.connections import Connections
from headrace.store.sqlite.schema import begin, roll_back

_TOGETHER: Final = 64  # writes in one transaction

_T = TypeVar("_T")


def _locked() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(slots=True)
class _WriterJob(Generic[_T]):
    """The write of one caller, and its result or error."""

    work: Callable[[sqlite3.Connection], _T]
    lazy: bool = False
    done: threading.Lock = field(default_factory=_locked)
    result: _T | None = None
    error: BaseException | None = None


class Database(Connections):
    """The database at *path*; see Connections."""

    def _reset(self) -> None:
        super()._reset()
        self._jobs: SimpleQueue[_WriterJob[Any] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._joined: tuple[int, sqlite3.Connection] | None = None  # a thread, and its transaction
        self._outcomes: list[Callable[[bool], None]] = []  # called after the transaction under way

    # -- writing -------------------------------------------------------------------------------

    def write(self, work: Callable[[sqlite3.Connection], _T], *, lazy: bool = False) -> _T:
        """Run *work* in a transaction with the work of other callers, and return its result.

        The write is on the disk when this returns.  If this raises, nothing was written, unless an
        interrupt of the caller raised.  *work* may run twice if the first transaction fails.
        Raises the errors of *work*, and Unavailable.

        *lazy* work is on the disk when the next work that is not lazy has returned, in any
        process.  A crash of the machine before that undoes it.

        The writing thread runs the work, because a handler's thread may be interrupted anywhere.
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
            with self._mutex:  # every job that is queued before close() is done
                self._check_open()
                if self._thread is None:
                    self._thread = self._start_thread()
                self._jobs.put(job)
            job.done.acquire()
        if job.error is not None:
            try:
                raise job.error
            finally:
                del job  # it refers to the error, and the error to this frame
        return job.result  # type: ignore[return-value]  # set, as there was no error

    def _start_thread(self) -> threading.Thread:
        # The thread has no strong reference while it waits, so that a database can be collected.
        known = (weakref.ref(self), self._jobs)
        thread = threading.Thread(target=_take_jobs, args=known, name="sqlite", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise Unavailable(f"{self.name}: {error}") from error
        return thread

    def write_all(
        self, jobs: "list[_WriterJob[Any]]", gather: "Callable[[list[_WriterJob[Any]]], None]"
    ) -> None:
        """Do *jobs* and the jobs that *gather* adds in one transaction, in the writing thread."""
        self._pass_gate()
        with self._writer_mutex:
            self._do(jobs, gather)

    def _do(
        self,
        jobs: list[_WriterJob[Any]],
        gather: Callable[[list[_WriterJob[Any]]], None] | None = None,
    ) -> None:
        """Do *jobs* in one transaction, or each in a separate transaction if one fails.

        Jobs that come while another process locks the file are *gathered* too, if the transaction
        is synced.
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
        except BaseException as error:  # noqa: BLE001  every caller gets the error
            for job in jobs:
                job.error = type(error)(str(error)) if isinstance(error, Unavailable) else error
            return
        try:
            with self._errors:
                self._together(db, jobs)
        except BaseException as error:  # noqa: BLE001  each caller gets its own error
            if self._path is not None:
                self._drop_writer()
            if len(jobs) == 1:
                jobs[0].error = error
                return
            for job in jobs:
                self._do([job])

    def _sync(self, db: sqlite3.Connection, *, lazy: bool) -> None:
        """Sync the next transaction to the disk, or if it is *lazy* only write it to the log.

        The log keeps the order: the sync of a later transaction syncs this transaction too.
        """
        if lazy != self._lazy and self._path is not None:
            db.execute(f"PRAGMA synchronous = {'NORMAL' if lazy else 'FULL'}")
            self._lazy = lazy

    def _together(self, db: sqlite3.Connection, jobs: Sequence[_WriterJob[Any]]) -> None:
        stands = False
        try:
            for job in jobs:
                job.result = job.work(db)
            db.execute("COMMIT")  # no error may follow, or the jobs would be done again
            stands = True
        finally:
            roll_back(db)
            outcomes, self._outcomes = self._outcomes, []
            for tell in outcomes:
                with suppress(Exception):  # an error would do the jobs again
                    tell(stands)

    @contextmanager
    def joined(self, db: sqlite3.Connection) -> Iterator[Callable[[], None]]:
        """Make what this thread reads and writes in the block a part of the transaction of *db*.

        Only for work within that transaction.  The block gets a function that undoes all writes of
        the block so far.  Raises Unavailable if the transaction cannot continue; then all of it
        must fail.
        """
        with self._errors:
            db.execute("SAVEPOINT joined")
            outer, self._joined = self._joined, (threading.get_ident(), db)
            try:
                yield lambda: _undo(db, "joined")
            finally:
                self._joined = outer
            self._check_under_way(db)
            db.execute("RELEASE joined")

    @property
    def may_be_joined(self) -> bool:
        """Whether the current transaction is synced, and no thread has joined it."""
        return self._joined is None and not self._lazy

    def after_transaction(self, notify: Callable[[bool], None]) -> None:
        """Call *notify* with True after the commit of the current transaction, or False.

        Only in a block of joined() or in the work of write().  *notify* must not take long.
        """
        self._outcomes.append(notify)

    def after_commit(self, notify: Callable[[], None]) -> None:
        """Call *notify* now; in a block of joined(), call it after the commit."""
        if self._within() is None:
            notify()
        else:
            self.after_transaction(lambda committed: notify() if committed else None)

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
        """Raise Unavailable if an error of SQLite has undone the whole transaction."""
        if not db.in_transaction:  # the next statement would begin another transaction
            raise Unavailable(f"{self.name}: the whole write was undone")

    # -- reading -------------------------------------------------------------------------------

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """Lend a connection for statements that change nothing.  Raises Unavailable.

        In a block of joined() the connection of that transaction.
        """
        within = self._within()
        return self._reader() if within is None else self._reader_within(within)

    @contextmanager
    def _reader_within(self, db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
        with self._errors:
            self._check_under_way(db)
            yield db

    # -- closing -------------------------------------------------------------------------------

    def close(self) -> None:
        """Do the queued jobs and close every connection; later calls are refused."""
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
        """Close the connections; no job is queued, because its caller would refer to this."""
        with suppress(AttributeError, sqlite3.Error):
            self._jobs.put(None)
            self._drop_connections()


def _undo(db: sqlite3.Connection, savepoint: str) -> None:
    """Undo everything since *savepoint*, or the whole transaction if that is impossible."""
    if db.in_transaction:
        try:
            db.execute(f"ROLLBACK TO {savepoint}")
        except BaseException:
            roll_back(db)
            raise


def _take_jobs(known: weakref.ref[Database], take: SimpleQueue[_WriterJob[Any] | None]) -> None:
    """Do queued jobs, as many in one transaction as have gathered."""

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
        if database is None:  # its caller was interrupted, and does not wait
            return
        try:
            database.write_all(jobs, gather)
        except BaseException as error:  # noqa: BLE001  every caller gets the error
            for job in jobs:
                job.error = job.error or error
        del database
        for job in jobs:
            job.done.release()
        del job, jobs  # the callers have the results
