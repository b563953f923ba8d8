"""Report: the request, its route and its answer."""

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final, LiteralString, TypeAlias

from pydantic import AfterValidator, Field, PlainValidator, WithJsonSchema, model_validator

from headrace.domain import limits
from headrace.domain.access import Permission
from headrace.domain.plan import TaskSpec
from headrace.http.enqueue import NewTaskBody
from headrace.http.fields import (
    Delay,
    Examples,
    Keepalive,
    Name,
    RequestBody,
    Tags,
    TaskId,
    TextWithin,
    contradiction,
    example,
    refusal,
    too_large,
    wrong,
)
from headrace.http.parameters import QueueInPath
from headrace.http.rawjson import JsonText, Payload, Progress, Result
from headrace.http.routing import Routes
from headrace.http.tasks import lease_answer
from headrace.ops.delivery.reports import ReportOutcome, ReportStatus, TaskReport, WorkerError
from headrace.runtime.wiring import current_service
from headrace.wire import tasks as task_wire
from headrace.wire.base import LEFT_OUT, instant, word
from headrace.wire.tasks import ReportResults

if TYPE_CHECKING:
    from headrace.ops.delivery.reports import ReportResult

routes: Final = Routes("Tasks")


_NULL_TEXT: Final = "null"
_LEASE_LENGTH: Final = 512  # of a secret, an attempt and a worker's name in base64
_FreeText: TypeAlias = Annotated[str, AfterValidator(TextWithin(limits.BODY_BYTES))]  # as any body
_NO_ERROR: Final = WorkerError()


class ErrorBody(RequestBody):
    """The error of an attempt; up to 4 KiB of it are stored, and the longest text is cut."""

    type: _FreeText | None = None
    message: _FreeText | None = None
    detail: _FreeText | None = None

    def error(self) -> WorkerError:
        """Return the error, cut to the size that is stored."""
        return WorkerError(self.type or "", self.message or "", self.detail or "").shortened()


def _left_out(value: object) -> None:
    if value is not None and value != []:
        raise wrong("has no meaning for a spawned task; leave it out")


LeftOut: TypeAlias = Annotated[
    None,
    PlainValidator(_left_out),
    WithJsonSchema({"type": "null", "description": "Has no meaning here."}),
]


class SpawnEntry(NewTaskBody):
    """A task to enqueue, in any queue."""

    queue: Name
    overwrite_on_duplicate: LeftOut = None

    def child(self) -> tuple[str, TaskSpec]:
        """Return the queue and the task."""
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
"""The statuses with which a field has a meaning; with others it must have its default."""


class ReportEntry(RequestBody):
    """A report on a leased task."""

    task_id: TaskId
    lease_id: str = Field(max_length=_LEASE_LENGTH, description="As the dequeue gave it.")
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
        description="With SUCCEEDED and MOVED: tasks made with the report, all once or none. "
        f"Their payloads together are at most {limits.SPAWNED_BYTES // limits.MIB} MiB.",
    )

    @model_validator(mode="after")
    def _goes_together(self) -> "ReportEntry":
        if self.status is ReportStatus.MOVED and self.to_queue is None:
            raise contradiction("is required with the status MOVED", "to_queue")
        misplaced = [
            name
            for name in self.model_fields_set
            if name in _ONLY_WITH
            and self.status not in _ONLY_WITH[name]
            and self._says_something(name)
        ]
        if misplaced:
            raise contradiction("has no meaning with this status", *sorted(misplaced))
        return self

    @model_validator(mode="after")
    def _spawns_what_one_write_takes(self) -> "ReportEntry":
        if not self.spawn:  # as in most
            return self
        size = sum(limits.utf8_bytes(entry.payload or "") for entry in self.spawn)
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
        """Return the report of the domain."""
        return TaskReport(
            self.task_id,
            self.lease_id,
            self.status,
            result=_unless_null(self.result),
            progress=_unless_null(self.progress),
            error=self.error.error() if self.error else _NO_ERROR,
            retryable=self.retryable,
            delay_in_seconds=self.delay_in_seconds,
            to_queue=self.to_queue,
            payload=_unless_null(self.payload),
            tags=self.tags,
            keepalive=self.keepalive_timeout_in_seconds,
            spawn=tuple(entry.child() for entry in self.spawn) if self.spawn else (),
        )


class ReportsBody(RequestBody):
    """Reports on tasks of one queue."""

    reports: Annotated[list[ReportEntry], Field(min_length=1, max_length=limits.BATCH)]


def _unless_null(value: JsonText | None) -> JsonText | None:
    """Return None for the JSON null, which means the same in a report."""
    return None if value == _NULL_TEXT else value


_HELD: Final = {
    "task_id": "tsk_01kc5m3v0e8x2r7n4q9w6y1z0a",
    "lease_id": "lse_01kc5m3v0e8q2w4e6r7t9y1z3x5c7v",
}
REPORT: Final[Examples] = {
    "succeeded": example(
        "Done", {"reports": [{**_HELD, "status": "SUCCEEDED", "result": {"rows": 12}}]}
    ),
    "inflight": example(
        "A heartbeat", {"reports": [{**_HELD, "status": "INFLIGHT", "progress": 0.4}]}
    ),
    "failed": example(
        "Failed, will be retried",
        {
            "reports": [
                {
                    **_HELD,
                    "status": "FAILED",
                    "error": {"type": "Timeout", "message": "the database did not answer"},
                }
            ]
        },
    ),
    "moved": example(
        "Moved to the next queue",
        {
            "reports": [
                {
                    **_HELD,
                    "status": "MOVED",
                    "to_queue": "ngsi.entities",
                    "payload": {"entity": "Room1"},
                }
            ]
        },
    ),
    "spawned": example(
        "Done, with new tasks that are enqueued in the same write",
        {
            "reports": [
                {
                    **_HELD,
                    "status": "SUCCEEDED",
                    "spawn": [
                        {"queue": "ngsi.entities", "payload": {"entity": "Room1"}},
                        {"queue": "ngsi.entities", "payload": {"entity": "Room2"}},
                    ],
                }
            ]
        },
    ),
}


# ------------------------------------------------------------------------------------------ answers


def reported_answer(
    reports: Iterable["TaskReport"], results: Iterable["ReportResult"], now: datetime
) -> task_wire.ReportResults:
    """Return the outcome of each report."""
    return task_wire.ReportResults(
        results=[
            _reported(report, result) for report, result in zip(reports, results, strict=True)
        ],
        now=instant(now),
    )


def _reported(report: "TaskReport", result: "ReportResult") -> task_wire.Reported:
    task, done = result.task, result.outcome is ReportOutcome.OK
    beats = done and report.status is ReportStatus.INFLIGHT
    over = task if result.outcome is ReportOutcome.NOT_INFLIGHT else None
    return task_wire.Reported(
        task_id=result.task_id,
        outcome=word(result.outcome),
        state=None if task is None else task.place.state,
        scheduled_at=None if task is None else instant(task.due_at),
        lease=lease_answer(task) if task is not None and beats else None,
        spawned=[
            task_wire.Spawned(outcome=word(child.outcome), id=child.id) for child in result.spawned
        ],
        detail=result.detail,
        dead_reason=LEFT_OUT if over is None or not over.dead_reason else word(over.dead_reason),
        now=LEFT_OUT,
    )


# ------------------------------------------------------------------------------------------- routes


@routes.add("POST", "/v1/queues/{queue}/reports", Permission.WORK, examples=REPORT)
def report(queue: QueueInPath, body: ReportsBody) -> ReportResults:
    """Report on leased tasks.

    Each report succeeds or fails on its own. The answer has one result for each report, in the
    order of the reports. Safe to repeat. A report that differs from the report that settled its
    lease is STALE_LEASE.
    """
    use = current_service()
    reports = [entry.report() for entry in body.reports]
    results = use.reports.report(queue, reports)
    return reported_answer(reports, results, use.now())
