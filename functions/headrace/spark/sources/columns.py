"""The columns of a task, as ``headrace.table`` and ``headrace.export`` show it.

They carry the names of the API where it has one; ``docs/reference/spark-table.md`` shows them as
a table.  Needs neither Spark nor Arrow.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from headrace.domain.errors import FieldError, InvalidRequest
from headrace.domain.task_fields import TITLED
from headrace.store import keys

Type: TypeAlias = Literal[
    "string", "int", "bigint", "double", "boolean", "timestamp", "map<string,string>",
    "array<string>",
]  # fmt: skip
Form: TypeAlias = Literal[
    "text", "number", "micros", "seconds", "queue", "state", "shard", "tags", "texts", "digest",
    "group", "length", "own",
]  # fmt: skip
"""How a column is made of its attribute; ``own`` is not made of one."""


@dataclass(frozen=True, slots=True)
class TaskColumn:
    """One column, and the attribute of the item that it is made of.

    Attributes:
        attribute: a dot leads into a map, as in headrace.store.items.
        on_request: whether it is there only where a schema names it.

    """

    name: str
    type: Type
    form: Form
    attribute: str
    description: str
    on_request: bool = False

    @property
    def top(self) -> str:
        """The item's own attribute: the map, if the column is made of a part of one."""
        return self.attribute.partition(".")[0]

    @property
    def path(self) -> tuple[str, ...]:
        """The place of the value in DynamoDB's JSON of the item."""
        first, *inner = self.attribute.split(".")
        return (first, *(step for part in inner for step in ("M", part)))


def _text(name: str, description: str) -> TaskColumn:
    return TaskColumn(name, "string", "text", name, description)


def _instant(name: str, description: str, attribute: str | None = None) -> TaskColumn:
    return TaskColumn(name, "timestamp", "micros", attribute or name, description)


TASK: Final = (
    TaskColumn("id", "string", "text", keys.TASK_ID, "the task"),
    TaskColumn("queue", "string", "queue", keys.QUEUE_STATE, "the queue"),
    TaskColumn("state", "string", "state", keys.QUEUE_STATE, "the stored state"),
    TaskColumn("shard", "int", "shard", keys.QUEUE_STATE, "the shard of its queue"),
    _instant("scheduled_at", "the due time it was last scheduled for", "due_at"),
    _instant(
        "attention_at",
        "when it needs attention: due time, end of the lease as first granted, or finish",
        keys.SCHEDULED_AT,
    ),
    _instant("created_at", "when it was first enqueued"),
    _instant("enqueued_at", "when it entered its queue"),
    _instant("expires_at", "when it expires if no worker takes it", keys.EXPIRES_AT),
    _instant("started_at", "when its latest delivery began"),
    _instant(
        "lease_expires_at",
        "end of its lease; of one under a group, when it was taken",
        "lease.expires_at",
    ),
    _instant("finished_at", "when it succeeded or died"),
    TaskColumn("retained_until", "timestamp", "seconds", keys.TTL, "when it may be forgotten"),
    TaskColumn("attempts", "int", "number", "attempts", "deliveries counted in its queue"),
    TaskColumn("version", "bigint", "number", "version", "writes of it so far"),
    _text("last_move", "the latest of them, in the lifecycle's words"),
    _text("payload", "JSON, as it came in"),
    TaskColumn("tags", "map<string,string>", "tags", "tags", "its tags"),
    *(_text(field.name, field.help) for field in TITLED),
    _text("dedupe_until", "start, if its dedupe key is free from the first delivery on"),
    _text("worker", "who had it last"),
    _text("progress", "JSON, as a worker last reported it, maybe in an earlier delivery"),
    _text("result", "JSON, as the worker reported it"),
    _text("dead_reason", "rejected, exhausted, expired or cancelled"),
    TaskColumn("errors", "array<string>", "texts", "errors", "failed attempts, each as JSON"),
    TaskColumn("trail", "array<string>", "texts", "trail", "queues it has left, each as JSON"),
    TaskColumn(
        "keepalive_timeout_in_seconds", "double", "number", "keepalive", "where it has its own"
    ),
    TaskColumn("retry_strategy", "string", "text", "retry", "JSON, where it has its own"),
    # What costs a look at every row, and what the lake calls by these names.
    TaskColumn("lease", "string", "digest", "lease.id", "digest of its lease", on_request=True),
    TaskColumn(
        "lease_group",
        "string",
        "group",
        "lease.id",
        "digest of that lease's group",
        on_request=True,
    ),
    TaskColumn(
        "settled",
        "string",
        "digest",
        "settled_lease_id",
        "digest of the lease whose report last took effect",
        on_request=True,
    ),
    TaskColumn(
        "payload_bytes",
        "bigint",
        "length",
        "payload",
        "bytes of the payload, if inside",
        on_request=True,
    ),
    TaskColumn(
        "result_bytes",
        "bigint",
        "length",
        "result",
        "bytes of the result, if inside",
        on_request=True,
    ),
    *(
        TaskColumn(
            f"{name}_ref",
            "string",
            "text",
            f"{name}_ref",
            f"bytes, sha256 and name of a {name} kept outside the table; `{name}` is null then",
            on_request=True,
        )
        for name in ("payload", "result", "progress")
    ),
)
BY_NAME: Final = {column.name: column for column in TASK}
DEFAULT: Final = tuple(column for column in TASK if not column.on_request)


def ddl(columns: Iterable[TaskColumn]) -> str:
    """Return *columns* as a schema that Spark reads."""
    return ", ".join(f"{column.name} {column.type}" for column in columns)


def columns_of(
    fields: Sequence[tuple[str, str]], more: Sequence[TaskColumn] = ()
) -> tuple[TaskColumn, ...]:
    """Return the columns of a schema of (name, type), which may have *more* columns than a task.

    Raises InvalidRequest that names a column that is unknown or has another type.
    """
    known = {**BY_NAME, **{column.name: column for column in more}}
    wrong = []
    for name, kind in fields:
        column = known.get(name)
        if column is None:
            wrong.append(
                FieldError(f"schema.{name}", f"is no column; there are {', '.join(known)}")
            )
        elif column.type != kind:
            wrong.append(FieldError(f"schema.{name}", f"must be {column.type}, not {kind}"))
    if not fields:
        wrong.append(FieldError("schema", "must name a column"))
    if wrong:
        raise InvalidRequest("; ".join(f"{one.field} {one.message}" for one in wrong), errors=wrong)
    return tuple(known[name] for name, _ in fields)


def markdown() -> str:
    """Return the columns as the docs show them."""
    rows = [
        f"| `{column.name}` | {column.type} |"
        f" {column.description}{' (if asked for)' * column.on_request} |"
        for column in TASK
    ]
    return "\n".join(("| column | type | holds |", "|---|---|---|", *rows))


if __name__ == "__main__":
    sys.stdout.write(f"{markdown()}\n")
