"""The stores in memory that machines are run over, and all that is in one."""

from collections.abc import Callable
from typing import Any

from headrace.domain.task import Task
from headrace.store.base import EntryPage, Store
from headrace.store.memory import MemoryStore
from headrace.store.sqlite import SqliteStore
from headrace.store.sqlite.rows import COLUMNS, task_of
from headrace.testing.conditions import Faults

STORES: dict[str, Callable[[], Store]] = {"memory": MemoryStore, "sqlite": SqliteStore}


def everything(store: Store) -> list[Task]:
    """Return all there is under ids of tasks, be it only what is left of one."""
    if isinstance(store, MemoryStore):
        with store._lock:  # noqa: SLF001  all there is, by its owner's leave
            return list(store._tasks.values())  # noqa: SLF001  likewise
    assert isinstance(store, SqliteStore)
    with store._db.reading() as db:  # noqa: SLF001  likewise
        return [task_of(row) for row in db.execute(f"SELECT {COLUMNS} FROM tasks")]  # noqa: S608  our own


class LaggingSqlite(SqliteStore):
    """As ``LaggingStore``: struck by `Faults.slow_index` it shows its index as it was."""

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self._faults = faults
        self._past = SqliteStore()
        faults.when_index_slows = self._remember

    def entries(self, *place: Any, **how: Any) -> EntryPage:
        if self._faults.struck("slow index"):
            return self._past.entries(*place, **how)
        if self._faults.active("slow index"):
            self._remember()
        return super().entries(*place, **how)

    def everything(self) -> list[Task]:
        return [task for task in everything(self) if task.spent is None]

    def _remember(self) -> None:
        with self._db.reading() as now, self._past._db.reading() as past:  # noqa: SLF001  its own kind
            now.backup(past)
