"""The store of the service in memory."""

from collections.abc import Iterator
from typing import Final

from headrace.domain.task import State, Task
from headrace.store.sqlite import SqliteStore
from headrace.store.sqlite.rows import COLUMNS, task_of

_ALL: Final = 2**31


class MemoryTables(SqliteStore):
    """A SQLite store in memory that lists its tasks."""

    def everything(self) -> list[Task]:
        """Return all tasks but tombstones."""
        ids, _ = self.ids("", limit=_ALL) or ((), False)
        return list(self.read(ids).values())

    def unfinished(self, queue: str) -> Iterator[Task]:
        """Yield the unfinished tasks of *queue* in the order of their due times."""
        with self._db.reading() as db:
            rows = db.execute(
                f"SELECT {COLUMNS} FROM tasks WHERE queue = ? AND state IN (?, ?)"  # noqa: S608  a constant
                " ORDER BY scheduled_at",
                (queue, str(State.ENQUEUED), str(State.INFLIGHT)),
            ).fetchall()
        yield from map(task_of, rows)
