"""Records of jobs: work on many tasks that outlives the call that began it."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, ClassVar, Final, Self

from headrace.domain.task import ORDINARY, State
from headrace.store.base import Record
from headrace.store.records import body_of, read_body

CLAIMED_FOR: Final = timedelta(seconds=20)
"""Longer than a page takes; a job whose process was killed is resumed after that."""


class JobKind(StrEnum):
    """The kinds of work on the tasks that a job visits."""

    PURGE = "purge"
    DELETE_QUEUE = "delete_queue"
    BUILD_INDEX = "build_index"
    DROP_ORPHANS = "drop_orphans"
    ACT = "act"


REMOVALS: Final = frozenset({JobKind.PURGE, JobKind.DELETE_QUEUE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(ABC):
    """The part of a job that the engine uses.

    ``as_of`` is the time of the call that began it.  One process works on it at a time: until
    ``busy_until``, unless it ends its work before.  ``stamps`` are the start times of the tries of
    the current page; there are several if a process was cut off.  ``audit`` is the name of the
    audit entry.
    """

    RECORDS: ClassVar[str]

    name: str
    kind: JobKind
    as_of: datetime
    audit: str | None = None
    stamps: tuple[datetime, ...] = ()
    busy_until: datetime | None = None
    version: int = 1

    @property
    @abstractmethod
    def complete(self) -> bool:
        """Whether all pages are done."""

    @property
    def has_page(self) -> bool:
        """Whether the next page may begin."""
        return not self.complete

    def is_due(self, now: datetime) -> bool:
        """Return whether a process may work on it."""
        return self.busy_until is None or self.busy_until <= now

    def begun(self, now: datetime) -> Self:
        """Return the job with a try of its page that begins *now*."""
        return replace(self, stamps=(*self.stamps, now), busy_until=now + CLAIMED_FOR)

    def released(self) -> Self:
        """Return the job after a page, without a process that works on it."""
        return replace(self, stamps=(), busy_until=None)

    def steered_as(self, stored: Self) -> Self:
        """Return the job with the changes that others than its process have *stored*."""
        return replace(self, version=stored.version)

    def record(self) -> Record:
        """Return the job as a record."""
        return Record(self.RECORDS, self.name, body_of(self, "name", "version"), self.version)

    @classmethod
    def of(cls, record: Record) -> Self:
        """Return the job of *record*.  Raises NewerRecord."""
        return read_body(record.body, cls, name=record.name, version=record.version)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueJob(Job):
    """Work on the tasks of *queue* in *states*, and the position that it has reached.

    The tasks are in at most ``shards`` and ``lanes``.  The next page begins at ``position``; None
    is the beginning.  ``rounds`` is the number of complete visits of all tasks, ``visited`` whether
    the current one is complete, and the next round begins at ``not_before``.  ``count`` is the
    number of tasks, or objects, that were dealt with.  ``undo`` is the id of the undo that brings
    the tasks back.
    """

    RECORDS: ClassVar[str] = "job"

    queue: str
    states: tuple[State, ...] = ()
    shards: int = 1
    lanes: frozenset[int] = ORDINARY
    position: Any = None
    visited: bool = False
    rounds: int = 0
    not_before: datetime | None = None
    count: int = 0
    undo: str | None = None

    @property
    def complete(self) -> bool:
        """Whether all tasks were visited in this round."""
        return self.visited

    def is_due(self, now: datetime) -> bool:
        """Return whether a process may work on it."""
        waits = self.not_before is not None and now < self.not_before
        return not waits and Job.is_due(self, now)

    def next_round(self, not_before: datetime) -> "QueueJob":
        """Return the job, to visit all tasks once more."""
        return replace(
            self, position=None, visited=False, rounds=self.rounds + 1, not_before=not_before
        )


def deletion_of(queue: str) -> str:
    """Return the name of the job that deletes *queue*."""
    return f"{JobKind.DELETE_QUEUE}:{queue}"
