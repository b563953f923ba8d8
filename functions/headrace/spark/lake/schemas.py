"""The tables of the lake, their columns, types and units: declared here and nowhere else.

``docs/reference/lake-tables.md`` has them as tables; a test compares.  Needs no Spark.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from headrace.domain.task_fields import REPLAYED

Type: TypeAlias = Literal[
    "string",
    "int",
    "bigint",
    "double",
    "timestamp",
    "date",
    "map<int,bigint>",
    "map<string,string>",
    "array<string>",
]

DAY: Final = "dt"
"""The column by whose values tables are written: the UTC day on which a change was recorded."""

_TYPES: Final[Mapping[str, Type]] = {"tags": "map<string,string>", "keepalive": "double"}
REPLAYED_TYPES: Final[Mapping[str, Type]] = {
    field.api_name: _TYPES.get(field.name, "string") for field in REPLAYED
}
"""The columns with which a replay makes a task again, besides its payload, and their types."""


@dataclass(frozen=True, slots=True)
class LakeColumn:
    """One column; ``says`` has its unit."""

    name: str
    type: Type
    says: str


@dataclass(frozen=True, slots=True)
class Table:
    """One table; no two rows have the same ``key``."""

    name: str
    key: tuple[str, ...]
    says: str
    columns: tuple[LakeColumn, ...]
    order: tuple[str, ...]
    """By what the rows of a file are sorted."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns, in their order."""
        return tuple(column.name for column in self.columns)

    @property
    def ddl(self) -> str:
        """Its columns as Spark reads them."""
        return ", ".join(f"{column.name} {column.type}" for column in self.columns)


_DAY: Final = LakeColumn(DAY, "date", "UTC day on which the stream recorded it")
_LIFE: Final = (
    LakeColumn("task_id", "string", "the task"),
    LakeColumn(
        "created_at", "timestamp", "when it was first enqueued; distinguishes lives of one id"
    ),
)


def _sides(name: str, kind: Type, says: str) -> tuple[LakeColumn, LakeColumn]:
    before = LakeColumn(f"{name}_from", kind, f"{says}, before")
    return before, LakeColumn(f"{name}_to", kind, "after")


CHANGES: Final = Table(
    "changes",
    ("task_id", "created_at", "version"),
    "Every write of every task. Columns `…_from` are null if the write created the task, and "
    "`…_to` if it removed the task.",
    (
        *_LIFE,
        LakeColumn("version", "bigint", "1 for the first write; a removal counts as one"),
        LakeColumn("move", "string", "what happened, in the lifecycle's words, or forget"),
        LakeColumn(
            "at", "timestamp", "when it happened, by the service's clock; else as recorded_at"
        ),
        LakeColumn("recorded_at", "timestamp", "when the stream recorded it, to the second"),
        *_sides("queue", "string", "the queue"),
        *_sides("state", "string", "the stored state"),
        *_sides("due", "timestamp", "due time"),
        *_sides("enqueued", "timestamp", "when it entered its queue"),
        *_sides("attempts", "int", "deliveries counted in its queue"),
        *_sides("hop", "int", "queues it has left, 50 at most"),
        *_sides("lease", "string", "digest of its lease"),
        *_sides("lease_end", "timestamp", "end of its lease"),
        LakeColumn("settled", "string", "digest of the lease whose report last took effect"),
        LakeColumn("lease_group", "string", "digest of the group that its lease is under"),
        LakeColumn("worker", "string", "the worker that has or had it"),
        LakeColumn("started_at", "timestamp", "when that delivery began"),
        LakeColumn("finished_at", "timestamp", "when it succeeded or died"),
        LakeColumn("expires_at", "timestamp", "when it expires if no worker takes it"),
        LakeColumn("dead_reason", "string", "rejected, exhausted, expired or cancelled"),
        LakeColumn(
            "error_kind", "string", "failed or lease_expired, of the attempt that just failed"
        ),
        LakeColumn("error_type", "string", "its type"),
        LakeColumn("error_message", "string", "its message, 1,024 characters at most"),
        LakeColumn("payload_bytes", "bigint", "bytes of the payload"),
        LakeColumn("result_bytes", "bigint", "bytes of the result"),
        LakeColumn(
            "payload", "string", "the payload as JSON, where it is new and its queue keeps it"
        ),
        *(
            LakeColumn(
                field.api_name,
                REPLAYED_TYPES[field.api_name],
                f"its {field.name.replace('_', ' ')}, with its payload, if its queue keeps that",
            )
            for field in REPLAYED
        ),
        LakeColumn(
            "shard", "string", "shard of the stream; export-… if only an export has the change"
        ),
        LakeColumn("sequence", "string", "its number in that shard"),
        _DAY,
    ),
    ("queue_to", "at"),
)

ATTEMPTS: Final = Table(
    "attempts",
    ("task_id", "created_at", "version"),
    "Every delivery, when it has ended.",
    (
        *_LIFE,
        LakeColumn("version", "bigint", "of the change that ended it"),
        LakeColumn("queue", "string", "the queue"),
        LakeColumn("hop", "int", "queues left before, 50 at most"),
        LakeColumn(
            "attempt", "int", "which delivery in this queue; a released one is counted again"
        ),
        LakeColumn("worker", "string", "the worker that had it"),
        LakeColumn("lease", "string", "digest of its lease"),
        LakeColumn("ready_at", "timestamp", "when it was due"),
        LakeColumn("started_at", "timestamp", "when it was delivered"),
        LakeColumn("ended_at", "timestamp", "when that ended"),
        LakeColumn("wait_micros", "bigint", "microseconds from due to delivered"),
        LakeColumn("run_micros", "bigint", "microseconds from delivered to ended"),
        LakeColumn(
            "outcome",
            "string",
            "succeeded, failed, lease_expired, dead, released, moved, cancelled, deleted",
        ),
        LakeColumn("to_queue", "string", "where it was moved"),
        LakeColumn("error_type", "string", "the error's type"),
        LakeColumn("error_message", "string", "its message"),
        _DAY,
    ),
    ("queue", "ended_at"),
)

TASKS: Final = Table(
    "tasks",
    ("task_id", "created_at", "version"),
    "One row for each stay of a task in a queue, when the stay has ended.",
    (
        *_LIFE,
        LakeColumn("version", "bigint", "of the change that ended it"),
        LakeColumn("queue", "string", "the queue"),
        LakeColumn("hop", "int", "queues left before, 50 at most"),
        LakeColumn("outcome", "string", "succeeded, dead, moved, cancelled or deleted"),
        LakeColumn("enqueued_at", "timestamp", "when it entered the queue"),
        LakeColumn(
            "started_at", "timestamp", "its latest delivery, if that delivery ended the stay"
        ),
        LakeColumn("ended_at", "timestamp", "when the stay ended"),
        LakeColumn("total_micros", "bigint", "microseconds from enqueued to ended"),
        LakeColumn("attempts", "int", "deliveries counted"),
        LakeColumn("dead_reason", "string", "rejected, exhausted, expired or cancelled"),
        LakeColumn("to_queue", "string", "where it was moved"),
        LakeColumn("error_type", "string", "the last error's type, if it ended it"),
        LakeColumn("error_message", "string", "its message"),
        LakeColumn("payload_bytes", "bigint", "bytes of the payload"),
        LakeColumn("result_bytes", "bigint", "bytes of the result"),
        _DAY,
    ),
    ("queue", "ended_at"),
)

COUNTS: Final = (
    LakeColumn("enqueued", "bigint", "came into the queue: new, moved here, restarted"),
    LakeColumn("started", "bigint", "deliveries"),
    LakeColumn("succeeded", "bigint", "reported SUCCEEDED"),
    LakeColumn("failed", "bigint", "attempts that failed, lapsed leases among them"),
    LakeColumn("lapsed", "bigint", "leases that lapsed"),
    LakeColumn("released", "bigint", "released deliveries"),
    LakeColumn("moved", "bigint", "deliveries that ended in a move to another queue"),
    LakeColumn("dead", "bigint", "tasks that died"),
    LakeColumn("cancelled", "bigint", "cancelled, waiting or in flight"),
    LakeColumn("deleted", "bigint", "removed by hand"),
    LakeColumn("waiting_change", "bigint", "change of the number of waiting tasks"),
    LakeColumn("inflight_change", "bigint", "change of the number of tasks in flight"),
)

QUEUE_MINUTES: Final = Table(
    "queue_minutes",
    ("queue", "minute"),
    "What happened in a queue in a minute. Minutes in which nothing changed have no row.",
    (
        LakeColumn("queue", "string", "the queue"),
        LakeColumn("minute", "timestamp", "its beginning"),
        *COUNTS,
        LakeColumn("backlog", "bigint", "tasks waiting at its end, due or not"),
        LakeColumn("inflight", "bigint", "tasks in flight at its end"),
        LakeColumn(
            "oldest_ready_micros",
            "bigint",
            "microseconds that the oldest due task had waited at its end",
        ),
        LakeColumn("wait", "map<int,bigint>", "deliveries by bucket of their wait"),
        LakeColumn("run", "map<int,bigint>", "ended deliveries by bucket of their run"),
        LakeColumn("wait_sum_micros", "bigint", "microseconds waited by all deliveries together"),
        LakeColumn("run_sum_micros", "bigint", "microseconds run by all ended deliveries together"),
        LakeColumn("wait_max_micros", "bigint", "microseconds of the longest wait"),
        LakeColumn("run_max_micros", "bigint", "microseconds of the longest run"),
        _DAY,
    ),
    ("queue", "minute"),
)

FAILURES: Final = Table(
    "failures",
    ("queue", "hour", "fingerprint"),
    "Failed attempts, grouped by type and by message without numbers and names.",
    (
        LakeColumn("queue", "string", "the queue"),
        LakeColumn("hour", "timestamp", "its beginning"),
        LakeColumn("fingerprint", "string", "16 digits that are the same for similar errors"),
        LakeColumn("error_type", "string", "their type"),
        LakeColumn("sample", "string", "the message of the first"),
        LakeColumn("n", "bigint", "how many"),
        LakeColumn("dead", "bigint", "how many of them were the task's last"),
        LakeColumn("first_at", "timestamp", "the first"),
        LakeColumn("last_at", "timestamp", "the last"),
        LakeColumn("task_ids", "array<string>", "the first 10 tasks"),
        _DAY,
    ),
    ("queue", "hour"),
)

TABLES: Final = (CHANGES, ATTEMPTS, TASKS, QUEUE_MINUTES, FAILURES)
"""The tables that the docs show."""

OPEN_TASKS: Final = Table(
    "open_tasks",
    ("task_id", "created_at"),
    "Tasks that waited or were in flight when a day began, each as of its latest version.",
    (
        *_LIFE,
        LakeColumn("version", "bigint", "of its latest change"),
        LakeColumn("queue", "string", "the queue"),
        LakeColumn("state", "string", "ENQUEUED or INFLIGHT"),
        LakeColumn("ready_at", "timestamp", "when it was due"),
        LakeColumn("attempts", "int", "deliveries counted"),
        LakeColumn("lease", "string", "digest of its lease"),
        LakeColumn("lease_end", "timestamp", "end of its lease"),
        LakeColumn("lease_group", "string", "digest of the group that its lease is under"),
        LakeColumn("expires_at", "timestamp", "when it expires if no worker takes it"),
        LakeColumn("at", "timestamp", "when that change was made"),
        LakeColumn(DAY, "date", "the day that began"),
    ),
    ("queue", "task_id"),
)

QUEUE_LEVELS: Final = Table(
    "queue_levels",
    ("queue",),
    "How many tasks a queue had when a day began.",
    (
        LakeColumn("queue", "string", "the queue"),
        LakeColumn("backlog", "bigint", "tasks waiting"),
        LakeColumn("inflight", "bigint", "tasks in flight"),
        LakeColumn(DAY, "date", "the day that began"),
    ),
    ("queue",),
)

EVERY_TABLE: Final = (*TABLES, OPEN_TASKS, QUEUE_LEVELS)
"""All tables of a lake, with the internal ones."""


def markdown() -> str:
    """Return the tables as docs/reference/lake-tables.md shows them."""
    parts = []
    for table in TABLES:
        key = ", ".join(f"`{name}`" for name in table.key)
        rows = [f"| `{column.name}` | {column.type} | {column.says} |" for column in table.columns]
        head = ["| column | type | holds |", "|---|---|---|"]
        parts.append("\n".join((f"### {table.name}", "", f"{table.says} Key: {key}.", "", *head)))
        parts[-1] += "\n" + "\n".join(rows)
    return "\n\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(f"{markdown()}\n")
