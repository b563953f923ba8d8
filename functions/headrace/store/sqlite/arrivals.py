"""Wakes waiting calls when a commit makes a task due, in any process.

Each commit of a waiting task increments the number of its queue, and notifies the waiting calls of
the same process.  For commits of other processes, one of the waiting calls polls
``PRAGMA data_version``: at regular times, and when the file is touched.

A process that has committed sets the times of the file.  On Linux, inotify reports that to the
waiting processes.  No process opens the file for it: closing the file would release SQLite's locks.

A waiting call may park its claim: the transaction of this process that makes a task due then runs
the claim.  So the lease needs no separate commit and sync, and no other call reads the task first.
"""

import ctypes
import errno
import os
import select
import sqlite3
import sys
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from threading import Condition, Lock
from typing import Any, Final, TypeAlias

from headrace.domain.errors import Unavailable
from headrace.domain.times import micros_of
from headrace.store.base import Claim
from headrace.store.sqlite.database import Database

_POLL_SECONDS: Final = 0.002
"""The pause between two polls for commits of other processes, without a watch for touches."""

_WATCHED_POLL_SECONDS: Final = 0.02
"""The same with a watch, for commits that cause no touch here, as on a shared file system."""


_ARRIVED: Final = (
    "INSERT INTO arrivals (queue, number) VALUES (?, 1)"
    " ON CONFLICT (queue) DO UPDATE SET number = number + 1"
)

Arrived: TypeAlias = dict[str, dict[str, int]]
"""Ids of new waiting tasks by queue, each with the microsecond at which it becomes due."""


# ------------------------------------------------------------------------------ touches of the file

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


# ----------------------------------------------------------------------------------------- arrivals


@dataclass(slots=True, eq=False)
class ClaimRun:
    """A claim that runs within a transaction, in the context of the call that created it."""

    claim: Claim
    context: Context = field(default_factory=copy_context)
    running: bool = False  # in a transaction that has not ended
    leased: bool = False
    error: Exception | None = None

    def run(self, database: Database, db: sqlite3.Connection, wake: Callable[[], None]) -> set[str]:
        """Run the claim within the transaction of *db*, and return the ids of the leased tasks.

        An error undoes the writes of the claim and is kept in ``error``; the transaction continues.
        *wake* is called once the transaction has ended.
        """

        def end(committed: bool) -> None:  # noqa: FBT001  the signature of after_transaction()
            try:
                if not committed:
                    self.leased, self.error = False, None
                    self.claim.undo()
            finally:
                self.running = False
                wake()

        self.running, self.error = True, None
        database.after_transaction(end)
        leased = set[str]()
        with database.joined(db) as undo:
            try:
                leased = set(self.context.run(self.claim.claim))
            except Exception as error:  # noqa: BLE001  an error of the claim, not of the writing call
                undo()
                self.claim.undo()
                self.error = error
        self.leased = bool(leased)
        return leased


@dataclass(slots=True, eq=False)
class _ParkedClaim(ClaimRun):
    """The claim of a call that waits in ``queues`` until the monotonic time ``until``."""

    queues: Collection[str] = ()
    until: float = 0.0

    @property
    def is_waiting(self) -> bool:
        """Whether the call still waits; an interrupted call may still be in the list."""
        done = self.running or self.leased or self.error
        return not done and time.monotonic() < self.until


class ArrivalNumbers:
    """The numbers of queues, and the calls that wait for changes of them."""

    def __init__(
        self, db: Database, *, watched_poll_seconds: float = _WATCHED_POLL_SECONDS
    ) -> None:
        self._db = db
        self._watched_poll_seconds = watched_poll_seconds
        self._fresh()
        db.on_fork.append(self._fresh)

    def _fresh(self) -> None:
        # Code enters the lock and not the Condition: entering a Condition takes several steps, and
        # a thread that is interrupted between them would never release it.
        self._lock = Lock()
        self._bell = Condition(self._lock)
        self._rung = 0
        self._parked: list[_ParkedClaim] = []  # in the order of arrival
        self._polling = False
        self._watch: TouchWatch | None = None  # used by the polling call, and kept for the next one
        self._watches = True  # False if the platform cannot watch the file

    def numbers(self, queues: Collection[str]) -> Mapping[str, int]:
        """Return how often tasks have come to wait in each of *queues* that ever had one."""
        with self._db.reading() as db:
            return _numbers(db, queues)

    def ring(self) -> None:
        """Wake the waiting calls of all processes after a commit of this process."""
        if self._db.path is not None:
            touch(self._db.path)
        self._ring_here()

    def _ring_here(self) -> None:
        with self._lock:
            self._rung += 1
            self._bell.notify_all()
            if self._polling and self._watch is not None:
                self._watch.wake()

    def note(self, db: sqlite3.Connection, arrived: Arrived, now: Callable[[], datetime]) -> bool:
        """Count new waiting tasks, within the transaction of *db* that wrote them.

        If one is due, the claim that has been parked for the longest time runs first.  Return
        whether tasks remain for other waiting calls.
        """
        if not arrived:
            return False
        left = arrived
        if (parked := self._first_parked(arrived, now)) is not None:
            leased = parked.run(self._db, db, self._ring_here)
            left = {queue: ids for queue, ids in arrived.items() if not leased.issuperset(ids)}
        db.executemany(_ARRIVED, [(queue,) for queue in left])
        return bool(left)

    def _first_parked(self, arrived: Arrived, now: Callable[[], datetime]) -> _ParkedClaim | None:
        """Return the claim that has been parked longest for any of the tasks that are due."""
        if not self._parked or not self._db.may_be_joined:
            return None
        by = micros_of(now())
        due = {queue for queue, ids in arrived.items() if min(ids.values()) <= by}
        with self._lock:
            for parked in self._parked:
                if parked.is_waiting and not due.isdisjoint(parked.queues):
                    parked.running = True
                    return parked
        return None

    def wait(
        self,
        queues: Collection[str],
        since: Mapping[str, int],
        seconds: float,
        parked: Claim | None = None,
    ) -> Mapping[str, int]:
        """Wait until the numbers of *queues* differ from *since*, or for *seconds*.

        With a file, the transaction of this process that makes a task due runs the claim *parked*.
        The wait ends when the claim leases a task.
        Return the last numbers read.  Raises Unavailable, and any error of *parked*.
        """
        if parked is None or self._db.path is None:
            return self._wait_for_numbers(queues, since, seconds, None)
        own = _ParkedClaim(parked, queues=queues, until=time.monotonic() + seconds)
        try:
            with self._lock:
                self._parked = [one for one in self._parked if one.is_waiting or one.running]
                self._parked.append(own)
            since = self._wait_for_numbers(queues, since, seconds, own)
        except Unavailable:
            self._leave(own)
            if not own.leased:  # its tasks must be delivered
                raise
        finally:
            self._leave(own)
        if own.error is not None:
            raise own.error
        return since

    def _leave(self, parked: _ParkedClaim) -> None:
        """Remove a parked claim, after the end of the transaction that runs it, if any."""
        with self._lock:
            if parked in self._parked:
                self._parked.remove(parked)
            while parked.running:
                self._bell.wait()

    def _wait_for_numbers(
        self,
        queues: Collection[str],
        since: Mapping[str, int],
        seconds: float,
        parked: _ParkedClaim | None,
    ) -> Mapping[str, int]:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            with self._lock:
                rung = self._rung
            if parked is not None and not parked.is_waiting:
                return since
            found = self.numbers(queues)
            if found != since:
                return found
            if self._wait_for_ring(rung, left):
                continue
            try:
                found = self._poll(queues, since, rung, end)
            finally:
                with self._lock:  # another waiting call may poll now
                    self._polling = False
                    self._bell.notify_all()
            if found != since:
                return found
        return since

    def _wait_for_ring(self, rung: int, seconds: float) -> bool:
        """Wait for a ring after *rung*.  Return False immediately if the caller must poll."""
        with self._lock:
            if self._rung != rung:
                return True
            if self._polling or not self._db.shared:
                self._bell.wait(seconds)
                return True
            self._polling = True
            return False

    def _poll(
        self, queues: Collection[str], since: Mapping[str, int], rung: int, end: float
    ) -> Mapping[str, int]:
        """Poll for commits of other processes, until there is one or a ring; return the numbers.

        Data versions of different connections cannot be compared.  So the numbers are read again
        after the first poll and after each change of the connection.
        """
        seen: tuple[sqlite3.Connection, int] | None = None
        watch = self._watch_file()
        while (left := end - time.monotonic()) > 0:
            with self._db.reading() as db:
                (version,) = db.execute("PRAGMA data_version").fetchone()
                changed = seen is not None and (seen[0] is not db or seen[1] != version)
                found = _numbers(db, queues) if changed or seen is None else since
            if changed:
                self._ring_here()
            if changed or found != since:
                return found
            seen = (db, version)
            if self._pause(rung, watch, left):
                break
        return since

    def _pause(self, rung: int, watch: TouchWatch | None, seconds: float) -> bool:
        """Wait until the next poll; return whether there was a ring after *rung*."""
        with self._lock:
            if self._rung == rung and watch is None:
                self._bell.wait(_POLL_SECONDS)
            if self._rung != rung:
                return True
        if watch is not None:
            watch.wait(min(seconds, self._watched_poll_seconds))
        return False

    def _watch_file(self) -> TouchWatch | None:
        """Return the watch of the file, or None if the platform cannot watch it."""
        if self._watch is None and self._watches and self._db.path is not None:
            try:
                self._watch = TouchWatch(self._db.path)
            except OSError as error:
                if error.errno is None:  # a TimeoutError that interrupts this thread
                    raise
                self._watches = False
        return self._watch


def _numbers(db: sqlite3.Connection, queues: Collection[str]) -> dict[str, int]:
    marks = ",".join("?" * len(queues))
    found = db.execute(f"SELECT queue, number FROM arrivals WHERE queue IN ({marks})", list(queues))
    return dict(found.fetchall())
