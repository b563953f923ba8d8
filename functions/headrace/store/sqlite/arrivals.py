"""Who waits for tasks of a queue is woken by the commit that makes one due, in whatever process.

Each commit that brings a task to wait counts up its queue's number.  Within the process a bell
rings; of other processes' commits ``PRAGMA data_version`` tells, which one of those who wait asks
when the file is touched (see ``touches``), and now and then.

Who waits longest in the process that writes may look within that very transaction: what it takes
is leased by the commit that brings it, with no other commit and sync behind it, and nobody else
looks for it.
"""

import sqlite3
import time
from collections.abc import Callable, Collection, Mapping
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from datetime import datetime
from threading import Condition, Lock
from typing import Final, TypeAlias

from headrace.domain.errors import Unavailable
from headrace.domain.times import micros_of
from headrace.store.base import EarlyLook
from headrace.store.sqlite.database import Database
from headrace.store.sqlite.touches import TouchWatch, touch

_ASK_SECONDS: Final = 0.002
"""How often others' commits are asked after while somebody waits, where no touch tells of them."""

_ASK_ALL_THE_SAME_SECONDS: Final = 0.02
"""The same where touches do, but maybe not all: of a file system that is another's, say."""


_ARRIVED: Final = (
    "INSERT INTO arrivals (queue, number) VALUES (?, 1)"
    " ON CONFLICT (queue) DO UPDATE SET number = number + 1"
)

Arrived: TypeAlias = dict[str, dict[str, int]]
"""Ids of tasks that came to wait, by queue, each with the microsecond from which on it is due."""


@dataclass(slots=True, eq=False)
class _Waiter:
    """Somebody who waits, and how far its early look has come."""

    queues: Collection[str]
    early: EarlyLook
    until: float  # seconds of the monotonic clock
    context: Context = field(default_factory=copy_context)
    looking: bool = False  # within a transaction that is not over
    took: bool = False
    error: Exception | None = None

    @property
    def waits(self) -> bool:
        """Whether it still does; who was interrupted may have left it here."""
        over = self.looking or self.took or self.error
        return not over and time.monotonic() < self.until

    def look(self) -> Collection[str]:
        return self.context.run(self.early.look)


class ArrivalNumbers:
    """The numbers of queues, and a bell."""

    def __init__(
        self, db: Database, *, all_the_same_seconds: float = _ASK_ALL_THE_SAME_SECONDS
    ) -> None:
        self._db = db
        self._all_the_same_seconds = all_the_same_seconds
        self._fresh()
        db.on_fork.append(self._fresh)

    def _fresh(self) -> None:
        # Entered by itself: a thread that is interrupted within the entry of a Condition, which
        # is no single step, would never leave it.
        self._lock = Lock()
        self._bell = Condition(self._lock)
        self._rung = 0
        self._waiters: list[_Waiter] = []  # with an early look, the longest first
        self._asking = False
        self._watch: TouchWatch | None = None  # of whoever asks; kept for the next
        self._watches = True  # whether there can be one

    def numbers(self, queues: Collection[str]) -> Mapping[str, int]:
        """Return how often tasks have come to wait in each of *queues* that ever had one."""
        with self._db.reading() as db:
            return _numbers(db, queues)

    def ring(self) -> None:
        """Let those who wait look again, in whatever process: something was committed here."""
        if self._db.path is not None:
            touch(self._db.path)
        self._ring_here()

    def _ring_here(self) -> None:
        with self._lock:
            self._rung += 1
            self._bell.notify_all()
            if self._asking and self._watch is not None:
                self._watch.wake()

    def came(self, db: sqlite3.Connection, arrived: Arrived, now: Callable[[], datetime]) -> bool:
        """Count that tasks came to wait, within the transaction of *db* that brings them.

        Whoever waits for them looks first, if any is due.  Return whether some are left, so that
        others are to know.
        """
        if not arrived:
            return False
        left = arrived
        if (waiter := self._first_for(arrived, now)) is not None:
            taken = set(self._looked(db, waiter))
            left = {queue: ids for queue, ids in arrived.items() if not taken.issuperset(ids)}
        db.executemany(_ARRIVED, [(queue,) for queue in left])
        return bool(left)

    def _first_for(self, arrived: Arrived, now: Callable[[], datetime]) -> _Waiter | None:
        """Return who has waited longest for any of the tasks that are due, to look early."""
        if not self._waiters or not self._db.may_be_joined:
            return None
        by = micros_of(now())
        due = {queue for queue, ids in arrived.items() if min(ids.values()) <= by}
        with self._lock:
            for waiter in self._waiters:
                if waiter.waits and not due.isdisjoint(waiter.queues):
                    waiter.looking = True
                    return waiter
        return None

    def _looked(self, db: sqlite3.Connection, waiter: _Waiter) -> Collection[str]:
        """Let *waiter* look within the transaction of *db*, and hear when that is over."""

        def over(stands: bool) -> None:  # noqa: FBT001  what every outcome is told
            try:
                if not stands:
                    waiter.took, waiter.error = False, None
                    waiter.early.undo()
            finally:
                waiter.looking = False
                self._ring_here()

        self._db.when_over(over)
        with self._db.joined(db) as undo:
            try:
                taken = waiter.look()
            except Exception as error:  # noqa: BLE001  of whoever waits, not of whoever writes
                undo()
                waiter.early.undo()
                waiter.error, taken = error, ()
        waiter.took = bool(taken)
        return taken

    def wait(
        self,
        queues: Collection[str],
        since: Mapping[str, int],
        seconds: float,
        early: EarlyLook | None = None,
    ) -> Mapping[str, int]:
        """Wait until the numbers of *queues* are not *since* any more, or for *seconds*.

        In a file *early* looks within the transaction that brings a task of this process; if it
        took some, that ends the wait too.
        Return the numbers seen last.  Raises Unavailable, and what *early* raises.
        """
        if early is None or self._db.path is None:
            return self._waited(queues, since, seconds, None)
        waiter = _Waiter(queues, early, time.monotonic() + seconds)
        try:
            with self._lock:
                self._waiters = [one for one in self._waiters if one.waits or one.looking]
                self._waiters.append(waiter)
            since = self._waited(queues, since, seconds, waiter)
        except Unavailable:
            self._leave(waiter)
            if not waiter.took:  # or it was leased for nobody
                raise
        finally:
            self._leave(waiter)
        if waiter.error is not None:
            raise waiter.error
        return since

    def _leave(self, waiter: _Waiter) -> None:
        """Let *waiter* be looked for no more, once it is known what its look has come to."""
        with self._lock:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            while waiter.looking:
                self._bell.wait()

    def _waited(
        self,
        queues: Collection[str],
        since: Mapping[str, int],
        seconds: float,
        waiter: _Waiter | None,
    ) -> Mapping[str, int]:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            with self._lock:
                rung = self._rung
            if waiter is not None and not waiter.waits:
                return since
            found = self.numbers(queues)
            if found != since:
                return found
            if self._waited_for_bell(rung, left):
                continue
            try:
                found = self._ask(queues, since, rung, end)
            finally:
                with self._lock:  # let another of those who wait ask
                    self._asking = False
                    self._bell.notify_all()
            if found != since:
                return found
        return since

    def _waited_for_bell(self, rung: int, seconds: float) -> bool:
        """Wait until it has rung; False: it is for the caller to ask after others' commits."""
        with self._lock:
            if self._rung != rung:
                return True
            if self._asking or not self._db.shared:
                self._bell.wait(seconds)
                return True
            self._asking = True
            return False

    def _ask(
        self, queues: Collection[str], since: Mapping[str, int], rung: int, end: float
    ) -> Mapping[str, int]:
        """Look for others' commits until there is one, or the bell has rung; return the numbers.

        Each connection counts them in its own way, so a connection is compared with itself, and
        the numbers are read once more behind the first look.
        """
        seen: tuple[sqlite3.Connection, int] | None = None
        watch = self._watched()
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
            if self._rests(rung, watch, left):
                break
        return since

    def _rests(self, rung: int, watch: TouchWatch | None, seconds: float) -> bool:
        """Rest until it is time to ask again; tell whether the bell has rung."""
        with self._lock:
            if self._rung == rung and watch is None:
                self._bell.wait(_ASK_SECONDS)
            if self._rung != rung:
                return True
        if watch is not None:
            watch.wait(min(seconds, self._all_the_same_seconds))
        return False

    def _watched(self) -> TouchWatch | None:
        """Return what tells of touches from now on; None where nothing does."""
        if self._watch is None and self._watches and self._db.path is not None:
            try:
                self._watch = TouchWatch(self._db.path)
            except OSError as error:
                if error.errno is None:  # thrown into this thread
                    raise
                self._watches = False
        return self._watch


def _numbers(db: sqlite3.Connection, queues: Collection[str]) -> dict[str, int]:
    marks = ",".join("?" * len(queues))
    found = db.execute(f"SELECT queue, number FROM arrivals WHERE queue IN ({marks})", list(queues))
    return dict(found.fetchall())
