"""The rows that settle tasks, and the report that the rows of one task make together."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from headrace.domain import limits
from headrace.domain.errors import FieldError
from headrace.domain.limits import (
    DELAY_SECONDS,
    ERROR_BYTES,
    GROUP_KEY_BYTES,
    NAME_RE,
    PAYLOAD_BYTES,
    RESERVED_TASK,
    SPAWNED_BYTES,
    Bounds,
    json_fault,
    number_fault,
    pattern_fault,
    reserved_task,
    text_fault,
    utf8_bytes,
)
from headrace.domain.plan import TaskSpec
from headrace.domain.task import Priority
from headrace.ops.delivery.reports import ReportStatus, TaskReport, WorkerError

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = {
    "id": "string",
    "lease": "string",
    "action": "string",
    "to_queue": "string",
    "payload": "string",
    "delay_seconds": "double",
    "error": "string",
    "priority": "string",
    "group_key": "string",
}
"""Of the rows and their types, in the order of ``SettlingRow``; all but two may be left out."""

QUEUE_COLUMN: Final = "queue"
"""Where a read has a task's queue: by it tasks of several queues are settled."""

NEAR: Final = {"delayinseconds": "delay_seconds"}  # what others of our formats call it
SPAWN: Final = "spawn"
_STATUSES: Final = {
    "move": ReportStatus.MOVED,
    "succeed": ReportStatus.SUCCEEDED,
    "fail": ReportStatus.FAILED,
    "retry": ReportStatus.FAILED,
    "release": ReportStatus.RELEASED,
}
ACTIONS: Final = (*_STATUSES, SPAWN)

_SAMPLES: Final = 3
_TYPE: Final = 128  # characters of an error's type
_ROOM: Final = ERROR_BYTES - 1024  # attempt, time, worker, kind and type stand there too
_WIDEST: Final = 6  # bytes of a character in JSON


_Given = TypeVar("_Given", bound=float | Decimal | None)
_Value = TypeVar("_Value")


class BadRow(ValueError):
    """A row, or what a task's rows are together, that cannot be carried out."""


@dataclass(frozen=True, slots=True)
class SettlingRow:
    """One row as the transform made it; ``payload`` is JSON text.

    ``priority`` and ``group_key`` are a child's: a task that is moved keeps its own.
    """

    id: str
    lease: str
    action: str
    to_queue: str | None = None
    payload: str | None = None
    delay_seconds: float | None = None
    error: str | None = None
    priority: str | None = None
    group_key: str | None = None
    queue: str | None = None


def report_of(rows: Sequence[SettlingRow], *, to: str | None) -> TaskReport:
    """Return the report that all *rows* of one task make.

    One of them settles it, the others spawn; only spawning is success.  Raises BadRow.
    """
    spawning = [row for row in rows if row.action == SPAWN]
    settling = [row for row in rows if row.action != SPAWN] or [
        SettlingRow(rows[0].id, rows[0].lease, "succeed")
    ]
    row = settling[0]
    if len(settling) > 1:
        actions = ", ".join(one.action for one in settling[:_SAMPLES])
        message = f"a task is settled by one row, not by {len(settling)} ({actions}, …)"
        raise BadRow(message)
    status = _STATUSES.get(row.action)
    if status is None:
        message = f"action must be one of {', '.join(ACTIONS)}, not {row.action!r}"
        raise BadRow(message)
    if spawning and status not in (ReportStatus.MOVED, ReportStatus.SUCCEEDED):
        message = f"a task that spawns must succeed or be moved, not {row.action}"
        raise BadRow(message)
    if len(spawning) > limits.SPAWN:
        message = f"a task spawns at most {limits.SPAWN} others at a time, not {len(spawning):,}"
        raise BadRow(message)
    size = sum(utf8_bytes(one.payload or "") for one in spawning)
    if size > SPAWNED_BYTES:
        message = f"payloads that a task spawns are at most {SPAWNED_BYTES:,} bytes, not {size:,}"
        raise BadRow(message)
    moved = status is ReportStatus.MOVED
    return TaskReport(
        row.id,
        row.lease,
        status,
        error=error_of(row.error),
        retryable=row.action != "fail",
        delay_in_seconds=_delay(row),
        to_queue=_target(row, to) if moved else None,
        payload=_payload(row) if moved else None,
        spawn=tuple((_target(one, to), _child(one)) for one in spawning),
    )


def _target(row: SettlingRow, to: str | None) -> str:
    target = row.to_queue or to
    if not target:
        message = f"to_queue must be given for {row.action}"
        raise BadRow(message)
    return queue_in("to_queue", target)


def queue_in(column: str, name: object) -> str:
    """Return *name*, which *column* has, if it may be a queue's.  Raises BadRow."""
    return right(column, str(name), pattern_fault(name, NAME_RE))


def _child(row: SettlingRow) -> TaskSpec:
    payload = _payload(row)
    if payload is None:
        message = "payload must be given for spawn"
        raise BadRow(message)
    return TaskSpec(
        payload,
        delay_in_seconds=_delay(row),
        priority=priority_in("priority", row.priority),
        group_key=group_in("group_key", row.group_key),
    )


def _payload(row: SettlingRow) -> str | None:
    return None if row.payload is None else json_text("payload", row.payload)


def json_text(name: str, text: str) -> str:
    """Return *text*, which column *name* has, if it may be a payload.  Raises BadRow."""
    right(name, text, json_fault(utf8_bytes(text), PAYLOAD_BYTES))
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        message = f"{name} must be JSON text: {error}"
        raise BadRow(message) from error
    if reserved_task(text):
        message = f"{name}.task {RESERVED_TASK}"
        raise BadRow(message)
    return text


def _delay(row: SettlingRow) -> float | None:
    return within("delay_seconds", row.delay_seconds, DELAY_SECONDS)


def within(column: str, value: _Given, bounds: Bounds) -> _Given:
    """Return *value*, which *column* has, if it is within *bounds* or not there.  Raises BadRow."""
    number = float(value) if isinstance(value, Decimal) else value
    return right(column, value, None if number is None else number_fault(number, bounds))


def right(column: str, value: _Value, fault: str | None) -> _Value:
    """Return *value*, which *column* has, if it has no *fault*.  Raises BadRow."""
    if fault:
        message = f"{column} {fault}"
        raise BadRow(message)
    return value


def priority_in(column: str, text: str | None) -> Priority | None:
    """Return the priority that *column* names, None if it names none.  Raises BadRow."""
    words = [*Priority]
    fault = f"must be one of {', '.join(words)}, not {text!r:.140}"
    return None if text is None else Priority(right(column, text, None if text in words else fault))


def group_in(column: str, text: str | None) -> str | None:
    """Return *text*, which *column* has, if it may be a group's key.  Raises BadRow."""
    least, most = GROUP_KEY_BYTES
    return None if text is None else right(column, text, text_fault(text, most, least))


def error_of(text: str | None) -> WorkerError:
    """Return the error in *text*, with its type if the text is ``Type: message``."""
    if not text:
        return WorkerError()
    kind, colon, message = text.partition(": ")
    if not (colon and kind.isidentifier()):
        kind, message = "", text
    return WorkerError(kind[:_TYPE], fitted(message))


def fitted(message: str) -> str:
    """Return as much of *message* as surely fits an error's entry; lone surrogates are escaped."""
    message = encodable(message)
    if len(json.dumps(message, ensure_ascii=False).encode()) <= _ROOM:
        return message
    return message[: _ROOM // _WIDEST] + "… [cut]"


def encodable(text: str) -> str:
    """Return *text* with what UTF-8 cannot say, a lone surrogate, written as its escape."""
    return text.encode("utf-8", "backslashreplace").decode()


def column_names(names: Sequence[str]) -> tuple[dict[str, str], list[FieldError]]:
    """Return by which of *names* each column stands, and what is wrong with them.

    Upper and lower case are one, as they are to Spark.  A name that is nearly a column's, such as
    ``to queue``, would be ignored like any other, and the task settled otherwise: it is refused.
    """
    found: dict[str, str] = {}
    wrong: list[FieldError] = []
    plain = {name.replace("_", ""): name for name in COLUMNS}
    for name in names:
        column = name.lower()
        if column in found:
            wrong.append(FieldError(name, f"and {found[column]} are both {column}: drop one"))
        elif column in COLUMNS:
            found[column] = name
        else:
            letters = "".join(filter(str.isalnum, column))
            meant = plain.get(letters) or NEAR.get(letters)
            if meant is not None:
                wrong.append(FieldError(name, f"is no column; say {meant}, or drop it"))
    return found, wrong


def rows_of(batches: Iterable[Any], default: str, *, queues: bool = False) -> Iterator[SettlingRow]:
    """Yield the rows of record batches; one without an action has the *default* one.

    With *queues*, each says of which queue its task is.
    """
    wanted = (*COLUMNS, QUEUE_COLUMN) if queues else tuple(COLUMNS)
    for batch in batches:
        named = {name.lower(): name for name in batch.schema.names}
        blank = [None] * batch.num_rows
        given = (_values(batch.column(named[one])) if one in named else blank for one in wanted)
        for id_, lease, action, *rest in zip(*given, strict=True):
            yield SettlingRow(id_, lease, action or default, *rest)


def chunks(items: Iterator[_Value], size: int) -> Iterator[list[_Value]]:
    """Yield *items* in lists of at most *size*."""
    while some := list(islice(items, size)):
        yield some


def _values(column: "pa.Array") -> list[Any]:
    """Return the values of a column; bytes that are no UTF-8, which Spark allows, as surrogates."""
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        found = column.cast("binary").to_pylist()
        return [None if one is None else one.decode("utf-8", "surrogateescape") for one in found]
