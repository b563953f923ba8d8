"""The shapes of answers, for the OpenAPI document and for the tests of ``views``.

Answers are written by ``views`` without these models; nothing here runs when a task is handled.
"""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, RootModel

from headrace.domain.retry import Backoff
from headrace.domain.task import DeadReason, ErrorKind, State, Status
from headrace.http.queue_bodies import DeadLetterBody, DequeuingSettingsBody
from headrace.ops.delivery.reports import ReportOutcome
from headrace.ops.tasks.enqueue import EnqueueOutcome

At: TypeAlias = Annotated[
    str,
    Field(
        pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$",
        json_schema_extra={"format": "date-time", "example": "2026-11-21T08:00:00.000000Z"},
    ),
]
Cursor: TypeAlias = Annotated[
    str | None, Field(description="Send it back for the next page; null: this was the last.")
]


class Answer(BaseModel):
    """The base: every field is always there unless it says otherwise."""

    model_config = ConfigDict(extra="forbid")


class FieldProblem(Answer):
    """One field that is wrong."""

    field: Annotated[str, Field(examples=["tasks[3].delay_in_seconds"])]
    message: str


class Problem(Answer):
    """What went wrong (RFC 9457)."""

    type: str
    title: str
    status: int
    code: Annotated[
        str,
        Field(
            description="What programs match on.",
            examples=["invalid_request", "not_found", "queue_exists", "unavailable"],
        ),
    ]
    detail: str
    errors: list[FieldProblem]
    request_id: Annotated[str | None, Field(description="With a 5xx: finds the log entry.")] = None


class RetryStrategy(Answer):
    """How often and when a failed task is tried again."""

    kind: Backoff
    max_retries: int
    base_seconds: float
    max_delay_seconds: float
    jitter: float
    intervals: list[float]


class Queue(Answer):
    """A queue and its settings."""

    name: str
    description: str
    keepalive_timeout_in_seconds: float
    expires_in_seconds: float
    retry_strategy: RetryStrategy
    dequeuing_settings: DequeuingSettingsBody
    dead_letter_queue_config: DeadLetterBody
    history_retention_in_seconds: float
    shards: int
    created_at: At
    updated_at: At
    version: int


class Queues(Answer):
    """A page of queues, by name."""

    queues: list[Queue]
    cursor: Cursor


class Purged(Answer):
    """How many tasks were removed so far."""

    deleted: int


class TaskError(Answer):
    """One attempt that did not succeed."""

    attempt: int
    at: At
    worker: str | None
    kind: ErrorKind
    type: str
    message: str
    detail: str


class Hop(Answer):
    """A queue that the task has left, and when."""

    queue: Annotated[str | None, Field(description="null: one that the key is not for.")]
    at: At


class Lease(Answer):
    """What a report must name, and how long it is good for."""

    id: str
    expires_at: At


class TaskWithoutPayload(Answer):
    """A task as it stands."""

    id: str
    queue: str
    state: State
    status: Annotated[
        Status, Field(description="The state, with ENQUEUED told apart as SCHEDULED or READY.")
    ]
    tags: dict[str, str]
    dedupe_key: str | None
    created_at: At
    scheduled_at: Annotated[At, Field(description="The due time it was last scheduled for.")]
    expires_at: At | None
    attempts: int
    max_retries: int
    keepalive_timeout_in_seconds: Annotated[
        float | None, Field(description="The task's own; null: as its queue says.")
    ]
    lease_expires_at: At | None
    worker: str | None
    progress: Any
    started_at: At | None
    finished_at: At | None
    result: Any
    dead_reason: DeadReason | None
    errors: list[TaskError]
    trail: list[Hop]
    retained_until: At | None
    schedule: str | None


class Task(TaskWithoutPayload):
    """A task with its payload."""

    payload: Any


class ShownTask(RootModel[Task | TaskWithoutPayload]):
    """A task, with its payload unless that was not asked for."""


class LeasedTask(Task):
    """A task handed out."""

    lease: Lease


class Enqueued(Answer):
    """What became of one entry."""

    outcome: EnqueueOutcome
    id: str | None
    task: Annotated[
        TaskWithoutPayload | None,
        Field(
            description="null for one that is EXISTING in another queue, or done and not kept, "
            "and with INVALID."
        ),
    ]
    queue: Annotated[
        str | None,
        Field(description="Where the task is; null where there is none or you may not know it."),
    ]
    detail: str | None


class EnqueueResults(Answer):
    """One result for each entry, in their order."""

    results: list[Enqueued]


class Dequeued(Answer):
    """The tasks handed out, in order of their due time."""

    tasks: list[LeasedTask]
    now: At
    poll_after_seconds: Annotated[float, Field(description="When an idle worker should ask again.")]


class Spawned(Answer):
    """What became of a task spawned: made, or there already, which counts as done."""

    outcome: Literal["CREATED", "EXISTING", "DUPLICATE"]
    id: Annotated[str, Field(description="Of a duplicate, the task that holds the key.")]


class Reported(Answer):
    """What became of one report."""

    task_id: str
    outcome: ReportOutcome
    state: Annotated[State | None, Field(description="null when nothing is kept of the task.")]
    scheduled_at: At | None
    lease: Lease | None
    spawned: Annotated[list[Spawned], Field(description="In the order they were named.")]
    detail: str | None


class ReportResults(Answer):
    """One result for each report, in their order."""

    results: list[Reported]
    now: At


class Tasks(Answer):
    """A page of tasks; it may be short and still have a cursor."""

    tasks: Annotated[
        list[Task | TaskWithoutPayload], Field(description="Payloads only when asked for.")
    ]
    cursor: Cursor


class Count(Answer):
    """How many tasks this step has counted; the sum of all steps is how many there are."""

    count: int
    by_state: dict[State, int]
    exact: Annotated[
        bool, Field(description="`false`: too many to look at in one call; at least so many.")
    ]
    as_of: Annotated[At, Field(description="When the first step was.")]
    partial: Annotated[bool, Field(description="Whether there are more, for `cursor` to count.")]
    cursor: Cursor


class Recount(Answer):
    """What a recount has come to, by stored state; final when `cursor` is null."""

    counts: Annotated[
        dict[State, int],
        Field(
            description="Counted so far, in the order of the states; in the end what the counters "
            "say from now on. With tasks past their retention, until the table removes them."
        ),
    ]
    was: Annotated[
        dict[State, int],
        Field(description="What the counters say; in the end, what they said before."),
    ]
    cursor: Cursor


class Health(Answer):
    """The service and its tables answer."""

    status: Literal["ok"]
    version: str
    now: At


SHOWN: tuple[type[BaseModel], ...] = (
    Problem,
    Queue,
    Queues,
    Purged,
    ShownTask,
    EnqueueResults,
    Dequeued,
    ReportResults,
    Tasks,
    Count,
    Recount,
    Health,
)
"""What routes name in their documented answers."""
