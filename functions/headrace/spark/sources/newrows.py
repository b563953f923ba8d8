"""Rows as new tasks: what the columns of a frame may say of each, and what is wrong with a row."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import blake2b
from typing import Any, Final
from uuid import UUID

import msgspec

from headrace.client.app import checks
from headrace.domain import limits
from headrace.domain.errors import FieldError, InvalidRequest
from headrace.domain.plan import TaskSpec
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import DedupeUntil
from headrace.domain.task_fields import REPLAYED, SetBy, TaskField, texts
from headrace.spark.sources.arrow import UnfitValue, plain
from headrace.spark.sources.rows import (
    BadRow,
    json_text,
    priority_in,
    queue_in,
    right,
    within,
)

_NULL: Final = "null"
_NUMBERS: Final = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
_RANDOM: Final = 4  # the version of UUIDs that are drawn


@dataclass(frozen=True, slots=True)
class Accepted:
    """A column that a frame may have: its possible types, and its meaning."""

    name: str
    types: tuple[str, ...]
    says: str

    @property
    def kind(self) -> str:
        """What it must be, in one word."""
        return "number" if self.types is _NUMBERS else self.types[0]


COLUMNS: Final = (
    Accepted("payload", ("string",), "JSON text, such as `to_json(struct(*))` makes; null is null"),
    Accepted("queue", ("string",), "where it goes, if the option does not say"),
    Accepted("scheduled_at", ("timestamp",), "when it is due; now unless given"),
    Accepted("delay_in_seconds", _NUMBERS, "instead of scheduled_at"),
    Accepted("expires_at", ("timestamp",), "not delivered after; else as the queue says"),
    *(Accepted(field.name, ("string",), field.help) for field in texts(SetBy.ENQUEUE)),
    Accepted("dedupe_until", ("string",), "start or end: when the dedupe key is free again"),
    Accepted("tags", ("map<string,string>",), "its tags"),
    Accepted("keepalive_timeout_in_seconds", _NUMBERS, "of its leases; else as the queue says"),
    Accepted("priority", ("string",), "high, normal or low, in a queue with priorities"),
    Accepted("retry_strategy", ("string",), "JSON, as in the API; else as the queue says"),
)


def markdown() -> str:
    """Return the columns as the docs show them."""
    rows = [f"| `{column.name}` | {column.kind} | {column.says} |" for column in COLUMNS]
    return "\n".join(("| column | type | means |", "|---|---|---|", *rows))


@dataclass(frozen=True, slots=True)
class Identity:
    """Where ids come from: a column that has them, or a digest.

    The digest is of a *run*, of the row's queue, and of columns: of their names and their values.
    """

    id_column: str | None = None
    id_from: tuple[str, ...] = ()
    run: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it needs."""
        return (self.id_column,) if self.id_column else self.id_from

    def of(self, row: Mapping[str, Any], queue: str) -> str:
        """Return the id of *row* in *queue*, always the same one.  Raises BadRow."""
        if self.id_column:
            given = row[self.id_column]
            return right(self.id_column, str(given), limits.pattern_fault(given, limits.TASK_ID_RE))
        values = {name: row[name] for name in self.id_from}
        if all(value is None for value in values.values()):
            message = f"the id comes from {', '.join(self.id_from)}: not all of it may be null"
            raise BadRow(message)
        parts = [self.run, queue, values]
        text = json.dumps(parts, default=plain, ensure_ascii=False, sort_keys=True)
        return f"row-{blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"


def wrong_columns(
    fields: Sequence[tuple[str, str]], identity: Identity, queue: str | None
) -> list[FieldError]:
    """The errors of a frame of columns (name, type)."""
    types = dict(fields)
    known = {column.name: column for column in COLUMNS}
    wrong = [
        FieldError(name, "is missing: the ids come from it")
        for name in identity.columns
        if name not in types
    ]
    if queue is None and "queue" not in types:
        wrong.append(FieldError("queue", "must be given, as an option or as a column"))
    if "payload" not in types:
        wrong.append(FieldError("payload", "is missing: a column of JSON text"))
    for name, kind in fields:
        column = known.get(name)
        if column is None and name not in identity.columns:
            wrong.append(FieldError(name, f"is no column of a task; drop it. {_all()}"))
        elif column is not None and kind.partition("(")[0] not in column.types:
            must = "a number" if column.kind == "number" else column.kind
            wrong.append(FieldError(name, f"must be {must}, not {kind}"))
    return wrong


def _all() -> str:
    return "There are " + ", ".join(column.name for column in COLUMNS)


def random_ids(ids: Sequence[object]) -> bool:
    """Whether *ids* look as if they were drawn: all of them are UUIDs of version 4."""

    def drawn(text: object) -> bool:
        try:
            return UUID(str(text)).version == _RANDOM
        except ValueError:
            return False

    return bool(ids) and all(map(drawn, ids))


def new_task(row: Mapping[str, Any], identity: Identity, queue: str) -> TaskSpec:
    """Return the task of *queue* that *row* is.  Raises BadRow with the first thing wrong."""
    columns = {name: row.get(name) for name in _READ}
    task = TaskSpec(
        id=identity.of(row, queue),
        **{_FIELDS.get(name, name): read(name, columns[name]) for name, read in _READ.items()},
    )
    if task.scheduled_at is not None and task.delay_in_seconds is not None:
        message = "delay_in_seconds and scheduled_at exclude each other"
        raise BadRow(message)
    if task.dedupe_until is not None and task.dedupe_key is None:
        message = "dedupe_until needs a dedupe_key"
        raise BadRow(message)
    due, expires = task.scheduled_at, task.expires_at
    if due is not None and expires is not None and expires <= due:
        message = "expires_at must be after scheduled_at"
        raise BadRow(message)
    return task


def check_readable(row: Mapping[str, Any]) -> None:
    """Raise BadRow for a value that Python has none for."""
    for name, value in row.items():
        if isinstance(value, UnfitValue):
            message = f"{name} {value.reason}"
            raise BadRow(message)


def queue_of(row: Mapping[str, Any]) -> str:
    """Return where *row* goes.  Raises BadRow."""
    return queue_in("queue", row["queue"])


def _payload(name: str, text: str | None) -> str:
    return _NULL if text is None else json_text(name, text)


def _aware(_: str, at: datetime | None) -> datetime | None:
    """Return an aware instant; Spark hands rows out in this machine's local time."""
    return None if at is None else at.astimezone(UTC)


def _within(bounds: limits.Bounds) -> Callable[[str, Any], float | None]:
    def seconds(name: str, given: float | Decimal | None) -> float | None:
        value = within(name, given, bounds)
        return value if value is None else int(value) if value == int(value) else float(value)

    return seconds


def _text(field: TaskField) -> Callable[[str, str | None], str | None]:
    def read(name: str, text: str | None) -> str | None:
        return None if text is None else right(name, text, field.fault(text))

    return read


def _tags(name: str, pairs: Mapping[str, str] | Sequence[tuple[str, str]] | None) -> dict[str, str]:
    tags: dict[str, Any] = {} if pairs is None else dict(pairs)  # a map, or its pairs
    for tag, fault in limits.tags_faults(tags):
        right(name if tag is None else f"{name}.{tag}", tags, fault)
    return tags


def _retry(name: str, text: str | None) -> RetryStrategy | None:
    if text is None:
        return None
    try:
        strategy = msgspec.json.decode(text, type=RetryStrategy)
        if strategy.kind is Backoff.INTERVALS:
            strategy = replace(strategy, max_retries=len(strategy.intervals))
        return checks.retry_strategy(name, strategy)
    except msgspec.DecodeError as error:
        message = f"{name} must be a retry strategy as JSON: {error}"
        raise BadRow(message) from error
    except InvalidRequest as wrong:
        raise BadRow(str(wrong)) from wrong


def _until(name: str, text: str | None) -> DedupeUntil | None:
    """Return the ``dedupe_until`` of a task.  Raises BadRow."""
    if text is None:
        return None
    try:
        until = checks.one_of(name, text, DedupeUntil)
    except InvalidRequest as wrong:
        raise BadRow(str(wrong)) from wrong
    return None if until is DedupeUntil.END else until


_READ: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "payload": _payload,
    "scheduled_at": _aware,
    "delay_in_seconds": _within(limits.DELAY_SECONDS),
    "expires_at": _aware,
    **{field.name: _text(field) for field in texts(SetBy.ENQUEUE)},
    "dedupe_until": _until,
    "tags": _tags,
    "keepalive_timeout_in_seconds": _within(limits.KEEPALIVE_SECONDS),
    "retry_strategy": _retry,
    "priority": priority_in,
}
_FIELDS: Final = {field.api: field.name for field in REPLAYED if field.api}
