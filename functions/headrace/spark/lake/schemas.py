"""The tables of the lake, their columns, types and units: declared here and nowhere else.

``docs/lake.md`` has them as tables; a test compares.  Needs no Spark.
"""

import sys
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

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
"""The column by which every table is in folders: the UTC day the stream recorded a change."""


HOUR: Final = "hh"
"""What a frame has besides on its way to the lake: the hour in which a change was recorded."""


@dataclass(frozen=True, slots=True)
class Column:
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
    columns: tuple[Column, ...]
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


_DAY: Final = Column(DAY, "date", "UTC day on which the stream recorded it")
_LIFE: Final = (
    Column("task_id", "string", "the task"),
    Column("created_at", "timestamp", "when it was first enqueued; distinguishes lives of one id"),
)


def _sides(name: str, kind: Type, says: str) -> tuple[Column, Column]:
    return Column(f"{name}_from", kind, f"{says}, before"), Column(f"{name}_to", kind, "after")


CHANGES: Final = Table(
    "changes",
    ("task_id", "created_at", "version"),
    "Every write of every task. What is null on one side: the task was not there.",
    (
        *_LIFE,
        Column("version", "bigint", "1 for the first write; a removal counts as one"),
        Column("move", "string", "what happened, in the lifecycle's words, or forget"),
        Column("at", "timestamp", "when, by the service's clock; else as recorded_at"),
        Column("recorded_at", "timestamp", "when the stream saw it, to the second"),
        *_sides("queue", "string", "the queue"),
        *_sides("state", "string", "the stored state"),
        *_sides("due", "timestamp", "due time"),
        *_sides("enqueued", "timestamp", "when it entered its queue"),
        *_sides("attempts", "int", "deliveries counted in its queue"),
        *_sides("hop", "int", "queues it has left, 50 at most"),
        *_sides("lease", "string", "digest of its lease"),
        *_sides("lease_end", "timestamp", "end of its lease"),
        Column("settled", "string", "digest of the lease whose report last took effect"),
        Column("lease_group", "string", "digest of the group that its lease is under"),
        Column("worker", "string", "who had or has it"),
        Column("started_at", "timestamp", "when that delivery began"),
        Column("finished_at", "timestamp", "when it succeeded or died"),
        Column("expires_at", "timestamp", "when it expires if nobody takes it"),
        Column("dead_reason", "string", "rejected, exhausted, expired or cancelled"),
        Column("error_kind", "string", "failed or lease_expired, of the attempt that just failed"),
        Column("error_type", "string", "its type"),
        Column("error_message", "string", "its message, 1,024 characters at most"),
        Column("payload_bytes", "bigint", "bytes of the payload"),
        Column("result_bytes", "bigint", "bytes of the result"),
        Column("payload", "string", "the payload as JSON, where it is new and its queue keeps it"),
        Column("tags", "map<string,string>", "its tags, where they may be new, likewise"),
        Column("group_key", "string", "whose it is, where it has tags here"),
        Column("priority", "string", "its priority, where it has tags here"),
        Column("retry_strategy", "string", "as JSON, if it has its own and tags here"),
        Column("keepalive_timeout_in_seconds", "double", "if it has its own and tags here"),
        Column("shard", "string", "of the stream; export-… where it is known from an export only"),
        Column("sequence", "string", "its number in that shard"),
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
        Column("version", "bigint", "of the change that ended it"),
        Column("queue", "string", "the queue"),
        Column("hop", "int", "queues left before, 50 at most"),
        Column("attempt", "int", "which delivery in this queue; a released one is counted again"),
        Column("worker", "string", "who had it"),
        Column("lease", "string", "digest of its lease"),
        Column("ready_at", "timestamp", "when it was due"),
        Column("started_at", "timestamp", "when it was delivered"),
        Column("ended_at", "timestamp", "when that ended"),
        Column("wait_micros", "bigint", "microseconds from due to delivered"),
        Column("run_micros", "bigint", "microseconds from delivered to ended"),
        Column(
            "outcome",
            "string",
            "succeeded, failed, lease_expired, dead, released, moved, cancelled, deleted",
        ),
        Column("to_queue", "string", "where it was moved"),
        Column("error_type", "string", "the error's type"),
        Column("error_message", "string", "its message"),
        _DAY,
    ),
    ("queue", "ended_at"),
)

TASKS: Final = Table(
    "tasks",
    ("task_id", "created_at", "version"),
    "The life of a task in one queue, when it is over: done, dead, moved on or gone.",
    (
        *_LIFE,
        Column("version", "bigint", "of the change that ended it"),
        Column("queue", "string", "the queue"),
        Column("hop", "int", "queues left before, 50 at most"),
        Column("outcome", "string", "succeeded, dead, moved, cancelled or deleted"),
        Column("enqueued_at", "timestamp", "when it entered the queue"),
        Column("started_at", "timestamp", "its latest delivery, if that ended it"),
        Column("ended_at", "timestamp", "when it was over"),
        Column("total_micros", "bigint", "microseconds from enqueued to ended"),
        Column("attempts", "int", "deliveries counted"),
        Column("dead_reason", "string", "rejected, exhausted, expired or cancelled"),
        Column("to_queue", "string", "where it was moved"),
        Column("error_type", "string", "the last error's type, if it ended it"),
        Column("error_message", "string", "its message"),
        Column("payload_bytes", "bigint", "bytes of the payload"),
        Column("result_bytes", "bigint", "bytes of the result"),
        _DAY,
    ),
    ("queue", "ended_at"),
)

COUNTS: Final = (
    Column("enqueued", "bigint", "came into the queue: new, moved here, restarted"),
    Column("started", "bigint", "deliveries"),
    Column("succeeded", "bigint", "reported SUCCEEDED"),
    Column("failed", "bigint", "attempts that failed, lapsed leases among them"),
    Column("lapsed", "bigint", "leases that lapsed"),
    Column("released", "bigint", "released deliveries"),
    Column("moved", "bigint", "deliveries that ended in a move to another queue"),
    Column("dead", "bigint", "given up"),
    Column("cancelled", "bigint", "cancelled, waiting or in flight"),
    Column("deleted", "bigint", "removed by hand"),
    Column("waiting_change", "bigint", "by how much the number waiting changed"),
    Column("inflight_change", "bigint", "by how much the number in flight changed"),
)

QUEUE_MINUTES: Final = Table(
    "queue_minutes",
    ("queue", "minute"),
    "What happened in a queue in a minute. Minutes in which nothing changed have no row.",
    (
        Column("queue", "string", "the queue"),
        Column("minute", "timestamp", "its beginning"),
        *COUNTS,
        Column("backlog", "bigint", "tasks waiting at its end, due or not"),
        Column("inflight", "bigint", "tasks in flight at its end"),
        Column(
            "oldest_ready_micros",
            "bigint",
            "microseconds the longest-due task waited at its end",
        ),
        Column("wait", "map<int,bigint>", "deliveries by bucket of their wait"),
        Column("run", "map<int,bigint>", "ended deliveries by bucket of their run"),
        Column("wait_sum_micros", "bigint", "microseconds waited by all deliveries together"),
        Column("run_sum_micros", "bigint", "microseconds run by all ended deliveries together"),
        Column("wait_max_micros", "bigint", "microseconds of the longest wait"),
        Column("run_max_micros", "bigint", "microseconds of the longest run"),
        _DAY,
    ),
    ("queue", "minute"),
)

FAILURES: Final = Table(
    "failures",
    ("queue", "hour", "fingerprint"),
    "Failed attempts, alike by type and message without its numbers and names.",
    (
        Column("queue", "string", "the queue"),
        Column("hour", "timestamp", "its beginning"),
        Column("fingerprint", "string", "16 digits that are the same for errors alike"),
        Column("error_type", "string", "their type"),
        Column("sample", "string", "the message of the first"),
        Column("n", "bigint", "how many"),
        Column("dead", "bigint", "how many of them were the task's last"),
        Column("first_at", "timestamp", "the first"),
        Column("last_at", "timestamp", "the last"),
        Column("task_ids", "array<string>", "the first 10 tasks"),
        _DAY,
    ),
    ("queue", "hour"),
)

TABLES: Final = (CHANGES, ATTEMPTS, TASKS, QUEUE_MINUTES, FAILURES)


def markdown() -> str:
    """Return the tables as docs/lake.md shows them."""
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
