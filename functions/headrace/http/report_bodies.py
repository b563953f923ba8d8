"""The bodies of reports: what a worker may say of a task it holds."""

from typing import Annotated, Final, LiteralString

from pydantic import Field, model_validator

from headrace.domain import limits
from headrace.domain.plan import TaskSpec
from headrace.http.bodies import NewTaskBody
from headrace.http.fields import (
    Body,
    Delay,
    FreeText,
    Keepalive,
    LeaseId,
    LeftOut,
    Name,
    Payload,
    Progress,
    Result,
    Tags,
    TaskId,
    contradiction,
    refusal,
    too_large,
)
from headrace.http.rawjson import JsonText
from headrace.http.shorten import shorten
from headrace.ops.delivery.reports import ReportStatus, TaskReport, WorkerError

_NULL_TEXT: Final = "null"
_ERROR_ROOM: Final = limits.ERROR_BYTES - 512  # attempt, time, worker and kind stand there too


class ErrorBody(Body):
    """What went wrong; together up to 4 KiB are kept, the longest text is cut."""

    type: FreeText | None = None
    message: FreeText | None = None
    detail: FreeText | None = None

    def error(self) -> WorkerError:
        """Return the error, cut to what is kept."""
        texts = [self.type or "", self.message or "", self.detail or ""]
        return WorkerError(*shorten(texts, _ERROR_ROOM))


class SpawnEntry(NewTaskBody):
    """One task to make together with the report, in whatever queue."""

    queue: Name
    overwrite_on_duplicate: LeftOut = None

    def child(self) -> tuple[str, TaskSpec]:
        """Return the entry as the use case takes it."""
        return self.queue, self.new_task()


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
    "spawn": (ReportStatus.SUCCEEDED, ReportStatus.MOVED),
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
        default=None,
        description="With INFLIGHT; null is the same length again. Has no meaning for a task "
        "under a lease from `POST /v1/leases`, which is extended by itself.",
    )
    spawn: Annotated[list[SpawnEntry], Field(max_length=limits.SPAWN)] | None = Field(
        default=None,
        description="With SUCCEEDED and MOVED: tasks made in the same transaction, all or none. "
        f"Their payloads together are at most {limits.SPAWNED_BYTES // limits.MIB} MiB.",
    )

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

    @model_validator(mode="after")
    def _spawns_what_one_write_takes(self) -> "ReportEntry":
        size = sum(limits.utf8_bytes(entry.payload or "") for entry in self.spawn or ())
        if size > limits.SPAWNED_BYTES:
            message: LiteralString = "payloads take {size} bytes together; at most {most} are taken"
            raise refusal(("spawn", too_large(message, most=limits.SPAWNED_BYTES, size=size)))
        return self

    def _says_something(self, name: str) -> bool:
        value = getattr(self, name)
        if name == "retryable":
            return not value
        if name == "error":
            return value is not None and value.error() != WorkerError()
        if name == "spawn":
            return bool(value)
        return value is not None and value != _NULL_TEXT

    def report(self) -> TaskReport:
        """Return the entry as the use case takes it."""
        return TaskReport(
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
            spawn=tuple(entry.child() for entry in self.spawn or ()),
        )


class ReportsBody(Body):
    """Reports about tasks of one queue, each on its own."""

    reports: Annotated[list[ReportEntry], Field(min_length=1, max_length=limits.BATCH)]


def _unless_null(value: JsonText | None) -> JsonText | None:
    """In a report, null says nothing."""
    return None if value == _NULL_TEXT else value
