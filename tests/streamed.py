"""Stores that log their writes or fail when told, and records of a table's stream."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, cast

from headrace.domain.change import Change, Outcome
from headrace.domain.errors import Unavailable
from headrace.domain.task import Place, State, Task
from headrace.domain.times import micros_of
from headrace.domain.transitions import TaskWrite
from headrace.store.base import Record, RecordWrite, Store
from headrace.store.items import to_item
from tests.manual_clock import ManualClock
from tests.wrapped_store import WrappedStore

SHARD = "shardId-00000001"


class Streamed:
    """Passes everything on to *store*, one change at a time, and notes what each one did."""

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._store = store
        self._now = now
        self._lock = threading.RLock()  # what was there before and after is one thread's doing
        self._written = 0
        self.changes: list[TaskWrite] = []

    def __getattr__(self, name: str) -> Any:
        """The attribute *name* of the store."""
        return getattr(self._store, name)

    def commit(
        self,
        changes: Sequence[Change],
        *,
        partly: bool = False,
        noting: RecordWrite | None = None,
    ) -> list[Outcome]:
        """Make each change on its own, as the store does; the first with what is *noting*."""
        outcomes = []
        for change in changes:
            outcomes.append(self._commit(change, partly=partly, noting=noting))
            noting = None
        return outcomes

    def _commit(self, change: Change, *, partly: bool, noting: RecordWrite | None) -> Outcome:
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
            found = {**self._store.tombstones(left), **found}
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


def stream_records(writes: Sequence[TaskWrite]) -> list[dict[str, Any]]:
    """Return the records that Lambda would be given of *writes* to a table."""
    return [_stream_record(write) for write in writes]


def _stream_record(write: TaskWrite) -> dict[str, Any]:
    old, new = (None if task is None else to_item(task) for task in (write.before, write.after))
    images = {"OldImage": old, "NewImage": new}
    record: dict[str, Any] = {
        "eventID": str(write.sequence),
        "eventName": "REMOVE" if new is None else "MODIFY" if old else "INSERT",
        "eventSource": "aws:dynamodb",
        "dynamodb": {
            "SequenceNumber": str(write.sequence),
            "ApproximateCreationDateTime": write.recorded_at // 1_000_000,
            **{name: image for name, image in images.items() if image},
        },
    }
    if write.forgotten:
        record["userIdentity"] = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
    return record


class Unsure(WrappedStore):
    """A store whose record writes fail when told: some before they took effect, some after."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, self.call)
        self.written: list[Record] = []
        self.fate: Iterator[str | None] = iter(())

    def call(self, name: str, call: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """Call the store, or do what the next fate of a record write says."""
        fate = next(self.fate, None) if name == "put_record" else None
        if fate == "lost":
            raise Unavailable("lost on the way")
        done = call(*given, **named)
        if done and name == "put_record":
            self.written.append(given[0])
        if fate == "unanswered":
            raise Unavailable("done, but the answer was lost")
        return done

    @contextmanager
    def failing(self, *fates: str | None) -> Iterator[None]:
        """Let the next writes go as *fates* say: lost, unanswered, or None for well."""
        self.fate = iter(fates)
        yield
        self.fate = iter(())

    @property
    def store(self) -> Store:
        """The same, for those who ask for a store."""
        return cast("Store", self)


def a_task(
    task_id: str,
    queue: str,
    clock: ManualClock,
    state: State = State.ENQUEUED,
    last_move: str = "enqueue",
) -> Task:
    now = clock()
    return Task(
        id=task_id,
        place=Place(queue, state, 0),
        scheduled_at=now,
        due_at=now,
        created_at=now,
        enqueued_at=now,
        started_at=now,
        last_move=last_move,
    )
