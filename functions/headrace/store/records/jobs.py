"""Records of jobs: work on many tasks that outlives the call that began it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Self

from headrace.domain.task import ORDINARY, State
from headrace.store.base import Record
from headrace.store.records import body_of, read_body

KIND: Final = "job"


class JobKind(StrEnum):
    """The kinds of work on the tasks that a job visits."""

    PURGE = "purge"
    DELETE_QUEUE = "delete_queue"
    BUILD_INDEX = "build_index"
    DROP_ORPHANS = "drop_orphans"


REMOVALS: Final = frozenset({JobKind.PURGE, JobKind.DELETE_QUEUE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Work on the tasks of *queue* in *states*, and the position that it has reached.

    ``as_of`` is the time of the call that began it.  The tasks are in at most ``shards`` and
    ``lanes``.  The next page begins at ``position``; None is the beginning.  ``rounds`` is the
    number of complete visits of all tasks, and the next round begins at ``not_before``.
    ``count`` is the number of tasks, or objects, that were dealt with; the audit entry ``audit``
    shows it in the end.  ``undo`` is the id of the undo that brings the tasks back.
    """

    name: str
    kind: JobKind
    queue: str
    as_of: datetime
    states: tuple[State, ...] = ()
    shards: int = 1
    lanes: frozenset[int] = ORDINARY
    position: Any = None
    rounds: int = 0
    not_before: datetime | None = None
    count: int = 0
    audit: str | None = None
    undo: str | None = None
    version: int = 1

    def record(self) -> Record:
        """Return the job as a record."""
        return Record(KIND, self.name, body_of(self, "name", "version"), self.version)

    @classmethod
    def of(cls, record: Record) -> Self:
        """Return the job of *record*.  Raises NewerRecord."""
        return read_body(record.body, cls, name=record.name, version=record.version)


def deletion_of(queue: str) -> str:
    """Return the name of the job that deletes *queue*."""
    return f"{JobKind.DELETE_QUEUE}:{queue}"
