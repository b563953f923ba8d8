"""The log of writes, kept until the recorder has read it.

A line holds the task before and after the write, as rows without their payloads but with the
sizes of these.
"""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from headrace.domain.limits import utf8_bytes
from headrace.domain.task import Task
from headrace.domain.times import micros_of
from headrace.domain.transitions import TaskWrite
from headrace.store.sqlite.database import Database
from headrace.store.sqlite.rows import Row, insert, task_of

Line = tuple[Any, ...]
_INTO_LOG: Final = "changes (at, forgotten, before, after, payload)"
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(list).decode


@dataclass(frozen=True, slots=True)
class Log:
    """Writes lines; ``keeps`` says for which queues the log keeps new payloads."""

    now: Callable[[], datetime]
    keeps: Callable[[str], bool] = lambda _queue: False

    def line(self, old: Row | None, new: Row | None, *, forgotten: bool = False) -> Line:
        """Return the line of a write; write() adds the time."""
        payload = None
        if new is not None and (old is None or old[-1] != new[-1]) and new[1] is not None:
            payload = new[-1] if self.keeps(new[1]) else None
        return (forgotten, _side(old), _side(new), payload)

    def write(self, db: sqlite3.Connection, lines: Sequence[Line]) -> None:
        """Write *lines*, within a transaction."""
        at = micros_of(self.now())
        insert(db, _INTO_LOG, [(at, *line) for line in lines])


class LoggedWrites:
    """The log of writes, as the recorder reads it."""

    _db: Database

    def writes(self, *, after: int, limit: int) -> list[TaskWrite]:
        """Return up to *limit* writes after number *after*, in order.  Raises Unavailable."""
        with self._db.reading() as db:
            rows = db.execute(
                "SELECT number, at, before, after, payload, forgotten FROM changes"
                " WHERE number > ? ORDER BY number LIMIT ?",
                (after, limit),
            ).fetchall()
        sides = _SideReader()
        writes = []
        for number, at, old, new, payload, forgotten in rows:
            was, old_bytes = sides.read(old)
            now, new_bytes = sides.read(new, payload)
            size = old_bytes if now is None or now.remains else new_bytes
            writes.append(TaskWrite(number, at, was, now, bool(forgotten), size))
        return writes

    def trim(self, through: int, limit: int = 5_000) -> int:
        """Drop up to *limit* writes with numbers to *through*; return how many they were.

        Raises Unavailable.
        """
        # Lines that a power failure brings back are dropped again.
        return self._db.write(
            lambda db: (
                db.execute(
                    "DELETE FROM changes WHERE number IN"
                    " (SELECT number FROM changes WHERE number <= ? ORDER BY number LIMIT ?)",
                    (through, limit),
                ).rowcount
            ),
            lazy=True,
        )


class _SideReader:
    """Reads the tasks of lines.  Mostly, a write begins with the task that the last one left."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Task, int]] = {}

    def read(self, side: str | None, payload: str | None = None) -> tuple[Task | None, int]:
        """Return the task of *side* with this *payload*, and the size of its stored payload."""
        if side is None:
            return None, 0
        found = self._known.get(side) if payload is None else None
        if found is None:
            *columns, size = _decode(side)
            found = task_of((*columns, payload)), size
            if payload is None:
                self._known[side] = found
        return found


def _side(row: Row | None) -> str | None:
    if row is None:
        return None
    return _encode((*row[:-1], utf8_bytes(row[-1] or ""))).decode()
