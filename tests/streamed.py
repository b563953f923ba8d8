"""A store with a stream, like the table's: every write of a task as the records Lambda gets."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, cast

from headrace.domain.change import Change
from headrace.domain.errors import Unavailable
from headrace.domain.task import Place, State, Task
from headrace.store.base import Outcome, Record, Store
from headrace.store.items import to_item
from tests.manual_clock import ManualClock

SHARD = "shardId-00000001"


class Streamed:
    """Passes everything on to *store*, one change at a time, and notes what each one did."""

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._store = store
        self._now = now
        self._written = 0
        self.changes: list[dict[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, changes: Sequence[Change], *, partly: bool = False) -> list[Outcome]:
        return [self._commit(change, partly=partly) for change in changes]

    def _commit(self, change: Change, *, partly: bool) -> Outcome:
        ids = list(_ids(change))
        before = self._store.read(ids)
        (outcome,) = self._store.commit([change], partly=partly)
        after = self._store.read(ids)
        for task_id in ids:
            if before.get(task_id) != after.get(task_id):
                self.note(before.get(task_id), after.get(task_id))
        return outcome

    def note(self, before: Task | None, after: Task | None, **more: Any) -> None:
        """Add a record to the stream."""
        self._written += 1
        self.changes.append({**stream_record(self._written, before, after, self._now()), **more})

    def taken(self) -> list[dict[str, Any]]:
        """Return the records since the last call."""
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


def stream_record(
    sequence: int, before: Task | None, after: Task | None, at: datetime
) -> dict[str, Any]:
    """Return the record Lambda would be given of one write."""
    images = {"OldImage": before and to_item(before), "NewImage": after and to_item(after)}
    return {
        "eventID": str(sequence),
        "eventName": "REMOVE" if after is None else "MODIFY" if before else "INSERT",
        "eventSource": "aws:dynamodb",
        "dynamodb": {
            "SequenceNumber": str(sequence),
            "ApproximateCreationDateTime": int(at.timestamp()),
            **{name: image for name, image in images.items() if image},
        },
    }


class Unsure:
    """A store whose record writes fail when told: some before they took effect, some after."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.written: list[Record] = []
        self.fate: Iterator[str | None] = iter(())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put_record(self, record: Record, *, replaces: int | None) -> bool:
        fate = next(self.fate, None)
        if fate == "lost":
            raise Unavailable("lost on the way")
        done = self._store.put_record(record, replaces=replaces)
        if done:
            self.written.append(record)
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
