"""A row of the log as the recorder reads it: a field when it is asked for, never a whole Task."""

from collections.abc import Mapping
from datetime import datetime
from operator import attrgetter
from typing import Any, Final, NamedTuple

from headrace.domain.instants import micros_of
from headrace.domain.task import OFFLOADED, Membership, OffloadedText, Place, State, Task
from headrace.domain.write import LatestError, Spot
from headrace.store.sqlite.rows import STATES, task_of, text_of

_references_of: Final = attrgetter(*OFFLOADED.values())


class RowView(NamedTuple):
    """A view of a row (see ``TaskView``).

    *known* is its rest, decoded; *inside_bytes* stands in the row where the payload does not.
    """

    id: str
    queue: str | None
    state: str | None
    in_label: int | None
    scheduled_at: int
    expires_at: int | None
    retained_until: int | None
    due_at: int | None
    known: Any
    inside_bytes: int | None
    payload: str | None

    @property
    def spot(self) -> Spot | None:
        if self.queue is None or self.state is None or self.state == State.DELETED:
            return None
        return self.queue, STATES[self.state]

    @property
    def ended(self) -> Spot | None:
        spent: Place | None = self.known.spent
        if spent is not None:
            return spent.queue, spent.state
        if self.state == State.DELETED:
            return None
        spot = self.spot
        if spot is None:
            raise LookupError("a row without a place and without an end")
        return spot

    @property
    def label(self) -> int:
        label: int = self.known.spent.label if self.in_label is None else self.in_label
        return label

    @property
    def created_at(self) -> int:
        return micros_of(self.known.created_at)

    @property
    def version(self) -> int:
        version: int = self.known.version
        return version

    @property
    def last_move(self) -> str:
        move: str = self.known.last_move
        return move

    @property
    def enqueued_at(self) -> int | None:
        return _micros(self.known.enqueued_at)

    @property
    def started_at(self) -> int | None:
        return _micros(self.known.started_at)

    @property
    def finished_at(self) -> int | None:
        return _micros(self.known.finished_at)

    @property
    def attempts(self) -> int | None:
        attempts: int = self.known.attempts
        return attempts

    @property
    def worker(self) -> str | None:
        worker: str | None = self.known.worker
        return worker

    @property
    def lease_id(self) -> str | None:
        lease: str | None = self.known.lease_id
        return lease

    @property
    def lease_expires_at(self) -> int | None:
        return _micros(self.known.lease_expires_at)

    @property
    def settled_lease_id(self) -> str | None:
        lease: str | None = self.known.settled_lease_id
        return lease

    @property
    def dead_reason(self) -> str | None:
        reason: str | None = self.known.dead_reason
        return reason

    @property
    def hops(self) -> int:
        return len(self.known.trail)

    @property
    def memberships(self) -> tuple[Membership, ...]:
        members: tuple[Membership, ...] | None = self.known.batches
        return members or ()

    @property
    def latest_error(self) -> LatestError | None:
        errors = self.known.errors
        if not errors:
            return None
        latest = errors[-1]
        return LatestError(micros_of(latest.at), latest.kind, latest.type, latest.message)

    @property
    def tags(self) -> Mapping[str, str]:
        tags: Mapping[str, str] | None = self.known.tags
        return tags or {}

    @property
    def payload_bytes(self) -> int | None:
        reference: OffloadedText | None = self.known.payload_ref
        return self.inside_bytes if reference is None else reference.bytes

    @property
    def result_bytes(self) -> int | None:
        result: str | None = self.known.result
        reference: OffloadedText | None = self.known.result_ref
        if reference is not None:
            return reference.bytes
        return None if result is None else len(result.encode())

    @property
    def offloaded(self) -> tuple[OffloadedText, ...]:
        found = _references_of(self.known)
        return tuple(one for one in found if one is not None) if any(found) else ()

    @property
    def tells_of(self) -> str | None:
        told: str | None = self.known.tells_of
        return told

    def whole(self) -> Task:
        return task_of(
            (
                *(self.id, self.queue, self.state, self.in_label, self.scheduled_at),
                *(self.expires_at, self.retained_until, self.due_at, text_of(self.known), None),
            )
        )


def _micros(instant: datetime | None) -> int | None:
    return None if instant is None else micros_of(instant)
