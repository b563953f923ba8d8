"""A store in memory whose index lags when a fault says so."""

from datetime import datetime

from headrace.domain.task import Place, Task
from headrace.store.base import EntryPage, Position
from headrace.store.memory import MemoryStore
from headrace.testing.faults import Faults


class LaggingStore(MemoryStore):
    """The store in memory; struck by `Faults.slow_index` it shows its index as it was."""

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self._faults = faults
        self._past = MemoryStore()
        faults.when_index_slows = self._remember

    def entries(
        self,
        place: Place,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        after: Position | None = None,
        descending: bool = False,
        limit: int,
    ) -> EntryPage:
        """Return entries of the index, as it is or as it was."""
        read = super().entries
        if self._faults.struck("slow index"):
            read = self._past.entries
        elif self._faults.active("slow index"):
            self._remember()
        return read(
            place, since=since, until=until, after=after, descending=descending, limit=limit
        )

    def everything(self) -> list[Task]:
        """Return all tasks, whatever the index shows."""
        with self._lock:
            return [task for task in self._tasks.values() if task.spent is None]

    def _remember(self) -> None:
        past = MemoryStore()
        with self._lock:
            past._tasks = dict(self._tasks)  # noqa: SLF001 (a copy of its own kind)
            for place, positions in self._index.items():
                past._index[place] = list(positions)  # noqa: SLF001 (likewise)
        self._past = past
