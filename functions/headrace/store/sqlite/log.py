"""What each write did to its task, kept until the recorder has read it.

A side of a line is the task as a row, its payload left out and measured.
"""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from headrace.domain.instants import micros_of
from headrace.domain.limits import utf8_bytes
from headrace.domain.write import TaskWrite
from headrace.store.sqlite.database import Database
from headrace.store.sqlite.rows import Row, insert, rest_of
from headrace.store.sqlite.views import RowView

Line = tuple[Any, ...]
_INTO_LOG: Final = "changes (at, forgotten, before, after, payload)"
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(list).decode


@dataclass(frozen=True, slots=True)
class Log:
    """Writes lines; ``keeps`` tells of a queue whether payloads that are new stand in them."""

    now: Callable[[], datetime]
    keeps: Callable[[str], bool] = lambda _queue: False

    def line(self, old: Row | None, new: Row | None, *, forgotten: bool = False) -> Line:
        """Return the line of a write, which gets its time when it is written."""
        payload = None
        if new is not None and (old is None or old[-1] != new[-1]) and new[1] is not None:
            payload = new[-1] if self.keeps(new[1]) else None
        return (forgotten, _side(old), _side(new), payload)

    def write(self, db: sqlite3.Connection, lines: Sequence[Line]) -> None:
        """Write *lines*, within a transaction."""
        at = micros_of(self.now())
        insert(db, _INTO_LOG, [(at, *line) for line in lines])


class LoggedWrites:
    """What a recorder needs of the store."""

    _db: Database

    def writes(self, *, after: int, limit: int) -> list[TaskWrite]:
        """Return up to *limit* writes behind number *after*, in order.  Raises Unavailable."""
        with self._db.reading() as db:
            rows = db.execute(
                "SELECT number, at, before, after, payload, forgotten FROM changes"
                " WHERE number > ? ORDER BY number LIMIT ?",
                (after, limit),
            ).fetchall()
        read = _Sides()
        return [
            TaskWrite(number, at, read.view(before), read.view(later, payload), bool(forgotten))
            for number, at, before, later, payload, forgotten in rows
        ]

    def trim(self, through: int, limit: int = 5_000) -> int:
        """Drop up to *limit* writes with numbers to *through*; return how many they were.

        Raises Unavailable.
        """
        # What has come back by a loss of power is dropped again.
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


class _Sides:
    """Reads sides of lines: what a write left is mostly what the next one to its task found."""

    def __init__(self) -> None:
        self._left: dict[str, RowView] = {}

    def view(self, side: str | None, payload: str | None = None) -> RowView | None:
        if side is None:
            return None
        found = self._left.get(side) if payload is None else None
        if found is None:
            *columns, rest, size = _decode(side)
            found = RowView._make([*columns, rest_of(rest), size, payload])
            if payload is None:
                self._left[side] = found
        return found


def _side(row: Row | None) -> str | None:
    if row is None:
        return None
    return _encode((*row[:-1], utf8_bytes(row[-1] or ""))).decode()
