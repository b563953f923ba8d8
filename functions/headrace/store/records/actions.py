"""Records of actions on many tasks, of the tasks that they have found, and marks of work to do.

The record of an action is kept for 30 days, and for 7 days if it was not begun.  An action with
work to do also has a mark, so that a search for work reads marks only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final, Self

from headrace.domain.filters import TaskFilter
from headrace.domain.operate import ActionStatus, BulkAction
from headrace.store.base import Record
from headrace.store.records import body_of, read_body
from headrace.store.records.jobs import Job, JobKind

KIND: Final = "action"
UNDER_WAY: Final = "acting"
SNAPSHOTS: Final = "sightings"
KEPT: Final = timedelta(days=30)
FOUND_KEPT: Final = timedelta(days=7)
OVER: Final = frozenset({ActionStatus.DONE, ActionStatus.CANCELLED, ActionStatus.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Action(Job):
    """One action on many tasks: the dry run that finds them, and then the changes.

    The dry run shows the tasks as of ``as_of``.  It visits ``queues`` in order and is at ``walk``
    in the queue of the place ``looking_at``; ``looked_at`` tasks were read.  The snapshots of found
    tasks are stored in ``chunks``: the place of a queue, the number of its tasks, and the number of
    the try that has stored them.

    With ``ids``, it finds only these tasks. ``started_at`` is None until an operator has
    confirmed it. Tasks are changed in order, ``most`` of them or all. The first ``at`` tasks
    are processed: ``changed`` of them were changed, and ``left`` has the numbers of skipped
    tasks by reason. Deleted tasks can be restored for ``undo_for`` seconds, in each queue by
    its undo. ``trouble`` is the error that stopped it.

    ``by`` is the name of the key whose rights count, ``by_id`` its id, ``request_id`` the request;
    ``begun_by`` and ``begun_by_id`` are the key that began it, if another key has resumed it.
    """

    RECORDS: ClassVar[str] = KIND

    kind: JobKind = JobKind.ACT
    action: BulkAction
    queues: tuple[str, ...]
    where: TaskFilter
    by: str
    by_id: str | None
    request_id: str | None
    looking_at: int = 0
    walk: Any = None
    looked_at: int = 0
    chunks: tuple[tuple[int, int, int], ...] = ()
    status: ActionStatus = ActionStatus.LOOKING
    started_at: datetime | None = None
    reason: str = ""
    to_queue: str | None = None
    undo_for: int = 0
    most: int | None = None
    at: int = 0
    changed: int = 0
    left: Mapping[str, int] = field(default_factory=dict)
    undos: Mapping[str, str] = field(default_factory=dict)
    ended_at: datetime | None = None
    trouble: str = ""
    begun_by: str | None = None
    begun_by_id: str | None = None
    ids: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The id of the action."""
        return self.name

    @property
    def touches(self) -> tuple[str, ...]:
        """Every queue that it reads or changes, with the target of a move."""
        return (*self.queues, self.to_queue) if self.to_queue else self.queues

    @property
    def found(self) -> int:
        """The number of tasks that the dry run has found so far."""
        return sum(amount for _, amount, _ in self.chunks)

    @property
    def total(self) -> int | None:
        """The number of its tasks; None before all are found."""
        if self.looking_at < len(self.queues):
            return None
        return self.found if self.most is None else min(self.found, self.most)

    @property
    def has_ended(self) -> bool:
        """Whether the action has ended."""
        return self.ended_at is not None

    @property
    def goes_on(self) -> bool:
        """Whether the service works on it."""
        return self.status in {ActionStatus.LOOKING, ActionStatus.RUNNING}

    @property
    def complete(self) -> bool:
        """Whether there is nothing left to do but to end it."""
        done = self.status is ActionStatus.RUNNING and self.at == self.total
        return done or self.status in OVER

    @property
    def has_page(self) -> bool:
        """Whether the next page may begin."""
        return self.goes_on and not self.complete

    def is_due(self, now: datetime) -> bool:
        """Return whether a process may work on it."""
        rests = self.has_ended or self.status is ActionStatus.PAUSED
        return not rests and Job.is_due(self, now)

    def steered_as(self, stored: Self) -> Self:
        """Return the action with the status and the rights that operators have *stored*."""
        return replace(
            self,
            status=stored.status,
            trouble=stored.trouble,
            by=stored.by,
            by_id=stored.by_id,
            begun_by=stored.begun_by,
            begun_by_id=stored.begun_by_id,
            version=stored.version,
        )

    def chunk_name(self, number: int) -> str:
        """Return the name of the record with the snapshots of a chunk."""
        return f"{self.id}:{number:06}:{self.chunks[number][2]}"

    @property
    def expires_at(self) -> datetime:
        """When its record is removed."""
        return self.as_of + FOUND_KEPT if self.started_at is None else self.started_at + KEPT

    def record(self) -> Record:
        """Return it as a record."""
        body = {**body_of(self, "name", "version", "where"), "where": self.where.fields()}
        return Record(KIND, self.name, body, self.version, self.expires_at)

    def mark(self) -> Record:
        """Return the mark that there is something to do.

        The mark of a begun action has another version than the mark of its dry run, which a slow
        process may still remove.
        """
        body, version = {"as_of": self.as_of.isoformat()}, 1 if self.started_at is None else 2
        return Record(UNDER_WAY, self.name, body, version, expires_at=self.as_of + FOUND_KEPT)

    @classmethod
    def of(cls, record: Record) -> Self:
        """Return the action of *record*.  Raises NewerRecord."""
        where = TaskFilter.of_fields(record.body["where"])
        return read_body(record.body, cls, name=record.name, version=record.version, where=where)
