"""Tasks in answers: their state, their leases, and the outcomes of requests."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.domain.task import DedupeUntil, Priority, State, Status
from headrace.wire.base import (
    SDK_ONLY,
    SOMETIMES,
    Answer,
    At,
    ByState,
    Carrying,
    Cursor,
    JsonValue,
    nothing,
    words_of,
)


class TaskError(Answer, frozen=True, kw_only=True):
    """A failed attempt.

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

    queue: Annotated[str | None, Meta(description="null: a queue that the key is not for.")]
    at: At


class BatchEnd(Answer, frozen=True, kw_only=True):
    """The batch that enqueued a callback, as it was at that time.

    Shows ``headrace.domain.task.BatchEnd``.
    """

    id: str
    total: Annotated[int, Meta(description="All members, spawned ones too.")]
    succeeded: int
    dead: int
    deleted: int


class Lease(Answer, frozen=True, kw_only=True):
    """The lease that a report must name, and its end."""

    id: str
    expires_at: At


class Leased(Answer, frozen=True, kw_only=True):
    """A group lease."""

    lease: Lease
    cancelled: Annotated[
        list[str],
        Meta(description="The ids of its cancelled tasks; left out if there are none."),
        SOMETIMES,
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
        SOMETIMES,
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
        """The payload; None if it was not requested.  Raises Unreadable."""
        return self.decoded("payload", self.payload_json)

    @property
    def result(self) -> JsonValue:
        """The result.  Raises Unreadable."""
        return self.decoded("result", self.result_json)

    @property
    def progress(self) -> JsonValue:
        """The progress that the worker reported.  Raises Unreadable."""
        return self.decoded("progress", self.progress_json)

    @property
    def last_progress(self) -> JsonValue:
        """The last progress of an earlier delivery.  Raises Unreadable."""
        return self.decoded("last_progress", self.last_progress_json)

    def __repr__(self) -> str:
        """Return a short form for logs, without the payload."""
        return f"<{type(self).__name__} {self.id} of {self.queue}: {self.status.value}>"


class CancelledTask(Task, frozen=True, kw_only=True):
    """A cancelled task; if the queue keeps no dead tasks, the task as it was before."""

    state: Annotated[  # type: ignore[assignment]  # wider: only here a task may be gone
        State | None, Meta(description="null if the task is not kept.")
    ]


class LeasedTask(Task, frozen=True, kw_only=True):
    """A task with its lease."""

    lease: Lease


class Tasks(Answer, frozen=True, kw_only=True):
    """A page of tasks; it may be short and still have a cursor."""

    tasks: Annotated[list[Task], Meta(description="Payloads only when asked for.")]
    cursor: Cursor


# ---------------------------------------------------------------------------- outcomes of requests


class Enqueued(Answer, frozen=True, kw_only=True):
    """The outcome of one entry."""

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
        """Return a short form for people."""
        why = f": {self.detail}" if self.detail else ""
        return f"<Enqueued {self.outcome} {self.id}{why}>"


class EnqueueResults(Answer, frozen=True, kw_only=True):
    """One result for each entry, in their order."""

    results: list[Enqueued]


class Dequeued(Answer, frozen=True, kw_only=True):
    """The leased tasks, in order of their due time and priority."""

    tasks: list[LeasedTask]
    now: At
    poll_after_seconds: Annotated[float, Meta(description="When an idle worker should ask again.")]


class Spawned(Answer, frozen=True, kw_only=True):
    """The outcome of a spawned task: created, or it existed, which counts as done."""

    outcome: Literal["CREATED", "EXISTING", "DUPLICATE"]
    id: Annotated[
        str | None,
        Meta(
            description="Of a duplicate, the task that holds the key; null if a report is repeated "
            "and no task holds it now."
        ),
    ]


class Reported(Answer, frozen=True, kw_only=True):
    """The outcome of one report.

    Shows ``now``, the service's time, to programs that use the SDK: the whole answer has it.
    """

    task_id: str
    outcome: Annotated[
        Literal["OK", "NOT_FOUND", "NOT_INFLIGHT", "STALE_LEASE", "INVALID"],
        words_of("ReportOutcome"),
    ]
    state: Annotated[State | None, Meta(description="null if the task is not kept.")]
    scheduled_at: At | None
    lease: Lease | None
    spawned: Annotated[list[Spawned], Meta(description="In the order they were named.")]
    detail: str | None
    dead_reason: Annotated[
        Annotated[Literal["rejected", "exhausted", "expired", "cancelled"], words_of("DeadReason")]
        | None,
        Meta(description="Of NOT_INFLIGHT: why the task is dead. Left out unless it is."),
        SOMETIMES,
    ] = None
    now: Annotated[At | None, SDK_ONLY] = None


class ReportResults(Answer, frozen=True, kw_only=True):
    """One result for each report, in their order."""

    results: list[Reported]
    now: At


class Count(Answer, frozen=True, kw_only=True):
    """The number of tasks that this step counted; add the numbers of all steps."""

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
    """All reasons why a task is not running; without one, the next worker that asks gets it."""

    reasons: list[Reason]


class BulkResult(Answer, frozen=True, kw_only=True):
    """The outcome for one task."""

    id: str
    outcome: Literal[
        "DELETED", "RESTARTED", "DUE", "MOVED", "CANCELLED", "RESTORED", "NOT_FOUND", "SKIPPED"
    ]
    detail: Annotated[
        str | None,
        Meta(description="Of SKIPPED: `inflight`, `not_dead`, `dedupe_conflict`, or a text."),
    ]


class Undoable(Answer, frozen=True, kw_only=True):
    """The undo of a deletion, and its end."""

    id: Annotated[str, Meta(description="For `POST /v1/undos/{id}`.")]
    until: At


class UploadGranted(Answer, frozen=True, kw_only=True):
    """The URL for an upload, and the `payload_ref` for the enqueue after it."""

    payload_ref: Annotated[str, Meta(description="For one enqueue or spawn, instead of `payload`.")]
    url: str
    headers: Annotated[dict[str, str], Meta(description="Send these with the PUT.")]
    expires_at: Annotated[At, Meta(description="The upload and the enqueue end by then.")]


class DeletedTask(Answer, frozen=True, kw_only=True):
    """The undo that can restore the deleted task."""

    undo: Undoable


class Bulk(Answer, frozen=True, kw_only=True):
    """The number of tasks that the action matches and changed, and the outcome for each id."""

    matched: Annotated[int, Meta(description="The number of matching tasks.")]
    changed: Annotated[int, Meta(description="The number of changed tasks; 0 in a dry run.")]
    results: Annotated[
        list[BulkResult], Meta(description="One for each of `ids`; none with a filter.")
    ]
    cursor: Annotated[
        str | None, Meta(description="Send it to continue; null: the action is complete.")
    ] = None
    undo: Annotated[
        Undoable | None, Meta(description="Only with `undo_in_seconds`."), SOMETIMES
    ] = None


# ----------------------------------------------------------------- notifications as in QuantumLeap


class NotificationRuntime(Answer, frozen=True, kw_only=True):
    """The state of a notification, in QuantumLeap's words."""

    task_id: str
    task_type: str
    status: Literal["pending", "succeeded", "failed"]
    retries_left: Annotated[int | None, Meta(description="null: no retries.")]
    errors: Annotated[list[str], Meta(description="Of every attempt that failed, in order.")]


class NotificationInput(Answer, frozen=True, kw_only=True):
    """The headers and the data of a notification."""

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
