"""Stores that fail when told, and what is done with streams in tests."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from headrace.domain.errors import Unavailable
from headrace.domain.task import Place, State, Task
from headrace.domain.write import TaskWrite
from headrace.store.base import Record, Store
from headrace.store.items import to_item
from headrace.testing.stores import SHARD, Streamed
from tests.manual_clock import ManualClock
from tests.wrapped_store import WrappedStore

__all__ = ["SHARD", "Streamed", "Unsure", "a_task", "stream_records"]


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
