"""Tasks as rows: columns for what conditions and order need, the rest as one JSON text.

The payload stands beside it, exactly as it came in.
"""

import sqlite3
import sys
from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields
from operator import attrgetter
from typing import Any, Final, get_type_hints

import msgspec

from headrace.domain.change import Entry
from headrace.domain.instants import instant_of, micros_of
from headrace.domain.task import Place, State, Task

COLUMNS: Final = "id, queue, state, shard, scheduled_at, expires_at, retained_until, rest, payload"
MEASURED: Final = COLUMNS.replace("payload", "length(CAST(payload AS BLOB))")
"""The same with the size of the payload in its place."""

Row = tuple[Any, ...]
"""The values of ``COLUMNS``."""

_AT_A_TIME: Final = 500  # parameters of one statement
_IN_COLUMNS: Final = frozenset(
    {"id", "place", "scheduled_at", "expires_at", "retained_until", "payload"}
)
_HINTS: Final = get_type_hints(Task, vars(sys.modules[Task.__module__]))
_REST: Final = tuple(field for field in fields(Task) if field.name not in _IN_COLUMNS)
_NAMES: Final = tuple(field.name for field in _REST)


def _default(field: Any) -> Any:  # noqa: ANN401  dataclasses' own
    if field.default is not MISSING:
        return (field.name, _HINTS[field.name], field.default)
    if field.default_factory is not MISSING:
        factory = msgspec.field(default_factory=field.default_factory)
        return (field.name, _HINTS[field.name], factory)
    return (field.name, _HINTS[field.name])


_Rest: Final = msgspec.defstruct("_Rest", map(_default, _REST), omit_defaults=True)
_rest_of: Final = attrgetter(*_NAMES)


def _plain(value: object) -> str:
    """A text of a type of its own, as bodies bring them, is the text."""
    if isinstance(value, str):
        return str(value)
    raise NotImplementedError(type(value))


_encode: Final = msgspec.json.Encoder(enc_hook=_plain).encode
_decode: Final[Callable[[str], Any]] = msgspec.json.Decoder(_Rest).decode
_STATES: Final = {str(state): state for state in State}


def _micros(instant: Any) -> int | None:  # noqa: ANN401  a datetime or None
    return None if instant is None else micros_of(instant)


def row_of(task: Task) -> Row:
    """Return *task* as a row."""
    rest = _encode(_Rest(*_rest_of(task))).decode()
    place: tuple[Any, ...] = (None, None, None)
    if task.spent is None:
        place = (task.place.queue, str(task.place.state), task.place.shard)
    return (
        task.id,
        *place,
        micros_of(task.scheduled_at),
        _micros(task.expires_at),
        _micros(task.retained_until),
        rest,
        task.payload,
    )


def task_of(row: Row) -> Task:
    """Return the task of a row."""
    id_, queue, state, shard, scheduled_at, expires_at, retained_until, rest, payload = row
    known = _decode(rest)
    place = known.spent if queue is None else Place(queue, _STATES[state], shard)
    return Task(
        id=id_,
        place=place,
        scheduled_at=instant_of(scheduled_at),
        expires_at=None if expires_at is None else instant_of(expires_at),
        retained_until=None if retained_until is None else instant_of(retained_until),
        payload=payload,
        **dict(zip(_NAMES, _rest_of(known), strict=True)),
    )


def entry_of(place: Place, row: Row) -> Entry:
    """Return an index entry of (id, scheduled_at, expires_at, retained_until)."""
    id_, scheduled_at, expires_at, retained_until = row
    return Entry(
        id_,
        place,
        instant_of(scheduled_at),
        None if expires_at is None else instant_of(expires_at),
        None if retained_until is None else instant_of(retained_until),
    )


def read_rows(
    db: sqlite3.Connection, task_ids: Iterable[str], *, payload: bool = True
) -> dict[str, Row]:
    """Return the rows of those tasks that exist, by id; without *payload* its size is in them."""
    columns = COLUMNS if payload else MEASURED
    ids = list(dict.fromkeys(task_ids))
    found: dict[str, Row] = {}
    for start in range(0, len(ids), _AT_A_TIME):
        some = ids[start : start + _AT_A_TIME]
        marks = ",".join("?" * len(some))
        for row in db.execute(f"SELECT {columns} FROM tasks WHERE id IN ({marks})", some):
            found[row[0]] = row
    return found
