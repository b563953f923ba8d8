"""Tasks in answers: as they stand, as they are leased, and what became of what was requested."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.domain.task import DedupeUntil, Priority, State, Status
from headrace.wire.base import Answer, At, ByState, Carrying, Cursor, JsonValue, nothing, words_of


class TaskError(Answer, frozen=True, kw_only=True):
    """One attempt that did not succeed.

    Shows ``headrace.domain.task.TaskError``.
    """

    attempt: int
    at: At
    worker: str | None
    kind: Annotated[Literal["failed", "lease_expired"], words_of("ErrorKind")]
    type: str
    message: str
    detail: str


class Hop(Answer, frozen=True, kw_only=True):
    """A queue that the task has left, and when.

    Shows ``headrace.domain.task.Hop``.
    """

    queue: Annotated[str | None, Meta(description="null: one that the key is not for.")]
    at: At


class BatchEnd(Answer, frozen=True, kw_only=True):
    """The batch whose callback a task is, as it stood then.

    Shows ``headrace.domain.task.BatchEnd``.
    """

    id: str
    total: Annotated[int, Meta(description="All members, spawned ones too.")]
    succeeded: int
    dead: int
    deleted: int


class Lease(Answer, frozen=True, kw_only=True):
    """What a report must name, and how long it is good for."""

    id: str
    expires_at: At


class Leased(Answer, frozen=True, kw_only=True):
    """A group lease."""

    lease: Lease
    cancelled: Annotated[
        list[str],
        Meta(description="The ids of tasks that were cancelled under it; left out for none."),
    ] = msgspec.field(default_factory=list)


class Task(Carrying, frozen=True, kw_only=True):
    """A task with its payload.

    Shows ``headrace.domain.task.Task``; programs that use the SDK read ``payload``, ``result`` and
    ``progress`` of it.  The payload is left out if it was not requested, or the key may not see it.
    """

    id: str
    queue: str
    state: State
    status: Annotated[
        Status,
        Meta(description="The state, with SCHEDULED or READY instead of ENQUEUED."),
    ]
    payload_json: msgspec.Raw = msgspec.field(name="payload", default_factory=nothing)
    tags: dict[str, str]
    dedupe_key: str | None
    created_at: At
    scheduled_at: Annotated[At, Meta(description="The due time it was last scheduled for.")]
    expires_at: At | None
    attempts: int
    max_retries: int
    keepalive_timeout_in_seconds: Annotated[
        float | None, Meta(description="The task's own; null: as its queue says.")
    ]
    lease_expires_at: At | None
    worker: str | None
    progress_json: msgspec.Raw = msgspec.field(name="progress", default_factory=nothing)
    started_at: At | None
    finished_at: At | None
    result_json: msgspec.Raw = msgspec.field(name="result", default_factory=nothing)
    dead_reason: (
        Annotated[Literal["rejected", "exhausted", "expired", "cancelled"], words_of("DeadReason")]
        | None
    )
    errors: list[TaskError]
    trail: list[Hop]
    retained_until: At | None
    schedule: str | None
    priority: Annotated[
        Priority | None,
        Meta(description="null: its queue had no priorities when the task came there."),
    ] = None
    group_key: Annotated[str | None, Meta(description="The key of its group.")] = None
    note: Annotated[str | None, Meta(description="A text for people.")] = None
    batches: Annotated[list[str], Meta(description="The batches that count it.")] = msgspec.field(
        default_factory=list
    )
    batch: Annotated[BatchEnd | None, Meta(description="Of a callback, else null.")] = None
    dedupe_until: Annotated[
        DedupeUntil | msgspec.UnsetType,
        Meta(description="`start`: the key is free from the first delivery on; else left out."),
    ] = msgspec.UNSET
    last_progress_json: Annotated[
        msgspec.Raw,
        Meta(
            description="Of a task in flight, else left out: the last progress that an earlier "
            "delivery reported; null after a restart or a move, and once this delivery has "
            "reported its own."
        ),
    ] = msgspec.field(name="last_progress", default_factory=nothing)
    payload_url: Annotated[
        str | msgspec.UnsetType,
        Meta(description="Of an uploaded payload: where to GET it, within an hour."),
    ] = msgspec.UNSET
    payload_bytes: Annotated[
        int | msgspec.UnsetType, Meta(description="How large that is, in bytes.")
    ] = msgspec.UNSET
    payload_sha256: Annotated[str | msgspec.UnsetType, Meta(description="Its sha256, in hex.")] = (
        msgspec.UNSET
    )

    @property
    def payload(self) -> JsonValue:
        """What it carries; None where that was not requested.  Raises Unreadable."""
        return self.decoded("payload", self.payload_json)

    @property
    def result(self) -> JsonValue:
        """The result.  Raises Unreadable."""
        return self.decoded("result", self.result_json)

    @property
    def progress(self) -> JsonValue:
        """How far its worker says it is.  Raises Unreadable."""
        return self.decoded("progress", self.progress_json)

    @property
    def last_progress(self) -> JsonValue:
        """The progress that an earlier delivery left to this one.  Raises Unreadable."""
        return self.decoded("last_progress", self.last_progress_json)

    def __repr__(self) -> str:
        """A short form for logs, without the payload."""
        return f"<{type(self).__name__} {self.id} of {self.queue}: {self.status.value}>"


class CancelledTask(Task, frozen=True, kw_only=True):
    """A task that was cancelled: as it is kept, or as it was where its queue keeps no dead ones."""

    state: Annotated[  # type: ignore[assignment]  # wider: only here a task may be gone
        State | None, Meta(description="null when nothing is kept of the task.")
    ]


class LeasedTask(Task, frozen=True, kw_only=True):
    """A task handed out."""

    lease: Lease


class Tasks(Answer, frozen=True, kw_only=True):
    """A page of tasks; it may be short and still have a cursor."""

    tasks: Annotated[list[Task], Meta(description="Payloads only when asked for.")]
    cursor: Cursor


# ------------------------------------------------------------------------ what became of requests


class Enqueued(Answer, frozen=True, kw_only=True):
    """What became of one entry."""

    outcome: Annotated[
        Literal["CREATED", "EXISTING", "DUPLICATE", "OVERWRITTEN", "INVALID"],
        words_of("EnqueueOutcome"),
    ]
    id: str | None
    task: Annotated[
        Task | None,
        Meta(
            description="null for one that is EXISTING in another queue, or done and not kept, "
            "and with INVALID."
        ),
    ]
    queue: Annotated[
        str | None,
        Meta(description="Where the task is; null: unknown to this key, or no task."),
    ] = None
    detail: str | None

    def __repr__(self) -> str:
        """A short form for people."""
        why = f": {self.detail}" if self.detail else ""
        return f"<Enqueued {self.outcome} {self.id}{why}>"


class EnqueueResults(Answer, frozen=True, kw_only=True):
    """One result for each entry, in their order."""

    results: list[Enqueued]


class Dequeued(Answer, frozen=True, kw_only=True):
    """The tasks handed out, in order of their due time and priority."""

    tasks: list[LeasedTask]
    now: At
    poll_after_seconds: Annotated[float, Meta(description="When an idle worker should ask again.")]


class Spawned(Answer, frozen=True, kw_only=True):
    """What became of a task spawned: made, or there already, which counts as done."""

    outcome: Literal["CREATED", "EXISTING", "DUPLICATE"]
    id: Annotated[
        str | None,
        Meta(
            description="Of a duplicate, the task that holds the key; null if a report is repeated "
            "and no task holds it now."
        ),
    ]


class Reported(Answer, frozen=True, kw_only=True):
    """What became of one report.

    Shows ``now``, the service's time, to programs that use the SDK: the whole answer has it.
    """

    task_id: str
    outcome: Annotated[
        Literal["OK", "NOT_FOUND", "NOT_INFLIGHT", "STALE_LEASE", "INVALID"],
        words_of("ReportOutcome"),
    ]
    state: Annotated[State | None, Meta(description="null when nothing is kept of the task.")]
    scheduled_at: At | None
    lease: Lease | None
    spawned: Annotated[list[Spawned], Meta(description="In the order they were named.")]
    detail: str | None
    dead_reason: Annotated[
        Annotated[Literal["rejected", "exhausted", "expired", "cancelled"], words_of("DeadReason")]
        | None,
        Meta(description="Of NOT_INFLIGHT: why the task is dead. Left out unless it is."),
    ] = None
    now: At | None = None


class ReportResults(Answer, frozen=True, kw_only=True):
    """One result for each report, in their order."""

    results: list[Reported]
    now: At


class Count(Answer, frozen=True, kw_only=True):
    """How many tasks this step has counted; the sum of all steps is how many there are."""

    count: int
    by_state: ByState
    exact: Annotated[
        bool, Meta(description="`false`: too many to look at in one call; at least so many.")
    ]
    as_of: Annotated[At, Meta(description="When the first step was.")]
    partial: Annotated[bool, Meta(description="Whether there are more, for `cursor` to count.")] = (
        False
    )
    cursor: Cursor = None


class Reason(Answer, frozen=True, kw_only=True):
    """One reason why a task is not running."""

    code: Annotated[str, words_of("ReasonCode")]
    detail: str
    until: Annotated[At | None, Meta(description="When it ends, if that is known.")]


class Explained(Answer, frozen=True, kw_only=True):
    """Every reason why a task is not running; none: it goes to the next worker that asks."""

    reasons: list[Reason]


class BulkResult(Answer, frozen=True, kw_only=True):
    """What became of one task."""

    id: str
    outcome: Literal[
        "DELETED", "RESTARTED", "DUE", "MOVED", "CANCELLED", "RESTORED", "NOT_FOUND", "SKIPPED"
    ]
    detail: Annotated[
        str | None,
        Meta(description="Of SKIPPED: `inflight`, `not_dead`, `dedupe_conflict`, or a text."),
    ]


class Undoable(Answer, frozen=True, kw_only=True):
    """What brings back what was deleted, and until when."""

    id: Annotated[str, Meta(description="For `POST /v1/undos/{id}`.")]
    until: At


class UploadGranted(Answer, frozen=True, kw_only=True):
    """Where to PUT a payload, and what to say of it in an enqueue then."""

    payload_ref: Annotated[
        str, Meta(description="What an enqueue or a spawn says instead of `payload`, once.")
    ]
    url: str
    headers: Annotated[dict[str, str], Meta(description="To send with the PUT, just so.")]
    expires_at: Annotated[At, Meta(description="Until when to upload and to enqueue it.")]


class DeletedTask(Answer, frozen=True, kw_only=True):
    """What brings a deleted task back."""

    undo: Undoable


class Bulk(Answer, frozen=True, kw_only=True):
    """How many tasks the action takes and how many it changed."""

    matched: Annotated[int, Meta(description="What the action would take.")]
    changed: Annotated[int, Meta(description="What it did; 0 in a dry run.")]
    results: Annotated[
        list[BulkResult], Meta(description="One for each of `ids`; none with a filter.")
    ]
    cursor: Annotated[
        str | None, Meta(description="Send it back to go on; null: that was all.")
    ] = None
    undo: Annotated[
        Undoable | None, Meta(description="Only where `undo_in_seconds` was given.")
    ] = None


# ------------------------------------------------------------------------ as QuantumLeap shows them


class NotificationRuntime(Answer, frozen=True, kw_only=True):
    """How it is with a notification, in QuantumLeap's words."""

    task_id: str
    task_type: str
    status: Literal["pending", "succeeded", "failed"]
    retries_left: Annotated[int | None, Meta(description="null: no retries.")]
    errors: Annotated[list[str], Meta(description="Of every attempt that failed, in order.")]


class NotificationInput(Answer, frozen=True, kw_only=True):
    """What came with a notification."""

    fiware_service: str | None
    fiware_service_path: str | None
    fiware_correlator: str | None
    payload: Annotated[
        msgspec.Raw,
        Meta(
            description="Its `data`, exactly as it came in.",
            extra_json_schema={"type": "array", "items": {}},
        ),
    ]


class Notification(Answer, frozen=True, kw_only=True):
    """A notification in the queue, as QuantumLeap shows it."""

    runtime: NotificationRuntime
    input: NotificationInput
