"""What the API answers, as typed structs.  Instants are aware datetimes, durations seconds.

Fields that a newer service adds are passed over.  Payload, result and progress are decoded when
they are first read, so that one which cannot be read here costs nobody else anything.
"""

from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from headrace.client.codec import NULL, PLAIN, Codec
from headrace.domain.queue import DeadLetterConfig, DequeuingSettings
from headrace.domain.retry import RetryStrategy
from headrace.domain.task import State, Status

_NOTHING: Final = msgspec.Raw(NULL)


class Model(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The base of every answer."""


# ---------------------------------------------------------------------------------------- queues


class Counts(Model, frozen=True, kw_only=True):
    """How many tasks a queue has."""

    scheduled: int
    ready: int
    inflight: int
    succeeded: int
    dead: int


class Rates(Model, frozen=True, kw_only=True):
    """Events per second."""

    enqueued_per_second: float
    dequeued_per_second: float
    succeeded_per_second: float
    failed_per_second: float


class Stats(Model, frozen=True, kw_only=True):
    """A queue at a glance, and how old that is."""

    counts: Counts
    age_of_oldest_ready_seconds: float | None
    age_of_oldest_inflight_seconds: float | None
    rates: Rates
    as_of: datetime
    staleness_seconds: float


class Point(Model, frozen=True, kw_only=True):
    """One step of a series; waits and runs in seconds.

    Numbers are None where the service has them no longer, or not yet from the lake.
    """

    at: datetime
    enqueued: int | None
    started: int | None
    succeeded: int | None
    failed: int | None
    dead: int | None
    wait_p50: float | None
    wait_p99: float | None
    run_p50: float | None
    run_p99: float | None


class Metrics(Model, frozen=True, kw_only=True):
    """A series without gaps."""

    points: list[Point]
    step_seconds: int
    as_of: datetime
    staleness_seconds: float


class ScheduleInShort(Model, frozen=True, kw_only=True):
    """A schedule as its queue shows it."""

    name: str
    cron: str | None
    every_seconds: float | None
    timezone: str
    paused: bool
    next_run_at: datetime | None


class Schedule(ScheduleInShort, frozen=True, kw_only=True):
    """A schedule and its settings."""

    tags: dict[str, str]
    dedupe_key: str | None
    expires_in_seconds: float | None
    keepalive_timeout_in_seconds: float | None
    retry_strategy: RetryStrategy | None
    last_run_at: datetime | None
    created_at: datetime
    updated_at: datetime
    payload_json: msgspec.Raw = msgspec.field(name="payload", default=_NOTHING)

    @property
    def payload(self) -> Any:  # noqa: ANN401 (any JSON value)
        """What its tasks carry; None to a viewer.  Raises Unreadable."""
        return _decoded(self, "payload", self.payload_json)


class Queue(Model, frozen=True, kw_only=True):
    """A queue and its settings; ``stats`` and ``schedules`` only where one queue was requested."""

    name: str
    description: str
    keepalive_timeout_in_seconds: float
    expires_in_seconds: float
    retry_strategy: RetryStrategy
    dequeuing_settings: DequeuingSettings
    dead_letter_queue_config: DeadLetterConfig
    history_retention_in_seconds: float
    shards: int
    created_at: datetime
    updated_at: datetime
    version: int
    stats: Stats | None = None
    schedules: list[ScheduleInShort] | None = None


class Recount(Model, frozen=True, kw_only=True):
    """What a queue that was counted anew has, and what its counters held before."""

    counts: dict[State, int]
    was: dict[State, int]
    cursor: str | None = None


class Purged(Model, frozen=True, kw_only=True):
    """How many tasks a purge has removed so far, and whether it goes on by itself."""

    deleted: int
    in_background: bool = False


# ----------------------------------------------------------------------------------------- tasks


class TaskError(Model, frozen=True, kw_only=True):
    """One attempt that did not succeed."""

    attempt: int
    at: datetime
    worker: str | None
    kind: Literal["failed", "lease_expired"]
    type: str
    message: str
    detail: str


class Hop(Model, frozen=True, kw_only=True):
    """A queue that a task has left, and when; None for one that the key is not for."""

    queue: str | None
    at: datetime


class Lease(Model, frozen=True, kw_only=True):
    """What a report must name, and how long it is good for."""

    id: str
    expires_at: datetime


class Task(Model, frozen=True, kw_only=True):
    """A task as it stands."""

    id: str
    queue: str
    state: State
    status: Status
    tags: dict[str, str]
    dedupe_key: str | None
    created_at: datetime
    scheduled_at: datetime
    expires_at: datetime | None
    attempts: int
    max_retries: int
    keepalive_timeout_in_seconds: float | None
    lease_expires_at: datetime | None
    worker: str | None
    started_at: datetime | None
    finished_at: datetime | None
    dead_reason: Literal["rejected", "exhausted", "expired"] | None
    errors: list[TaskError]
    trail: list[Hop]
    retained_until: datetime | None
    schedule: str | None
    payload_json: msgspec.Raw = msgspec.field(name="payload", default=_NOTHING)
    result_json: msgspec.Raw = msgspec.field(name="result", default=_NOTHING)
    progress_json: msgspec.Raw = msgspec.field(name="progress", default=_NOTHING)

    @property
    def payload(self) -> Any:  # noqa: ANN401 (any JSON value)
        """What it carries; None where that was not requested.  Raises Unreadable."""
        return _decoded(self, "payload", self.payload_json)

    @property
    def result(self) -> Any:  # noqa: ANN401 (any JSON value)
        """The result.  Raises Unreadable."""
        return _decoded(self, "result", self.result_json)

    @property
    def progress(self) -> Any:  # noqa: ANN401 (any JSON value)
        """How far its worker says it is.  Raises Unreadable."""
        return _decoded(self, "progress", self.progress_json)

    def __repr__(self) -> str:
        """A short form for logs, without the payload."""
        return f"<{type(self).__name__} {self.id} of {self.queue}: {self.status.value}>"


class LeasedTask(Task, frozen=True, kw_only=True):
    """A task handed out to a worker."""

    lease: Lease


class Enqueued(Model, frozen=True, kw_only=True):
    """The outcome of one entry of an enqueue.

    ``queue`` is where its task is.  One that is EXISTING in another queue has no ``task`` here, and
    no ``queue`` either where the key may not know it; nor has one that is done and was not kept.
    """

    outcome: Literal["CREATED", "EXISTING", "DUPLICATE", "OVERWRITTEN", "INVALID"]
    id: str | None
    task: Task | None
    detail: str | None
    queue: str | None = None

    def __repr__(self) -> str:
        """A short form for people."""
        why = f": {self.detail}" if self.detail else ""
        return f"<Enqueued {self.outcome} {self.id}{why}>"


class Dequeued(Model, frozen=True, kw_only=True):
    """The tasks handed out, the service's time, and when an idle worker should ask again."""

    tasks: list[LeasedTask]
    now: datetime
    poll_after_seconds: float


class Spawned(Model, frozen=True, kw_only=True):
    """The outcome of a task spawned by a report."""

    outcome: Literal["CREATED", "EXISTING", "DUPLICATE"]
    id: str


class Reported(Model, frozen=True, kw_only=True):
    """The outcome of one report; ``now`` is the service's time."""

    task_id: str
    outcome: Literal["OK", "NOT_FOUND", "NOT_INFLIGHT", "STALE_LEASE", "INVALID"]
    state: State | None
    scheduled_at: datetime | None
    lease: Lease | None
    spawned: list[Spawned]
    detail: str | None
    now: datetime | None = None


class Count(Model, frozen=True, kw_only=True):
    """How many tasks there are; ``partial``: so many are counted, and ``cursor`` goes on."""

    count: int
    by_state: dict[State, int]
    exact: bool
    as_of: datetime
    partial: bool = False
    cursor: str | None = None


class Reason(Model, frozen=True, kw_only=True):
    """One reason why a task is not running, and when it ends, if that is known."""

    code: str
    detail: str
    until: datetime | None


class BulkResult(Model, frozen=True, kw_only=True):
    """The outcome for one task that was named."""

    id: str
    outcome: Literal["DELETED", "RESTARTED", "DUE", "MOVED", "NOT_FOUND", "SKIPPED"]
    detail: str | None


class Bulk(Model, frozen=True, kw_only=True):
    """How many tasks an action takes, how many it changed, and the result of each one named."""

    matched: int
    changed: int
    results: list[BulkResult]
    cursor: str | None = None


# ---------------------------------------------------------------------------------- for operators


class Key(Model, frozen=True, kw_only=True):
    """A key, as it is listed."""

    id: str
    name: str
    role: str
    queues: list[str]
    prefix: str
    created_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = None


class NewKey(Key, frozen=True, kw_only=True):
    """A key just made or rotated: its secret is shown this once, and in no ``repr``."""

    secret: str

    def __repr__(self) -> str:
        """A short form for logs, without secrets."""
        return f"NewKey(id={self.id!r}, name={self.name!r}, role={self.role!r})"


class AuditEntry(Model, frozen=True, kw_only=True):
    """One thing that was changed by hand; ``actor_id`` is the key's, None for the service."""

    at: datetime
    actor: str
    actor_id: str | None = None
    action: str
    queue: str | None
    filter: dict[str, Any] | None
    ids: list[str] | None
    matched: int | None
    changed: int | None
    request_id: str | None


class WorkerSeen(Model, frozen=True, kw_only=True):
    """A worker that has sent a heartbeat."""

    name: str
    queues: list[str]
    concurrency: int
    running: list[str] | None  # None to a key that may not see all of its queues
    version: str | None
    started_at: datetime
    seen_at: datetime
    command: str | None


class Health(Model, frozen=True, kw_only=True):
    """The service and its tables answer."""

    status: str
    version: str
    now: datetime


def remember_codec(task: Task | Schedule, codec: Codec) -> None:
    """Let what *task* carries be read by *codec* from now on."""
    task.__dict__["codec"] = codec


def _decoded(model: Model, name: str, text: msgspec.Raw) -> Any:  # noqa: ANN401 (any JSON value)
    """The value of *text*, of the field *name*: decoded once, then kept."""
    known = model.__dict__
    if name not in known:
        raw = bytes(text)
        codec: Codec = known.get("codec", PLAIN)
        known[name] = None if raw == NULL else codec.decode(raw)
    return known[name]
