"""The record of a selection of tasks for an action."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from headrace.domain.filters import TaskFilter
from headrace.domain.operate import BulkAction
from headrace.store.base import Record
from headrace.store.records import body_of, read_body

KIND: Final = "matched"
KEPT: Final = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class TaskSelection:
    """The action and the filter of a selection, and the progress of its dry run.

    ``seen_at`` is the moment of the dry run.  ``count`` tasks were found among ``looked_at``; on
    the first ``at`` of them actions were begun.  ``trouble`` is the error that stopped the dry run.
    """

    name: str
    action: BulkAction
    queues: tuple[str, ...]
    where: TaskFilter
    by: str
    seen_at: datetime
    queue: int = 0  # the queue that is being searched
    walk: Any = None
    looked_at: int = 0
    count: int = 0
    chunks: tuple[tuple[int, int], ...] = ()  # the place of a queue, and the number of its tasks
    samples: tuple[tuple[str, str], ...] = ()  # queue and id
    to_queue: str | None = None
    at: int = 0
    trouble: str = ""
    busy_until: datetime | None = None
    version: int = 1

    @property
    def touches(self) -> tuple[str, ...]:
        """Every queue that the action reads or changes, with the target of a move."""
        return (*self.queues, self.to_queue) if self.to_queue else self.queues

    @property
    def looking(self) -> bool:
        """Whether the dry run is not over."""
        return self.queue < len(self.queues)

    @property
    def begun(self) -> bool:
        """Whether an action was begun on any task of it."""
        return self.at > 0

    @property
    def handed_over(self) -> bool:
        """Whether actions were begun on every task of it."""
        return not self.looking and self.at == self.count

    @property
    def rest(self) -> int:
        """The number of tasks without an action yet."""
        return self.count - self.at


def to_record(at: TaskSelection) -> Record:
    """Return a set as a record."""
    body = {**body_of(at, "name", "version", "where"), "where": at.where.fields()}
    return Record(KIND, at.name, body, at.version, at.seen_at + KEPT)


def from_record(record: Record) -> TaskSelection:
    """Return the selection of *record*.  Raises NewerRecord."""
    where = TaskFilter.of_fields(record.body["where"])
    return read_body(
        record.body, TaskSelection, name=record.name, version=record.version, where=where
    )
