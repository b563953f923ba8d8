"""Changes of tasks with their log, and patches of control items, within a transaction."""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from headrace.domain.change import Change, Done, KeyLock, Outcome, Refused, refused
from headrace.domain.limits import utf8_bytes
from headrace.domain.patch import EXPIRES, Fields, Patch, Patched, Value, number
from headrace.domain.task import LIVE, State, Task
from headrace.domain.times import micros_of
from headrace.store.call_scope import TRANSACTION, read_units, write_units
from headrace.store.keys import BODY
from headrace.store.sqlite.arrivals import Arrived
from headrace.store.sqlite.rows import (
    COLUMNS,
    Row,
    change_units,
    control_bytes,
    insert,
    read_rows,
    row_of,
    task_bytes,
    task_of,
)

_INTO_TASKS: Final = f"tasks ({COLUMNS})"
ITEM: Final = "body, fields, expires_at"
_MICROS: Final = 1_000_000
_text: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=sorted).encode
_REPLACING: Final = (
    "ON CONFLICT (id) DO UPDATE SET"
    " queue=excluded.queue, state=excluded.state, label=excluded.label,"
    " scheduled_at=excluded.scheduled_at, expires_at=excluded.expires_at,"
    " retained_until=excluded.retained_until, due_at=excluded.due_at, task=excluded.task,"
    " payload=excluded.payload"
)


Line = tuple[Any, ...]
_INTO_LOG: Final = "changes (at, forgotten, before, after, payload, payload_bytes)"


@dataclass(frozen=True, slots=True)
class Log:
    """Writes the log of writes, kept until the recorder has read it.

    A line holds the task before and after the write without its payload, and the size of the
    payload.  ``keeps`` says for which queues the log keeps new payloads.
    """

    now: Callable[[], datetime]
    keeps: Callable[[str], bool] = lambda _queue: False

    def line(self, old: Row | None, new: Row | None, *, forgotten: bool = False) -> Line:
        """Return the line of a write; write() adds the time."""
        payload = None
        if new is not None and (old is None or old[-1] != new[-1]) and new[1] is not None:
            payload = new[-1] if self.keeps(new[1]) else None
        last = old if new is None or new[1] is None else new  # a tombstone has no queue
        size = 0 if last is None else utf8_bytes(last[-1] or "")
        return (forgotten, old and old[-2], new and new[-2], payload, size)

    def write(self, db: sqlite3.Connection, lines: Sequence[Line]) -> None:
        """Write *lines*, within a transaction."""
        at = micros_of(self.now())
        insert(db, _INTO_LOG, [(at, *line) for line in lines])


@dataclass(slots=True)
class MadeChanges:
    """The outcomes of the changes of one call, and their cost in units.

    ``arrived`` has the tasks that were enqueued, by queue, each with the microsecond when it is
    due; ``ended`` has the tasks that ended.
    """

    outcomes: list[Outcome]
    write: float
    read: float
    arrived: Arrived
    ended: Sequence[str] = ()


class Commit:
    """The changes of one call, within a transaction of *db*."""

    def __init__(self, db: sqlite3.Connection, log: Log) -> None:
        self._db = db
        self._log = log
        self._outcomes: list[Outcome] = []
        self._tasks: dict[str, Task | None] = {}
        self._rows: dict[str, Row | None] = {}
        self._written: dict[str, None] = {}
        self._lines: list[Line] = []
        self._arrived: Arrived = {}
        self._ended: list[str] = []
        self._write = self._read = 0.0

    def make(self, changes: Sequence[Change]) -> MadeChanges:
        """Make those of *changes* whose conditions hold."""
        wanted = list(_ids(changes))
        self._rows = {**dict.fromkeys(wanted), **read_rows(self._db, wanted)}
        self._outcomes = [self._make(change) for change in changes]
        self._flush()
        return MadeChanges(self._outcomes, self._write, self._read, self._arrived, self._ended)

    def _task(self, task_id: str) -> Task | None:
        if task_id not in self._tasks:
            row = self._rows[task_id]
            self._tasks[task_id] = None if row is None else task_of(row[-2], row[-1])
        return self._tasks[task_id]

    def _make(self, change: Change) -> Outcome:
        before = self._task(change.task_id)
        blocked = self._blocked(change) if change.also else ()
        if not change.allowed(before):
            return self._refuse(change, refused(change, before, blocked))
        if blocked:
            return self._refuse(change, Refused(before, blocked))
        after = change.apply(before)
        times = TRANSACTION if change.also else 1
        self._put(change.task_id, after or change.tombstone(before), times)
        for also in change.also:
            self._put_also(also, times)
        last = after or before
        return Refused(None) if last is None else Done(last)

    def _blocked(self, change: Change) -> tuple[int, ...]:
        """Return the places in ``also`` of the writes that are not allowed."""
        return tuple(place for place, also in enumerate(change.also) if not self._open(also))

    def _open(self, also: KeyLock | Change) -> bool:
        if isinstance(also, KeyLock):
            return also.patch().is_allowed(item_at(self._db, also.kind, also.name))
        return also.allowed(self._task(also.task_id)) and all(map(self._open, also.also))

    def _put_also(self, also: KeyLock | Change, times: int) -> None:
        if isinstance(also, KeyLock):
            _, units = make_patch(self._db, also.patch())
            self._write += times * units
            return
        self._put(also.task_id, also.apply(self._task(also.task_id)), times)
        for inner in also.also:
            self._put_also(inner, times)

    def _refuse(self, change: Change, outcome: Outcome) -> Outcome:
        """Count the cost of the refused write, and of reading the task that refused it."""
        if change.also:
            self._write += TRANSACTION * (1 + sum(1 for _ in _flat(change.also)))
        else:
            size = task_bytes(self._rows[change.task_id])
            self._write += write_units(size)
            self._read += read_units(size)
        return outcome

    def _put(self, task_id: str, after: Task | None, times: int) -> None:
        old, new = self._rows[task_id], None if after is None else row_of(after)
        if old is None and new is None:
            return
        self._write += times * change_units(old, new)
        self._rows[task_id], self._tasks[task_id] = new, after
        self._written[task_id] = None
        self._lines.append(self._log.line(old, new))
        if new is not None and new[2] == State.ENQUEUED and (old is None or old[1:5] != new[1:5]):
            self._arrived.setdefault(new[1], {})[task_id] = new[4]
        elif new is None or new[2] not in LIVE:
            self._ended.append(task_id)

    def _flush(self) -> None:
        puts = [row for id_ in self._written if (row := self._rows[id_]) is not None]
        gone = [(id_,) for id_ in self._written if self._rows[id_] is None]
        insert(self._db, _INTO_TASKS, puts, _REPLACING)
        if gone:
            self._db.executemany("DELETE FROM tasks WHERE id = ?", gone)
        self._log.write(self._db, self._lines)


def _ids(changes: Iterable[KeyLock | Change]) -> Iterator[str]:
    for change in changes:
        if isinstance(change, Change):
            yield change.task_id
            yield from _ids(change.also)


def _flat(also: Iterable[KeyLock | Change]) -> Iterator[KeyLock | Change]:
    for one in also:
        yield one
        if isinstance(one, Change):
            yield from _flat(one.also)


def make_patch(db: sqlite3.Connection, patch: Patch) -> tuple[Patched, float]:
    """Make *patch* within a transaction if it is allowed; return the result and the write units."""
    kind, name = patch.kind, patch.name
    before = item_at(db, kind, name)
    units = write_units(control_bytes(kind, name, before))
    if not patch.is_allowed(before):
        return Patched(patch.is_applied(before), before), units
    after = patch.apply(before)
    if after is None:
        db.execute("DELETE FROM items WHERE kind = ? AND name = ?", (kind, name))
        return Patched(made=True, fields=before), units
    fields: dict[str, Value] = dict(after)
    body = fields.pop(BODY, None)
    until = None if fields.pop(EXPIRES, None) is None else number(after, EXPIRES) * _MICROS
    db.execute(
        f"INSERT OR REPLACE INTO items (kind, name, {ITEM}) VALUES (?, ?, ?, ?, ?)",
        (kind, name, body, _text(fields), until),
    )
    units = max(units, write_units(control_bytes(kind, name, after)))
    return Patched(made=True, fields=after), units


def item_at(db: sqlite3.Connection, kind: str, name: str) -> Fields | None:
    """Return the fields of a control item, or None if it is missing."""
    row = db.execute(
        f"SELECT {ITEM} FROM items WHERE kind = ? AND name = ?", (kind, name)
    ).fetchone()
    return None if row is None else item_fields(*row)


def item_fields(body: str | None, kept: str, expires_at: int | None) -> Fields:
    """Return the fields of a control item by its row."""
    fields: dict[str, Any] = json.loads(kept)
    for name, value in fields.items():
        if isinstance(value, list):
            fields[name] = frozenset(value)
    if body is not None:
        fields[BODY] = body
    if expires_at is not None:
        fields[EXPIRES] = expires_at // _MICROS
    return fields
