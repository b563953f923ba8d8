"""Tasks as rows, and the sizes of items that DynamoDB would charge for.

A row has the task as JSON without its payload, the payload, and columns for conditions and order.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import chain
from math import ceil
from typing import Any, Final

import msgspec
from msgspec import structs

from headrace.domain.change import Entry
from headrace.domain.limits import utf8_bytes
from headrace.domain.patch import Fields, Value
from headrace.domain.task import Place, Task
from headrace.domain.times import instant_of, micros_of
from headrace.store.call_scope import entry_units, write_units
from headrace.store.items import item_bytes, to_item

COLUMNS: Final = (
    "id, queue, state, label, scheduled_at, expires_at, retained_until, due_at, task, payload"
)
MEASURED: Final = COLUMNS.replace("payload", "length(CAST(payload AS BLOB))")
"""``COLUMNS`` with the size of the payload instead of the payload."""

Row = tuple[Any, ...]
"""The values of ``COLUMNS``."""

_AT_A_TIME: Final = 500  # parameters of one statement
_INSERTED_AT_ONCE: Final = 25  # rows


def _plain(value: object) -> str:
    """Return the text of a subclass of str, as request bodies have them."""
    if isinstance(value, str):
        return str(value)
    raise NotImplementedError(type(value))


_encode: Final = msgspec.json.Encoder(enc_hook=_plain).encode
_decode: Final = msgspec.json.Decoder(Task).decode


class _OfGroup(msgspec.Struct):
    group_key: str | None = None


_group_of: Final = msgspec.json.Decoder(_OfGroup).decode


def _micros(instant: datetime | None) -> int | None:
    return None if instant is None else micros_of(instant)


def row_of(task: Task) -> Row:
    """Return *task* as a row."""
    place: tuple[Any, ...] = (None, None, None)
    if task.ended_in is None:
        place = (task.place.queue, str(task.place.state), task.place.label)
    return (
        task.id,
        *place,
        micros_of(task.scheduled_at),
        _micros(task.expires_at),
        _micros(task.retained_until),
        micros_of(task.due_at),
        _encode(structs.replace(task, payload=None)).decode(),
        task.payload,
    )


def task_of(text: str, payload: str | None) -> Task:
    """Return the task of the columns ``task`` and ``payload``."""
    task = _decode(text)
    if payload is not None:
        structs.force_setattr(task, "payload", payload)
    return task


def entry_of(place: Place, row: Row) -> Entry:
    """Return the index entry of (id, scheduled_at, expires_at, retained_until, due_at, task).

    ``task`` is None if the group is not needed.
    """
    id_, scheduled_at, expires_at, retained_until, due_at, text = row
    at = instant_of(scheduled_at)
    return Entry(
        id_,
        place,
        at,
        None if expires_at is None else instant_of(expires_at),
        None if retained_until is None else instant_of(retained_until),
        at if due_at == scheduled_at else None if due_at is None else instant_of(due_at),
        None if text is None else _group_of(text).group_key,
        text is not None,
    )


def read_rows(
    db: sqlite3.Connection, task_ids: Iterable[str], *, payload: bool = True
) -> dict[str, Row]:
    """Return the rows of the tasks that exist, by id; without *payload* with its size instead."""
    columns = COLUMNS if payload else MEASURED
    ids = list(dict.fromkeys(task_ids))
    found: dict[str, Row] = {}
    for start in range(0, len(ids), _AT_A_TIME):
        some = ids[start : start + _AT_A_TIME]
        marks = ",".join("?" * len(some))
        for row in db.execute(f"SELECT {columns} FROM tasks WHERE id IN ({marks})", some):
            found[row[0]] = row
    return found


def insert(db: sqlite3.Connection, into: str, rows: Sequence[Row], then: str = "") -> None:
    """Insert *rows*, which have the same number of values, by few statements.

    Between two statements other threads may run, while other processes wait for the file.
    """
    for start in range(0, len(rows), _INSERTED_AT_ONCE):
        some = rows[start : start + _INSERTED_AT_ONCE]
        db.execute(_insertion(into, len(some), len(some[0]), then), [*chain.from_iterable(some)])


@lru_cache
def _insertion(into: str, rows: int, values: int, then: str) -> str:
    marks = f"({','.join('?' * values)})"
    return f"INSERT INTO {into} VALUES {','.join([marks] * rows)} {then}"


_KB: Final = 1024
_INSTANT_BYTES: Final = 9  # microseconds since 1970, a byte for two digits
_SECONDS_BYTES: Final = 6


def task_bytes(row: Row | None, payload: int | None = None) -> int:
    """Return the bytes of the item of a row, or an estimate if they surely are under a kilobyte.

    *payload* is the size of the payload, if the row is without it.
    """
    if row is None:
        return 0
    if payload is None:
        payload = utf8_bytes(row[-1] or "")
    most = utf8_bytes(row[-2]) + payload  # the names of fields take more room in JSON
    if most < _KB:
        return most
    task = task_of(row[-2], "" if payload else row[-1])
    return item_bytes(to_item(task)) + payload


def change_units(old: Row | None, new: Row | None) -> int:
    """Return the write units of a task's change, its index entry's among them."""
    left = None if old is None or old[1] is None else old[1:8]
    entered = None if new is None or new[1] is None else new[1:8]
    return write_units(task_bytes(old), task_bytes(new)) + entry_units(
        was=left is not None,
        is_=entered is not None,
        moved=left is not None and entered is not None and left[:4] != entered[:4],
        changed=left != entered,
    )


def entries_bytes(place: Place, entries: Iterable[tuple[Any, ...]]) -> int:
    """Return the bytes of index entries of *place*: (id, scheduled_at, expires_at, ttl, …)."""
    each = len("queue#state") + len(f"{place.queue}#{place.state}#{place.label}")
    each += len("scheduled_at") + _INSTANT_BYTES + len("task_id") + len("due_at") + _INSTANT_BYTES
    expires, retained = len("expires_at") + _INSTANT_BYTES, len("ttl") + _SECONDS_BYTES
    return sum(
        each + len(id_) + (expires if until is not None else 0) + (retained if ttl else 0)
        for id_, _, until, ttl, *_ in entries
    )


def counted_bytes(place: Place, entries: int) -> int:
    """Return the bytes of so many index entries of *place*, with ids of ours and without ends."""
    return entries_bytes(place, [("tsk_" + 26 * "0", 0, None, None, 0)]) * entries


def control_bytes(kind: str, name: str, fields: Fields | None) -> int:
    """Return the bytes of a control item, 0 if it is missing."""
    if fields is None:
        return 0
    size = len("pk") + utf8_bytes(kind) + len("sk") + utf8_bytes(name)
    return size + sum(utf8_bytes(name) + _value_bytes(value) for name, value in fields.items())


def _value_bytes(value: Value) -> int:
    match value:
        case int():
            return number_bytes(value)
        case str():
            return utf8_bytes(value)
    return sum(map(utf8_bytes, value))


def number_bytes(number: int) -> int:
    """Return the bytes of a number."""
    digits = str(number).strip("-0")
    return ceil(len(digits) / 2) + 1 + (number < 0)
