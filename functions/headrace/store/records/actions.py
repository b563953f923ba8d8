"""Records of actions on many tasks that the service carries out, and marks of running actions.

The record of an action is kept for 30 days.  A running action also has a mark, so that a search for
work reads marks only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Self

from headrace.domain.filters import TaskFilter
from headrace.domain.operate import ActionStatus, BulkAction
from headrace.store.base import Record
from headrace.store.records import body_of, read_body
from headrace.store.records.selections import KEPT as SET_KEPT

KIND: Final = "action"
UNDER_WAY: Final = "acting"
KEPT: Final = timedelta(days=30)


OVER: Final = frozenset({ActionStatus.DONE, ActionStatus.CANCELLED, ActionStatus.FAILED})


@dataclass(frozen=True, slots=True)
class ActionPart:
    """The tasks that are being acted on: the unprocessed tasks of the set before ``end``.

    ``stamps`` are the times that they get, one for each attempt.  By its time a task shows that it
    was processed, also if the process died before it could store that.
    """

    end: int
    stamps: tuple[datetime, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRun:
    """One action on the tasks of a set, in order from ``first`` to before ``until``.

    The tasks before ``at`` are processed: ``changed`` of them were changed, and ``left`` has the
    numbers of skipped tasks by reason.  ``until`` is None before the set is known.
    ``by`` is the name of the key whose rights count, ``by_id`` its id, ``request_id`` the request;
    ``begun_by`` and ``begun_by_id`` are the key that began it, if another key has resumed it.
    ``trouble`` is the error that stopped it.  ``noted`` is its entry in the audit.
    Deleted tasks can be restored for ``undo_for`` seconds, in each queue by its undo.
    """

    id: str
    set_name: str
    action: BulkAction
    queues: tuple[str, ...]
    where: TaskFilter
    by: str
    by_id: str | None
    request_id: str | None
    reason: str
    seen_at: datetime
    started_at: datetime
    noted: str
    to_queue: str | None = None
    undo_for: int = 0
    first: int = 0
    at: int = 0
    until: int | None = None
    changed: int = 0
    left: Mapping[str, int] = field(default_factory=dict)
    undos: Mapping[str, str] = field(default_factory=dict)
    status: ActionStatus = ActionStatus.RUNNING
    ended_at: datetime | None = None
    trouble: str = ""
    part: ActionPart | None = None
    busy_until: datetime | None = None
    begun_by: str | None = None
    begun_by_id: str | None = None
    version: int = 1

    @property
    def touches(self) -> tuple[str, ...]:
        """Every queue that it reads or changes, with the target of a move."""
        return (*self.queues, self.to_queue) if self.to_queue else self.queues

    @property
    def has_ended(self) -> bool:
        """Whether the action has ended."""
        return self.ended_at is not None

    @property
    def goes_on(self) -> bool:
        """Whether there are tasks left to act on."""
        return self.status in {ActionStatus.LOOKING, ActionStatus.RUNNING}

    @property
    def total(self) -> int | None:
        """The number of its tasks."""
        return None if self.until is None else self.until - self.first

    @property
    def dealt_with(self) -> int:
        """The number of processed tasks."""
        return self.at - self.first

    def record(self) -> Record:
        """Return it as a record."""
        body = {**body_of(self, "id", "version", "where"), "where": self.where.fields()}
        return Record(KIND, self.id, body, self.version, self.started_at + KEPT)

    def mark(self) -> Record:
        """Return the mark that there is something to do."""
        body = {"started_at": self.started_at.isoformat()}
        return Record(UNDER_WAY, self.id, body, expires_at=self.seen_at + SET_KEPT)

    @classmethod
    def of(cls, record: Record) -> Self:
        """Return the action of *record*.  Raises NewerRecord."""
        where = TaskFilter.of_fields(record.body["where"])
        return read_body(record.body, cls, id=record.name, version=record.version, where=where)

    def released(self) -> Self:
        """Return the action without a process that works on it."""
        return replace(self, part=None, busy_until=None)
