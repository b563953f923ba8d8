"""The bodies of requests about tasks: what may be in them, and what they mean inside."""

from typing import Annotated, Final, LiteralString

from pydantic import Field, model_validator

from headrace.domain import limits
from headrace.domain.plan import NewTask
from headrace.http.fields import (
    BatchSize,
    Body,
    Delay,
    FreeText,
    Instant,
    Keepalive,
    LeaseId,
    Name,
    NotServed,
    Payload,
    Progress,
    Result,
    Tags,
    TaskId,
    Wait,
    WorkerName,
    contradiction,
)
from headrace.http.queue_bodies import RetryStrategyBody
from headrace.http.rawjson import NULL, JsonText
from headrace.http.shorten import shorten
from headrace.ops.reports import Report, ReportStatus, WorkerError

_NULL_TEXT: Final = "null"
_ERROR_ROOM: Final = limits.ERROR_BYTES - 512  # attempt, time, worker and kind stand there too


class TaskEntry(Body):
    """One task to put into the queue."""

    payload: Payload | None = Field(default=None, description="Left out, it is null.")
    id: TaskId | None = Field(
        default=None, description="An id of your own makes the call safe to repeat."
    )
    scheduled_at: Instant | None = Field(default=None, description="Not delivered before.")
    delay_in_seconds: Delay | None = Field(default=None, description="Instead of scheduled_at.")
    expires_at: Instant | None = Field(default=None, description="Not delivered after.")
    dedupe_key: NotServed = None
    overwrite_on_duplicate: NotServed = None
    keepalive_timeout_in_seconds: Keepalive | None = Field(
        default=None, description="How long a lease of this task lasts; else as the queue says."
    )
    retry_strategy: RetryStrategyBody | None = Field(
        default=None, description="Instead of the queue's."
    )
    tags: Tags | None = None

    @model_validator(mode="after")
    def _goes_together(self) -> "TaskEntry":
        if self.scheduled_at is None:
            return self
        if self.delay_in_seconds is not None:
            message: LiteralString = "give either scheduled_at or delay_in_seconds, not both"
            raise contradiction(("delay_in_seconds", message), ("scheduled_at", message))
        if self.expires_at is not None and self.expires_at <= self.scheduled_at:
            raise contradiction(("expires_at", "must be after scheduled_at"))
        return self

    def new_task(self) -> NewTask:
        """Return the entry as the use case takes it."""
        return NewTask(
            payload=self.payload or NULL,
            id=self.id,
            scheduled_at=self.scheduled_at,
            delay_in_seconds=self.delay_in_seconds,
            expires_at=self.expires_at,
            keepalive=self.keepalive_timeout_in_seconds,
            retry=self.retry_strategy.strategy() if self.retry_strategy else None,
            tags=self.tags or {},
        )


class EnqueueBody(Body):
    """Tasks to put into a queue, each on its own."""

    tasks: Annotated[list[TaskEntry], Field(min_length=1, max_length=limits.BATCH)]


class DequeueBody(Body):
    """How many tasks to lease, and for whom."""

    batch_size: BatchSize = 1
    wait_seconds: Wait = 0
    worker: WorkerName | None = Field(default=None, description="Who is asking, for people.")
    keepalive_timeout_in_seconds: Keepalive | None = Field(
        default=None, description="How long these leases last; else as task or queue say."
    )


class ErrorBody(Body):
    """What went wrong; together up to 4 KiB are kept, the longest text is cut."""

    type: FreeText | None = None
    message: FreeText | None = None
    detail: FreeText | None = None

    def error(self) -> WorkerError:
        """Return the error, cut to what is kept."""
        texts = [self.type or "", self.message or "", self.detail or ""]
        return WorkerError(*shorten(texts, _ERROR_ROOM))


_ONLY_WITH: Final = {
    "result": (ReportStatus.SUCCEEDED,),
    "progress": (ReportStatus.INFLIGHT,),
    "keepalive_timeout_in_seconds": (ReportStatus.INFLIGHT,),
    "error": (ReportStatus.FAILED,),
    "retryable": (ReportStatus.FAILED,),
    "delay_in_seconds": (ReportStatus.FAILED, ReportStatus.RELEASED, ReportStatus.MOVED),
    "to_queue": (ReportStatus.MOVED,),
    "payload": (ReportStatus.MOVED,),
    "tags": (ReportStatus.MOVED,),
}
"""Which statuses a field means something with; elsewhere it must be left as it is by default."""


class ReportEntry(Body):
    """What a worker says of one task it holds."""

    task_id: TaskId
    lease_id: LeaseId = Field(description="As the dequeue gave it.")
    status: Annotated[ReportStatus, Field(strict=False)]
    result: Result | None = Field(default=None, description="With SUCCEEDED.")
    progress: Progress | None = Field(default=None, description="With INFLIGHT.")
    error: ErrorBody | None = Field(default=None, description="With FAILED.")
    retryable: bool = Field(default=True, description="With FAILED; false ends the task.")
    delay_in_seconds: Delay | None = Field(
        default=None, description="With FAILED (instead of the backoff), RELEASED and MOVED."
    )
    to_queue: Name | None = Field(default=None, description="With MOVED.")
    payload: Payload | None = Field(default=None, description="With MOVED; null keeps the old one.")
    tags: Tags | None = Field(default=None, description="With MOVED; null keeps the old ones.")
    keepalive_timeout_in_seconds: Keepalive | None = Field(
        default=None, description="With INFLIGHT; null is the same length again."
    )
    spawn: NotServed = None

    @model_validator(mode="after")
    def _goes_together(self) -> "ReportEntry":
        if self.status is ReportStatus.MOVED and self.to_queue is None:
            raise contradiction(("to_queue", "is required with the status MOVED"))
        misplaced = [
            name
            for name in self.model_fields_set & _ONLY_WITH.keys()
            if self.status not in _ONLY_WITH[name] and self._says_something(name)
        ]
        if misplaced:
            message: LiteralString = "has no meaning with this status"
            raise contradiction(*((name, message) for name in sorted(misplaced)))
        return self

    def _says_something(self, name: str) -> bool:
        value = getattr(self, name)
        if name == "retryable":
            return not value
        if name == "error":
            return value is not None and value.error() != WorkerError()
        return value is not None and value != _NULL_TEXT

    def report(self) -> Report:
        """Return the entry as the use case takes it."""
        return Report(
            self.task_id,
            self.lease_id,
            self.status,
            result=_unless_null(self.result),
            progress=_unless_null(self.progress),
            error=self.error.error() if self.error else WorkerError(),
            retryable=self.retryable,
            delay_in_seconds=self.delay_in_seconds,
            to_queue=self.to_queue,
            payload=_unless_null(self.payload),
            tags=self.tags,
            keepalive=self.keepalive_timeout_in_seconds,
        )


class ReportsBody(Body):
    """Reports about tasks of one queue, each on its own."""

    reports: Annotated[list[ReportEntry], Field(min_length=1, max_length=limits.BATCH)]


def _unless_null(value: JsonText | None) -> JsonText | None:
    """In a report, null says nothing."""
    return None if value == _NULL_TEXT else value
