"""One selection: what is to be done to which tasks, and how far that is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import convert

from headrace.domain.filters import TaskFilter
from headrace.domain.operate import BulkAction
from headrace.store.base import Record
from headrace.store.records import body_of

KIND: Final = "matched"
KEPT: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class TaskSelection:
    """What is to be done to which tasks, and how far that is.

    ``seen_at`` is the moment of the dry run.  ``count`` tasks were found among ``looked_at``;
    ``at`` of them are dealt with, and ``until`` is how far it may go without asking again.
    ``left`` are reasons for leaving tasks alone, with how many; ``trouble`` is what stopped it.
    What it deletes can be brought back for ``undo_for`` seconds, in each queue by its undo.
    """

    name: str
    action: BulkAction
    queues: tuple[str, ...]
    where: TaskFilter
    by: str
    seen_at: datetime
    queue: int = 0  # the one that is being looked at
    walk: Any = None
    looked_at: int = 0
    count: int = 0
    chunks: tuple[tuple[int, int], ...] = ()  # the place of a queue, and how many of its tasks
    samples: tuple[tuple[str, str], ...] = ()  # queue and id
    to_queue: str | None = None
    at: int = 0
    until: int = 0
    changed: int = 0
    left: Mapping[str, int] = field(default_factory=dict)
    trouble: str = ""
    undo_for: int = 0
    undos: Mapping[str, str] = field(default_factory=dict)
    busy_until: datetime | None = None
    version: int = 1

    @property
    def touches(self) -> tuple[str, ...]:
        """Every queue that acting on it reads or changes, the target of a move included."""
        return (*self.queues, self.to_queue) if self.to_queue else self.queues

    @property
    def looking(self) -> bool:
        """Whether the dry run is not over."""
        return self.queue < len(self.queues)

    @property
    def acting(self) -> bool:
        """Whether there is something that it may do without asking."""
        return self.at < self.until

    @property
    def begun(self) -> bool:
        """Whether any task was dealt with, or is about to be."""
        return self.until > 0

    @property
    def done(self) -> bool:
        """Whether every task of the set was dealt with."""
        return not self.looking and self.at == self.count

    @property
    def rest(self) -> int:
        """How many tasks nothing was done to yet."""
        return self.count - self.at


def to_record(at: TaskSelection) -> Record:
    """Return a set as a record."""
    body = {**body_of(at, "name", "version", "where"), "where": at.where.fields()}
    if not at.undo_for:
        del body["undo_for"], body["undos"]
    return Record(KIND, at.name, body, at.version, at.seen_at + KEPT)


def from_record(record: Record) -> TaskSelection:
    """Return the set of *record*."""
    where = TaskFilter.of_fields(record.body["where"])
    named = {"name": record.name, "version": record.version, "where": where}
    return convert({**record.body, **named}, TaskSelection, from_attributes=True)
