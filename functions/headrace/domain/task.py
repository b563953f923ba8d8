"""A task, the words for where it stands, and a snapshot of one that was seen."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from operator import attrgetter
from typing import Final, Literal, TypeAlias

from msgspec import Struct, field, structs

from headrace.domain.retry import RetryStrategy, Seconds


class State(StrEnum):
    """Where a task is stored.  ``scheduled_at`` of the index means something in each."""

    ENQUEUED = "ENQUEUED"  #: waiting; ``scheduled_at`` is when it falls due
    INFLIGHT = "INFLIGHT"  #: leased; ``scheduled_at`` is the end of the lease as first granted
    SUCCEEDED = "SUCCEEDED"  #: done; ``scheduled_at`` is when
    DEAD = "DEAD"  #: given up; ``scheduled_at`` is when
    DELETED = "DELETED"  #: hidden, for an undo to bring back; ``scheduled_at`` is the undo's time


SHOWN_STATES: Final = (State.ENQUEUED, State.INFLIGHT, State.SUCCEEDED, State.DEAD)
"""The states that people see: deleted tasks are hidden."""

Overwritable: TypeAlias = Literal["payload", "scheduled_at", "expires_at", "tags", "priority"]
"""The fields that an enqueue with the same dedupe key may overwrite."""

FINISHED = frozenset({State.SUCCEEDED, State.DEAD})


class Status(StrEnum):
    """The state for people; waiting tasks are SCHEDULED or READY by their due time."""

    SCHEDULED = "SCHEDULED"
    READY = "READY"
    INFLIGHT = "INFLIGHT"
    SUCCEEDED = "SUCCEEDED"
    DEAD = "DEAD"


_STATUSES: Final = {state: Status(state) for state in (State.INFLIGHT, State.SUCCEEDED, State.DEAD)}


class DeadReason(StrEnum):
    """Why a task is dead: given up, for the first that holds in this order, or cancelled."""

    REJECTED = "rejected"
    EXHAUSTED = "exhausted"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class OnExpiry(StrEnum):
    """What happens to the task of a schedule that expires before its first delivery."""

    DEAD = "dead"
    DROP = "drop"


class DedupeUntil(StrEnum):
    """How long a task keeps others of its dedupe key out."""

    START = "start"  #: until its first delivery
    END = "end"  #: until it has ended


KeyHeld: TypeAlias = Literal["start", "end"] | DedupeUntil
"""This as programs write it."""

WhenExpired: TypeAlias = Literal["dead", "drop"] | OnExpiry
"""Likewise."""


class ErrorKind(StrEnum):
    """How an attempt ended badly."""

    FAILED = "failed"
    LEASE_EXPIRED = "lease_expired"


class Priority(StrEnum):
    """Which of the due tasks of a queue come first; what else counts is how long they are due."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


Level: TypeAlias = Literal["high", "normal", "low"] | Priority
"""A priority as programs write it."""

LANES: Final = {Priority.NORMAL: 0, Priority.HIGH: 1, Priority.LOW: 2}
"""The lane that tasks of each priority wait in."""

TURN_LANE: Final = 3
"""Where tasks of a queue with groups wait that were due when they came: each has a turn."""

RETURN_LANE: Final = 4
"""The lane of tasks of such a queue that were delivered before: retries and releases."""

LANE: Final = 64
"""How many labels of index partitions a lane has: one for each shard that a queue may have."""


class Place(Struct, frozen=True, array_like=True, gc=False):
    """Where the index keeps a task: its queue, state, shard and lane.

    Lanes part the tasks of one shard that wait in different ranks; all else is in lane 0.
    """

    queue: str
    state: State
    shard: int
    lane: int = 0

    @property
    def label(self) -> int:
        """The number by which the index tells the partitions of a queue and state apart."""
        return self.lane * LANE + self.shard

    @classmethod
    def labelled(cls, queue: str, state: State, label: int) -> "Place":
        """Return the place that has this *label*."""
        return cls(queue, state, label % LANE, label // LANE)


ORDINARY: Final = frozenset({0})
"""The lanes of a queue that puts no task before another."""


def places_of(queue: str, state: State, shards: int, lanes: Iterable[int]) -> list[Place]:
    """Return the places of so many *shards* by label; only tasks that wait are in lanes."""
    used = sorted(lanes) if state is State.ENQUEUED else [0]
    return [Place(queue, state, shard, lane) for lane in used for shard in range(shards)]


@dataclass(frozen=True, slots=True)
class TaskError:
    """One attempt that did not succeed; ``started_at`` is None if unknown."""

    attempt: int
    at: datetime
    worker: str | None
    kind: ErrorKind
    type: str = ""
    message: str = ""
    detail: str = ""
    started_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Hop:
    """A queue that a task has left, and when."""

    queue: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Membership:
    """A batch that a task is counted in, by its key; see ``domain.batch``.

    It is *inherited* if a member's report made the task, and named it into the batch too.
    ``spawned`` is the sum of the hashes of the children that it spawned, modulo 2^64.
    """

    batch: str
    inherited: bool = False
    spawned: int = 0

    @property
    def batch_id(self) -> str:
        """The id of the batch, without the generation that its key adds."""
        return self.batch.partition(".")[0]


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """A batch as it stood when it made a callback: ``total`` counts all its members.

    ``relay`` is set by the service alone: the callback stands for the members of the batch.
    """

    id: str
    total: int
    succeeded: int
    dead: int
    deleted: int
    relay: bool = False


@dataclass(frozen=True, slots=True)
class OffloadedText:
    """A text of a task kept outside of it: the name of the object, its size and its digest."""

    name: str
    bytes: int
    sha256: str


OFFLOADED: Final = {"payload": "payload_ref", "result": "result_ref", "progress": "progress_ref"}
"""The fields whose text may be kept elsewhere, and of each the field that then says where."""

_references_of: Final = attrgetter(*OFFLOADED.values())


class Task(Struct, frozen=True, omit_defaults=True, gc=False):
    """A task as stored; ``task_fields`` says who sets and what clears each field.

    ``scheduled_at`` is the sort key of the index (see State); ``due_at`` is the due time the
    task was last scheduled for, which the API shows under the name ``scheduled_at``.
    ``payload``, ``result`` and ``progress`` are JSON texts, exactly as given.  ``payload`` is None
    if it was not read.  ``…_ref`` is set for a text that is kept elsewhere (see
    ``domain.offload``); the text is None until it was fetched.
    ``settled_*`` are of the report that ended the last delivery: its lease, action and digest.
    ``ended_in`` is set in a tombstone, which keeps the id until ``retained_until``, so that a
    repeated enqueue creates no second task.
    ``enqueued_at`` is the beginning of its life in this queue (enqueue, move or restart),
    ``returned_at`` of its latest wait there (release, retry, move or restart).
    ``slot`` counts the latest delivery under a limit (see ``domain.slots``).
    ``priority`` is None if its queue had no priorities when the task came there.
    ``batches`` count the task; ``batch`` is the one that made it, as a callback.
    ``turn`` is its place in the lane of turns, and ``after`` the place before its own in the line
    of a strict group; see ``domain.task_groups``.
    ``has_progress`` is set if the latest delivery reported ``progress``.
    ``reports_end_of`` is the id of the ended task that a webhook is about.
    ``deleted_*`` are of a DELETED task: the undo, and its state and retention before.
    """

    id: str
    place: Place
    scheduled_at: datetime
    due_at: datetime
    created_at: datetime
    enqueued_at: datetime
    payload: str | None = None
    expires_at: datetime | None = None
    retained_until: datetime | None = None
    returned_at: datetime | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    dedupe_key: str | None = None
    schedule: str | None = None
    keepalive: Seconds | None = None
    retry: RetryStrategy | None = None
    attempts: int = 0
    version: int = 1
    last_move: str = "enqueue"
    lease_id: str | None = None
    lease_expires_at: datetime | None = None
    lease_length: timedelta | None = None
    worker: str | None = None
    progress: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    result: str | None = None
    dead_reason: DeadReason | None = None
    errors: tuple[TaskError, ...] = ()
    trail: tuple[Hop, ...] = ()
    settled_lease_id: str | None = None
    settled_status: str | None = None
    settled_digest: str | None = None
    enqueue_token: str | None = None
    slot: str | None = None
    ended_in: Place | None = None
    priority: Priority | None = None
    batches: tuple[Membership, ...] | None = None
    batch: BatchEnd | None = None
    deleted_by: str | None = None
    deleted_from: State | None = None
    deleted_retention: datetime | None = None
    payload_ref: OffloadedText | None = None
    result_ref: OffloadedText | None = None
    progress_ref: OffloadedText | None = None
    group_key: str | None = None
    turn: datetime | None = None
    reports_end_of: str | None = None
    after: str | None = None
    on_expiry: OnExpiry | None = None
    dedupe_until: DedupeUntil | None = None
    has_progress: bool | None = None
    note: str | None = None

    @property
    def queue(self) -> str:
        """The queue the task is in."""
        return self.place.queue

    @property
    def state(self) -> State:
        """The stored state."""
        return self.place.state

    @property
    def last_progress(self) -> str | None:
        """The progress that an earlier delivery left to the present one."""
        past = self.place.state is State.INFLIGHT and not self.has_progress
        return self.progress if past else None

    @property
    def own_progress(self) -> str | None:
        """The progress of the latest delivery."""
        return self.progress if self.has_progress else None

    @property
    def batch_ids(self) -> tuple[str, ...]:
        """The ids of the batches that count the task."""
        return tuple(one.batch_id for one in self.batches) if self.batches else ()

    @property
    def batch_keys(self) -> tuple[str, ...]:
        """Their keys: an id may be used again when its batch was deleted."""
        return tuple(one.batch for one in self.batches or ())

    @property
    def is_tombstone(self) -> bool:
        """Whether only a tombstone is left: an id, or the whole task for an undo."""
        return self.ended_in is not None or self.place.state is State.DELETED

    @property
    def offloaded(self) -> dict[str, OffloadedText]:
        """What is kept elsewhere, by the field whose text it is."""
        if not any(_references_of(self)):  # as with most tasks, and this is asked of each
            return {}
        found = ((name, getattr(self, where)) for name, where in OFFLOADED.items())
        return {name: one for name, one in found if one is not None}

    @property
    def uploaded(self) -> OffloadedText | None:
        """Its payload, if its producer uploaded it; the service never reads that."""
        one = self.payload_ref
        return one if one is not None and "/up." in one.name else None

    @property
    def fetchable(self) -> dict[str, OffloadedText]:
        """The texts kept elsewhere that are fetched before the task is shown or delivered."""
        found = self.offloaded
        if found and self.uploaded is not None:
            del found["payload"]
        return found

    def status(self, now: datetime) -> Status:
        """Return the state as people see it at *now*."""
        state = self.place.state
        if state is not State.ENQUEUED:
            return _STATUSES[state]
        return Status.READY if self.due_at <= now else Status.SCHEDULED

    def is_hidden(self, now: datetime) -> bool:
        """Return whether the task is past its retention or deleted, and so hidden."""
        over = self.retained_until is not None and self.retained_until <= now
        return over or self.is_tombstone

    def has_id(self, now: datetime) -> bool:
        """Return whether the id is taken, if only by a tombstone."""
        return not self.is_hidden(now) or (
            self.ended_in is not None
            and self.retained_until is not None
            and self.retained_until > now
        )

    def same_as(self, other: "Task | None") -> bool:
        """Return whether *other* is this task at another time; a later task may have the id."""
        return other is not None and (self.id, self.created_at) == (other.id, other.created_at)

    def holds(self, queue: str, dedupe_key: str, now: datetime) -> bool:
        """Return whether the task keeps others of its dedupe key out of *queue*."""
        return (self.queue, self.dedupe_key) == (queue, dedupe_key) and self.is_live(now)

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.dead_reason is DeadReason.CANCELLED

    def is_live(self, now: datetime) -> bool:
        """Return whether the task waits or is in flight; past its expiry it does not wait."""
        if self.state is State.ENQUEUED:
            return self.expires_at is None or self.expires_at > now
        return self.state is State.INFLIGHT


def without_texts(task: Task, names: Iterable[str] = tuple(OFFLOADED)) -> Task:
    """Return *task* without these texts, and without saying where they are kept."""
    fields = [field for name in names for field in (name, OFFLOADED[name])]
    if all(getattr(task, name) is None for name in fields):
        return task
    return structs.replace(task, **dict.fromkeys(fields))


LIVE: Final = frozenset({State.ENQUEUED, State.INFLIGHT})
