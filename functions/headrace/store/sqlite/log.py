"""The log of writes, as the recorder reads and trims it; ``commits`` writes it."""

from headrace.domain.task import Task
from headrace.domain.transitions import TaskWrite
from headrace.store.sqlite.database import Database
from headrace.store.sqlite.rows import task_of


class LoggedWrites:
    """Implements the part of ``headrace.store.base.Store`` that is about the log of writes."""

    _db: Database

    def writes(self, *, after: int, limit: int) -> list[TaskWrite]:
        """Return up to *limit* writes after number *after*, in order.  Raises Unavailable."""
        with self._db.reading() as db:
            rows = db.execute(
                "SELECT number, at, before, after, payload, forgotten, payload_bytes FROM changes"
                " WHERE number > ? ORDER BY number LIMIT ?",
                (after, limit),
            ).fetchall()
        left: dict[str, Task] = {}  # mostly, a write begins with the task that the last one left
        writes = []
        for number, at, old, new, payload, forgotten, size in rows:
            was = None if old is None else left.pop(old, None) or task_of(old, None)
            now = None if new is None else task_of(new, payload)
            if now is not None and payload is None:
                left[new] = now
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
