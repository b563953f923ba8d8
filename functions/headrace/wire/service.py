"""Answers about the service itself: keys, the audit, workers, health and problems."""

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from headrace.wire.base import LEFT_OUT, SDK_ONLY, Answer, At, Cursor, words_of


class FieldProblem(Answer, frozen=True, kw_only=True):
    """One field that is wrong."""

    field: Annotated[str, Meta(examples=["tasks[3].delay_in_seconds"])]
    message: str


class Problem(Answer, frozen=True, kw_only=True):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    code: Annotated[
        str,
        Meta(
            description="What programs match on.",
            examples=["invalid_request", "not_found", "queue_exists", "unavailable"],
        ),
    ]
    detail: str
    errors: list[FieldProblem]
    request_id: Annotated[str | None, Meta(description="With a 5xx: finds the log entry.")] = (
        LEFT_OUT
    )


class Health(Answer, frozen=True, kw_only=True):
    """The service and its tables answer."""

    status: Annotated[str, Meta(extra_json_schema={"const": "ok"})]
    version: str
    now: At


class Key(Answer, frozen=True, kw_only=True):
    """A key."""

    id: str
    name: str
    role: Annotated[str, words_of("Role")]
    queues: Annotated[list[str], Meta(description="Patterns of the queues it is for.")]
    prefix: Annotated[str, Meta(description="The start of the secret.")]
    created_at: At
    expires_at: Annotated[At | None, Meta(description="When it stops working; null: never.")] = None
    last_used_at: Annotated[At | None, Meta(description="Right to the hour; null: never.")] = None


class ScheduleOfKey(Answer, frozen=True, kw_only=True):
    """A schedule that a key was the last to put."""

    queue: str
    name: str


class KeyInFull(Key, frozen=True, kw_only=True):
    """A key, with the schedules and actions that it started."""

    revoked_at: At | None = None
    schedules: list[ScheduleOfKey]
    actions: Annotated[list[str], Meta(description="Ids of actions that have not ended.")]


class NewKey(Key, frozen=True, kw_only=True):
    """A new or rotated key, with its secret."""

    secret: Annotated[str, Meta(description="The key itself, shown this once.")]
    last_used_at: Annotated[At | None, SDK_ONLY] = None

    def __repr__(self) -> str:
        """Return a short form for logs, without secrets."""
        return f"NewKey(id={self.id!r}, name={self.name!r}, role={self.role!r})"


class Keys(Answer, frozen=True, kw_only=True):
    """A page of keys, in the order of their creation."""

    keys: list[Key]
    cursor: Cursor


class AuditEntry(Answer, frozen=True, kw_only=True):
    """One change that an operator made."""

    at: At
    actor: Annotated[str, Meta(description="The name of the key, or `service`.")]
    actor_id: Annotated[str | None, Meta(description="Its id, which no other key ever has.")] = None
    action: Annotated[str, Meta(examples=["delete", "restart", "purge", "pause"])]
    queue: str | None
    filter: Annotated[
        dict[str, Any] | None,
        Meta(
            description="The filter of the tasks, and where they went: a `to_queue` that the key "
            "is not for is null."
        ),
    ]
    ids: list[str] | None
    matched: Annotated[int | None, Meta(description="null while it runs or if interrupted.")]
    changed: int | None
    request_id: str | None
    reason: Annotated[
        str | msgspec.UnsetType, Meta(description="Why, in the actor's words; absent if not said.")
    ] = msgspec.UNSET
    before: Annotated[
        dict[str, Any] | msgspec.UnsetType,
        Meta(
            description="What the settings that were changed were, by their paths, as in "
            "`retry_strategy.max_retries`; null: there was none. Values of headers are masked, "
            "long ones cut. Absent where no settings were changed."
        ),
    ] = msgspec.UNSET
    after: Annotated[
        dict[str, Any] | msgspec.UnsetType, Meta(description="Their new values, in the same form.")
    ] = msgspec.UNSET
    run: Annotated[
        str | msgspec.UnsetType,
        Meta(description="The id of the action that did it, for `GET /v1/actions/{id}`."),
    ] = msgspec.UNSET


class AuditEntries(Answer, frozen=True, kw_only=True):
    """A page of the audit, newest first; it may be short and still have a cursor."""

    entries: list[AuditEntry]
    cursor: Cursor


WorkerCommand: TypeAlias = Annotated[
    Annotated[str, words_of("Command")] | None,
    Meta(description="`quiet`: take no more tasks. `stop`: finish and end. null: continue."),
]


class Commanded(Answer, frozen=True, kw_only=True):
    """The command for a worker."""

    command: WorkerCommand


class WorkerSeen(Answer, frozen=True, kw_only=True):
    """A worker, as of its last heartbeat."""

    name: str
    queues: Annotated[list[str], Meta(description="Those of its queues that are the key's.")]
    concurrency: int
    running: Annotated[
        list[str] | None,
        Meta(description="Ids of tasks; null: it has queues that are not the key's."),
    ]
    version: str
    started_at: At
    seen_at: At
    command: WorkerCommand


class Workers(Answer, frozen=True, kw_only=True):
    """A page of workers, by name."""

    workers: list[WorkerSeen]
    cursor: Cursor
