"""Waiting calls are woken by the commit that makes a task due, in any process.

Each commit of a task that waits counts up the number of its queue.  Within the process a bell
rings.  ``PRAGMA data_version`` tells of commits of other processes.  One of the waiting calls asks
for it when the file is touched (see ``touches``), and now and then.

A call of the process that writes may park its claim: it then runs in the transaction that makes a
task due.  So the lease needs no commit and sync of its own, and no other call looks for it.
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
from headrace.store.base import Claim
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
class ClaimRun:
    """A claim that runs within a transaction, in the context of the call that made it."""

    claim: Claim
    context: Context = field(default_factory=copy_context)
    running: bool = False  # in a transaction that has not ended
    leased: bool = False
    error: Exception | None = None

    def run(self, database: Database, db: sqlite3.Connection, wake: Callable[[], None]) -> set[str]:
        """Run the claim within the transaction of *db*, and return the ids of what it leased.

        An error undoes what the claim wrote and is kept in ``error``: the transaction goes on.
        *wake* is called once the transaction has ended.
        """

        def end(stands: bool) -> None:  # noqa: FBT001  the signature of when_over()
            try:
                if not stands:
                    self.leased, self.error = False, None
                    self.claim.undo()
            finally:
                self.running = False
                wake()

        self.running, self.error = True, None
        database.when_over(end)
        leased = set[str]()
        with database.joined(db) as undo:
            try:
                leased = set(self.context.run(self.claim.claim))
            except Exception as error:  # noqa: BLE001  of the claim, not of the caller that writes
                undo()
                self.claim.undo()
                self.error = error
        self.leased = bool(leased)
        return leased


@dataclass(slots=True, eq=False)
class _ParkedClaim(ClaimRun):
    """The claim of a call that waits for tasks of *queues*, *until* a second of the clock."""

    queues: Collection[str] = ()
    until: float = 0.0

    @property
    def waits(self) -> bool:
        """Whether the call still waits; it may have been interrupted without leaving."""
        over = self.running or self.leased or self.error
        return not over and time.monotonic() < self.until


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
        self._parked: list[_ParkedClaim] = []  # the longest first
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

    def note(self, db: sqlite3.Connection, arrived: Arrived, now: Callable[[], datetime]) -> bool:
        """Count tasks that have become due or wait, within the transaction of *db* that wrote them.

        If one is due, the claim that has been parked for the longest time runs first.  Return
        whether it has left tasks for other waiting calls.
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
                if parked.waits and not due.isdisjoint(parked.queues):
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
        """Wait until the numbers of *queues* are not *since* any more, or for *seconds*.

        In a file the claim *parked* runs in the transaction of this process that makes a task due.
        The wait ends when it leases a task.
        Return the numbers seen last.  Raises Unavailable, and what *parked* raises.
        """
        if parked is None or self._db.path is None:
            return self._waited(queues, since, seconds, None)
        own = _ParkedClaim(parked, queues=queues, until=time.monotonic() + seconds)
        try:
            with self._lock:
                self._parked = [one for one in self._parked if one.waits or one.running]
                self._parked.append(own)
            since = self._waited(queues, since, seconds, own)
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
        """Take a claim out, once the transaction that it may run in has ended."""
        with self._lock:
            if parked in self._parked:
                self._parked.remove(parked)
            while parked.running:
                self._bell.wait()

    def _waited(
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
            if parked is not None and not parked.waits:
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
