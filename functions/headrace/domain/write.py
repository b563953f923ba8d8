"""One write of one task: what was there before it and after it.

This is what the recorder is handed for every write of a store, whatever the store is.  It looks at
few fields of most tasks, so a side is a view that reads a field when it is asked for, and instants
are numbers: what comes from DynamoDB's stream is never made a Task.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple, Protocol, Self, TypeAlias

from headrace.domain.instants import micros_of
from headrace.domain.task import Membership, OffloadedText, State, Task

Spot: TypeAlias = tuple[str, State]
"""A queue, and a state in it."""


class LatestError(NamedTuple):
    """What the last attempt that failed left behind; ``at`` is None if it does not say when."""

    at: int | None
    kind: str
    type: str
    message: str


class TaskView(Protocol):
    """A task on one side of a write.  Instants are microseconds since 1970, sizes bytes of UTF-8.

    Fields are named as in ``Task``; what is not set is None.  A view of what came from outside may
    raise ArithmeticError, AttributeError, LookupError, TypeError or ValueError for any of them.
    """

    @property
    def id(self) -> str: ...
    @property
    def spot(self) -> Spot | None:
        """Where it stands; None for what is left of a task that is gone."""

    @property
    def ended(self) -> Spot | None:
        """Where a task that is gone came to its end; None for one that was deleted."""

    @property
    def label(self) -> int: ...
    @property
    def scheduled_at(self) -> int: ...
    @property
    def created_at(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def last_move(self) -> str: ...
    @property
    def due_at(self) -> int | None: ...
    @property
    def enqueued_at(self) -> int | None: ...
    @property
    def started_at(self) -> int | None: ...
    @property
    def finished_at(self) -> int | None: ...
    @property
    def expires_at(self) -> int | None: ...
    @property
    def attempts(self) -> int | None: ...
    @property
    def worker(self) -> str | None: ...
    @property
    def lease_id(self) -> str | None: ...
    @property
    def lease_expires_at(self) -> int | None: ...
    @property
    def settled_lease_id(self) -> str | None: ...
    @property
    def dead_reason(self) -> str | None: ...
    @property
    def hops(self) -> int:
        """How many queues the task has left."""

    @property
    def memberships(self) -> tuple[Membership, ...]:
        """The batches that count it, and as what."""

    @property
    def latest_error(self) -> LatestError | None: ...
    @property
    def tags(self) -> Mapping[str, str]: ...
    @property
    def payload(self) -> str | None: ...
    @property
    def payload_bytes(self) -> int | None: ...
    @property
    def result_bytes(self) -> int | None: ...
    @property
    def offloaded(self) -> tuple[OffloadedText, ...]:
        """The texts that are kept elsewhere."""

    @property
    def tells_of(self) -> str | None: ...
    def whole(self) -> Task:
        """All of it, be it without its payload; few need that, and it takes its time."""


class StoredView(NamedTuple):
    """A view of *task*; ``size`` is its payload's in bytes, where *task* came without it."""

    task: Task
    size: int | None = None

    @property
    def id(self) -> str:
        return self.task.id

    @property
    def spot(self) -> Spot | None:
        place = self.task.place
        return None if self.task.remains else (place.queue, place.state)

    @property
    def ended(self) -> Spot | None:
        place = self.task.spent or self.task.place
        return None if place.state is State.DELETED else (place.queue, place.state)

    @property
    def label(self) -> int:
        return self.task.place.label

    @property
    def scheduled_at(self) -> int:
        return micros_of(self.task.scheduled_at)

    @property
    def created_at(self) -> int:
        return micros_of(self.task.created_at)

    @property
    def version(self) -> int:
        return self.task.version

    @property
    def last_move(self) -> str:
        return self.task.last_move

    @property
    def due_at(self) -> int | None:
        return _micros(self.task.due_at)

    @property
    def enqueued_at(self) -> int | None:
        return _micros(self.task.enqueued_at)

    @property
    def started_at(self) -> int | None:
        return _micros(self.task.started_at)

    @property
    def finished_at(self) -> int | None:
        return _micros(self.task.finished_at)

    @property
    def expires_at(self) -> int | None:
        return _micros(self.task.expires_at)

    @property
    def attempts(self) -> int | None:
        return self.task.attempts

    @property
    def worker(self) -> str | None:
        return self.task.worker

    @property
    def lease_id(self) -> str | None:
        return self.task.lease_id

    @property
    def lease_expires_at(self) -> int | None:
        return _micros(self.task.lease_expires_at)

    @property
    def settled_lease_id(self) -> str | None:
        return self.task.settled_lease_id

    @property
    def dead_reason(self) -> str | None:
        return self.task.dead_reason

    @property
    def hops(self) -> int:
        return len(self.task.trail)

    @property
    def memberships(self) -> tuple[Membership, ...]:
        return self.task.batches or ()

    @property
    def latest_error(self) -> LatestError | None:
        if not self.task.errors:
            return None
        latest = self.task.errors[-1]
        return LatestError(micros_of(latest.at), latest.kind, latest.type, latest.message)

    @property
    def tags(self) -> Mapping[str, str]:
        return self.task.tags

    @property
    def payload(self) -> str | None:
        return self.task.payload

    @property
    def payload_bytes(self) -> int | None:
        if self.task.payload_ref is not None:
            return self.task.payload_ref.bytes
        return self.size if self.size is not None else _bytes(self.task.payload)

    @property
    def result_bytes(self) -> int | None:
        reference = self.task.result_ref
        return _bytes(self.task.result) if reference is None else reference.bytes

    @property
    def offloaded(self) -> tuple[OffloadedText, ...]:
        task = self.task
        found = (task.payload_ref, task.result_ref, task.progress_ref)
        return tuple(one for one in found if one is not None)

    @property
    def tells_of(self) -> str | None:
        return self.task.tells_of

    def whole(self) -> Task:
        return self.task


class TaskWrite(NamedTuple):
    """One write of one task: the task before and after it, None where there was none.

    ``sequence`` grows from write to write, at least within a shard of the log it is from.
    ``recorded_at`` is when that log saw it, in microseconds since 1970.  ``forgotten`` is a removal
    by the store itself, because the task was past its retention.
    """

    sequence: int
    recorded_at: int
    before: TaskView | None
    after: TaskView | None
    forgotten: bool = False

    @classmethod
    def of(
        cls,
        sequence: int,
        before: Task | None,
        after: Task | None,
        *,
        at: datetime,
        forgotten: bool = False,
    ) -> Self:
        """Return the write that found *before* and left *after*, both with their payloads."""
        return cls(
            sequence,
            micros_of(at),
            None if before is None else StoredView(before),
            None if after is None else StoredView(after),
            forgotten,
        )


def _micros(instant: datetime | None) -> int | None:
    return None if instant is None else micros_of(instant)


def _bytes(text: str | None) -> int | None:
    return None if text is None else len(text.encode())
