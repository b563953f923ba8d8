"""The stores of tests: one that notes what was written, one whose index lags on request."""

import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, cast

from headrace.domain.change import Change
from headrace.domain.instants import micros_of
from headrace.domain.task import Place, State, Task
from headrace.domain.write import TaskWrite
from headrace.store.base import EntryPage, Noting, Outcome, Position, Record, Store
from headrace.store.memory import MemoryStore
from headrace.testing.conditions import Faults

SHARD = "shardId-00000001"
_UNFINISHED = (State.ENQUEUED, State.INFLIGHT)


class Streamed:
    """Passes everything on to *store*, one change at a time, and notes what each one did."""

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._store = store
        self._now = now
        self._lock = threading.RLock()  # what was there before and after is one thread's doing
        self._written = 0
        self.changes: list[TaskWrite] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (whatever the store has)
        """The attribute *name* of the store."""
        return getattr(self._store, name)

    def commit(
        self,
        changes: Sequence[Change],
        *,
        partly: bool = False,
        noting: Noting | None = None,
    ) -> list[Outcome]:
        """Make each change on its own, as the store does; the first with what is *noting*."""
        outcomes = []
        for change in changes:
            outcomes.append(self._commit(change, partly=partly, noting=noting))
            noting = None
        return outcomes

    def _commit(self, change: Change, *, partly: bool, noting: Noting | None) -> Outcome:
        ids = list(_ids(change))
        with self._lock:
            before = self._found(ids)
            (outcome,) = self._store.commit([change], partly=partly, noting=noting)
            after = self._found(ids)
            for task_id in ids:
                if before.get(task_id) != after.get(task_id):
                    self.note(before.get(task_id), after.get(task_id))
        return outcome

    def put_records(
        self, writes: Sequence[tuple[Record, int | None]], *, tasks: Sequence[Change] = ()
    ) -> bool:
        """Write records, and new tasks with them, as the store does."""
        with self._lock:
            made = self._store.put_records(writes, tasks=tasks)
            for new in tasks if made else ():
                self.note(None, new.insert)
        return made

    def _found(self, ids: Sequence[str]) -> dict[str, Task]:
        """The items under *ids*, be it only what is left of a task."""
        found = self._store.read(ids)
        if left := [task_id for task_id in ids if task_id not in found]:
            found = {**self._store.spent(left), **found}
        return found

    def note(self, before: Task | None, after: Task | None, *, forgotten: bool = False) -> None:
        """Add a write to those that taken() returns."""
        with self._lock:
            number = self._written = self._written + 1
            write = TaskWrite(number, micros_of(self._now()), before, after, forgotten)
            self.changes.append(write)

    def taken(self) -> list[TaskWrite]:
        """Return the writes since the last call."""
        with self._lock:
            changes, self.changes = self.changes, []
        return changes

    @property
    def store(self) -> Store:
        """The same, for those who ask for a store."""
        return cast("Store", self)


def _ids(change: Change) -> Iterator[str]:
    yield change.task_id
    for also in change.also:
        if isinstance(also, Change):
            yield from _ids(also)


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
            return [task for task in self._tasks.values() if not task.remains]

    def unfinished(self, queue: str) -> list[Task]:
        """Return the tasks of *queue* that wait or are in flight, whatever the index shows.

        Their number is what it costs, however many are finished.
        """
        with self._lock:
            return [
                self._tasks[task_id]
                for place, positions in self._index.items()
                if place.queue == queue and place.state in _UNFINISHED
                for _, task_id in positions
            ]

    def _remember(self) -> None:
        past = MemoryStore()
        with self._lock:
            past._tasks = dict(self._tasks)  # noqa: SLF001 (a copy of its own kind)
            for place, positions in self._index.items():
                past._index[place] = list(positions)  # noqa: SLF001 (likewise)
        self._past = past
