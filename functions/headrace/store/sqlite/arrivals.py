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
from functools import partial
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
class _WaitingCall:
    """A call that waits for tasks of ``queues`` until the monotonic time ``until``.

    ``bell`` wakes it.  ``run`` is its parked claim, if it has one.
    """

    queues: Collection[str]
    until: float
    bell: Condition
    run: ClaimRun | None

    @property
    def is_over(self) -> bool:
        """Whether the call waits no longer; an interrupted call may still be in the list."""
        return time.monotonic() >= self.until

    @property
    def has_claimed(self) -> bool:
        """Whether its claim runs, has leased tasks or has failed."""
        return self.run is not None and bool(self.run.running or self.run.leased or self.run.error)


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
        self._rung = 0
        self._calls: list[_WaitingCall] = []  # in the order of arrival
        self._poller: _WaitingCall | None = None
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
            for call in self._calls:
                self._wake(call)

    def _wake(self, call: _WaitingCall) -> None:
        """Wake *call*; the caller holds the lock."""
        call.bell.notify()
        if call is self._poller and self._watch is not None:
            self._watch.wake()

    def note(self, db: sqlite3.Connection, arrived: Arrived, now: Callable[[], datetime]) -> bool:
        """Count new waiting tasks, within the transaction of *db* that wrote them.

        If one is due, the claim that has been parked for the longest time runs first.  Return
        whether tasks remain for other waiting calls.
        """
        if not arrived:
            return False
        left = arrived
        if (call := self._first_to_claim(arrived, now)) is not None and call.run is not None:
            leased = call.run.run(self._db, db, partial(self._end_claim, call))
            left = {queue: ids for queue, ids in arrived.items() if not leased.issuperset(ids)}
        db.executemany(_ARRIVED, [(queue,) for queue in left])
        return bool(left)

    def _first_to_claim(self, arrived: Arrived, now: Callable[[], datetime]) -> _WaitingCall | None:
        """Return the call that has waited longest to claim any of the tasks that are due.

        The polling call comes last, because another call would have to take over the polling.
        """
        if not self._calls or not self._db.may_be_joined:
            return None
        by = micros_of(now())
        due = {queue for queue, ids in arrived.items() if min(ids.values()) <= by}
        with self._lock:
            for call in sorted(self._calls, key=lambda one: one is self._poller):
                if call.run is None or call.has_claimed or call.is_over:
                    continue
                if not due.isdisjoint(call.queues):
                    call.run.running = True
                    return call
        return None

    def _end_claim(self, call: _WaitingCall) -> None:
        with self._lock:
            self._wake(call)

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
        run = None if parked is None or self._db.path is None else ClaimRun(parked)
        own = _WaitingCall(queues, time.monotonic() + seconds, Condition(self._lock), run)
        try:
            with self._lock:
                self._calls = [one for one in self._calls if not one.is_over]
                self._calls.append(own)
            since = self._wait_for_numbers(own, since)
        except Unavailable:
            self._leave(own)
            if run is None or not run.leased:  # its tasks must be delivered
                raise
        finally:
            self._leave(own)
        if run is not None and run.error is not None:
            raise run.error
        return since

    def _leave(self, call: _WaitingCall) -> None:
        """Remove *call*, after the end of the transaction that runs its claim, if any."""
        with self._lock:
            if call in self._calls:
                self._calls.remove(call)
            while call.run is not None and call.run.running:
                call.bell.wait()

    def _wait_for_numbers(self, own: _WaitingCall, since: Mapping[str, int]) -> Mapping[str, int]:
        while not own.is_over:
            with self._lock:
                rung = self._rung
            if own.has_claimed:
                return since
            found = self.numbers(own.queues)
            if found != since:
                return found
            if self._wait_for_ring(own, rung):
                continue
            try:
                found = self._poll(own, since, rung)
            finally:
                with self._lock:  # another waiting call may poll now
                    self._poller = None
                    for call in self._calls:
                        call.bell.notify()
            if found != since:
                return found
        return since

    def _wait_for_ring(self, own: _WaitingCall, rung: int) -> bool:
        """Wait for a ring after *rung*.  Return False immediately if the caller must poll."""
        with self._lock:
            if self._rung != rung or own.has_claimed:
                return True
            if self._poller is not None or not self._db.shared:
                own.bell.wait(max(0.0, own.until - time.monotonic()))
                return True
            self._poller = own
            return False

    def _poll(self, own: _WaitingCall, since: Mapping[str, int], rung: int) -> Mapping[str, int]:
        """Poll for commits of other processes, until there is one or a ring; return the numbers.

        Data versions of different connections cannot be compared.  So the numbers are read again
        after the first poll and after each change of the connection.
        """
        seen: tuple[sqlite3.Connection, int] | None = None
        watch = self._watch_file()
        while not own.is_over:
            with self._db.reading() as db:
                (version,) = db.execute("PRAGMA data_version").fetchone()
                changed = seen is not None and (seen[0] is not db or seen[1] != version)
                found = _numbers(db, own.queues) if changed or seen is None else since
            if changed:
                self._ring_here()
            if changed or found != since:
                return found
            seen = (db, version)
            if self._pause(own, rung, watch):
                break
        return since

    def _pause(self, own: _WaitingCall, rung: int, watch: TouchWatch | None) -> bool:
        """Wait until the next poll; return whether there was a ring after *rung* or a claim."""
        with self._lock:
            if self._rung == rung and not own.has_claimed and watch is None:
                own.bell.wait(_POLL_SECONDS)
            if self._rung != rung or own.has_claimed:
                return True
        if watch is not None:
            seconds = min(own.until - time.monotonic(), self._watched_poll_seconds)
            watch.wait(max(0.0, seconds))
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
