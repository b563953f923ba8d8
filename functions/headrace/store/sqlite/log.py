"""The log of writes, as the recorder reads and trims it; ``commits`` writes it."""

from typing import Final

import msgspec

from headrace.domain.task import Task
from headrace.domain.transitions import TaskWrite
from headrace.store.sqlite.database import Database
from headrace.store.sqlite.rows import task_of

_decode: Final = msgspec.json.Decoder(list).decode


class LoggedWrites:
    """Implements the part of ``headrace.store.base.Store`` that is about the log of writes."""

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
            size = old_bytes if now is None or now.is_tombstone else new_bytes
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
