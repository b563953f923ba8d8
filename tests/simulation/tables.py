"""The simulation's store on DynamoDB tables, with the log that a table's stream would be."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from headrace.domain.change import Change, Outcome
from headrace.domain.transitions import TaskWrite
from headrace.store.base import Record, RecordWrite
from headrace.store.dynamo import DynamoStore
from tests.streamed import Streamed


class LoggedTables:
    """A store on tables; it makes one change at a time, to know what each one did."""

    def __init__(self, tables: DynamoStore) -> None:
        self._tables = tables
        self._now: Callable[[], datetime] = datetime.now
        self._stream = Streamed(tables, self._time)
        self._log: list[TaskWrite] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tables, name)

    def _time(self) -> datetime:
        return self._now()

    def use_clock(self, now: Callable[[], datetime]) -> None:
        """Take the time of writes from *now*."""
        self._now = now

    def commit(
        self, changes: Sequence[Change], *, partly: bool = False, noting: RecordWrite | None = None
    ) -> list[Outcome]:
        """Make each change, and log it."""
        return self._stream.commit(changes, partly=partly, noting=noting)

    def put_records(
        self, writes: Sequence[tuple[Record, int | None]], *, tasks: Sequence[Change] = ()
    ) -> bool:
        """Write records and new tasks, and log these."""
        return self._stream.put_records(writes, tasks=tasks)

    def writes(self, *, after: int, limit: int) -> list[TaskWrite]:
        """Return up to *limit* writes behind number *after*."""
        self._log += self._stream.taken()
        return [write for write in self._log if write.sequence > after][:limit]

    def forget(self) -> None:
        """Do nothing: the tables' TTL is tested by itself."""

    def close(self) -> None:
        """Do nothing: the tables belong to the test."""
