"""The shapes of answers to operators: explanations, bulk actions, the audit, NGSI notifications."""

from typing import Annotated, Any, Literal

from pydantic import Field

from headrace.http.answers import Answer, At, Cursor
from headrace.ops.tasks.explain import ReasonCode


class Reason(Answer):
    """One reason why a task is not running."""

    code: ReasonCode
    detail: str
    until: Annotated[At | None, Field(description="When it ends, if that is known.")]


class Explained(Answer):
    """Every reason why a task is not running; none: it goes to the next worker that asks."""

    reasons: list[Reason]


class BulkResult(Answer):
    """What became of one task."""

    id: str
    outcome: Literal["DELETED", "RESTARTED", "DUE", "MOVED", "NOT_FOUND", "SKIPPED"]
    detail: Annotated[
        str | None,
        Field(description="Of SKIPPED: `inflight`, `not_dead`, `dedupe_conflict`, or a text."),
    ]


class BulkDone(Answer):
    """How many tasks the action takes and how many it changed."""

    matched: Annotated[int, Field(description="What the action would take.")]
    changed: Annotated[int, Field(description="What it did; 0 in a dry run.")]
    results: Annotated[
        list[BulkResult], Field(description="One for each of `ids`; none with a filter.")
    ]
    cursor: Annotated[str | None, Field(description="Send it back to go on; null: that was all.")]


class AuditEntry(Answer):
    """One thing that was changed by hand."""

    at: At
    actor: Annotated[str, Field(description="The name of the key; `service`: nobody's.")]
    actor_id: Annotated[str | None, Field(description="Its id, which no other key ever has.")]
    action: Annotated[str, Field(examples=["delete", "restart", "purge", "pause"])]
    queue: str | None
    filter: Annotated[
        dict[str, Any] | None,
        Field(
            description="Which tasks were meant, and where they went: a `to_queue` that the key "
            "is not for is null."
        ),
    ]
    ids: list[str] | None
    matched: Annotated[int | None, Field(description="null while it goes on, or broke off.")]
    changed: int | None
    request_id: str | None


class AuditEntries(Answer):
    """A page of the audit, newest first; it may be short and still have a cursor."""

    entries: list[AuditEntry]
    cursor: Cursor


class NotificationRuntime(Answer):
    """How it is with a notification, in QuantumLeap's words."""

    task_id: str
    task_type: str
    status: Literal["pending", "succeeded", "failed"]
    retries_left: Annotated[int | None, Field(description="null: there are none at all.")]
    errors: Annotated[list[str], Field(description="Of every attempt that failed, in order.")]


class NotificationInput(Answer):
    """What came with a notification."""

    fiware_service: str | None
    fiware_service_path: str | None
    fiware_correlator: str | None
    payload: Annotated[list[Any], Field(description="Its `data`, exactly as it came in.")]


class Notification(Answer):
    """A notification in the queue, as QuantumLeap shows it."""

    runtime: NotificationRuntime
    input: NotificationInput


SHOWN: tuple[type[Answer], ...] = (Explained, BulkDone, AuditEntries, Notification)
"""What routes name in their documented answers."""
