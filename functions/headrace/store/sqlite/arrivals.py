"""Who waits for tasks of a queue is woken by the commit that makes one due, in whatever process.

Each commit that brings a task to wait counts up its queue's number.  Within the process a bell
rings; of other processes' commits ``PRAGMA data_version`` tells, which one of those who wait asks.
"""

import sqlite3
import time
from collections.abc import Collection, Mapping
from threading import Condition
from typing import Final

from headrace.store.sqlite.database import Database

_ASK_SECONDS: Final = 0.002
"""How often others' commits are asked after while somebody waits; it takes some microseconds."""


class Arrivals:
    """The numbers of queues, and a bell."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._bell = Condition()
        self._rung = 0
        self._asking = False
        self._version: int | None = None

    def numbers(self, queues: Collection[str]) -> Mapping[str, int]:
        """Return how often tasks have come to wait in each of *queues* that ever had one."""
        marks = ",".join("?" * len(queues))
        with self._db.reading() as db:
            return dict(
                db.execute(
                    f"SELECT queue, number FROM arrivals WHERE queue IN ({marks})", list(queues)
                ).fetchall()
            )

    def ring(self) -> None:
        """Let those who wait look again."""
        with self._bell:
            self._rung += 1
            self._bell.notify_all()

    def wait(self, queues: Collection[str], since: Mapping[str, int], seconds: float) -> None:
        """Return once the numbers of *queues* are not *since* any more, or after *seconds*."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            with self._bell:
                rung = self._rung
            if self.numbers(queues) != since:
                return
            self._wait_for_bell(rung, left)

    def _wait_for_bell(self, rung: int, seconds: float) -> None:
        with self._bell:
            if self._rung != rung:
                return
            if self._asking or not self._db.shared:
                self._bell.wait(seconds)
                return
            self._asking = True
        try:
            with self._db.reading() as db:
                self._ask(db, rung, time.monotonic() + seconds)
        finally:
            with self._bell:  # let another of those who wait ask
                self._asking = False
                self._bell.notify_all()

    def _ask(self, db: sqlite3.Connection, rung: int, end: float) -> None:
        """Look for others' commits until there is one, or the bell has rung."""
        while time.monotonic() < end:
            (version,) = db.execute("PRAGMA data_version").fetchone()
            if version != self._version:
                self._version = version
                self.ring()
                return
            with self._bell:
                if self._rung == rung:
                    self._bell.wait(_ASK_SECONDS)
                if self._rung != rung:
                    return
