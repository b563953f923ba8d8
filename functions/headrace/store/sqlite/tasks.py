"""The table of tasks and its index: changes in transactions, reads, and reads in bulk.

A reader of millions of tasks gets pages of the JSON that DynamoDB has for them (``FilePages``), so
that it decodes tasks in one way.  Each page is a separate read, because SQLite cannot reuse the log
beside the file while a snapshot is open.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, Final

import msgspec

from headrace.domain.change import Change, Outcome
from headrace.domain.task import RETURN_LANE, SHOWN_STATES, TURN_LANE, Place, Task
from headrace.domain.times import instant_of, micros_of
from headrace.store import keys
from headrace.store.base import (
    Claim,
    CountPage,
    EntryPage,
    Position,
    RecordConflict,
    RecordWrite,
    record_patch,
)
from headrace.store.call_scope import charge, charge_changes, charge_tasks, measured, read_units
from headrace.store.items import EVER, SECONDS, Between, Item, to_item
from headrace.store.sqlite.arrivals import ArrivalNumbers, ClaimRun
from headrace.store.sqlite.commits import Commit, Log, MadeChanges, make_patch
from headrace.store.sqlite.database import Database
from headrace.store.sqlite.ends import TaskEnds
from headrace.store.sqlite.rows import (
    Row,
    counted_bytes,
    entries_bytes,
    entry_of,
    read_rows,
    task_bytes,
    task_of,
)

_BEHIND_ALL: Final = "\x7f"  # of ids, which are ASCII


class TaskTable:
    """Implements the part of ``headrace.store.base.Store`` that is about tasks."""

    _db: Database
    _log: Log
    _arrivals: ArrivalNumbers
    _ends: TaskEnds

    counted_at_once = 5_000  # about as many entries as DynamoDB reads for one request

    def commit(
        self,
        changes: Sequence[Change],
        *,
        partly: bool = False,  # noqa: ARG002  all or none fails here
        noting: RecordWrite | None = None,
    ) -> list[Outcome]:
        if not changes and noting is None:
            return []

        def write(db: sqlite3.Connection) -> tuple[MadeChanges | None, bool, float]:
            units = 0.0
            if noting is not None:
                noted, units = make_patch(db, record_patch(noting.record, noting.replaces))
                if not noted.made:
                    return None, False, units
            done = Commit(db, self._log).make(changes)
            return done, self._arrivals.note(db, done.arrived, self._log.now), units

        done, waiting, units = self._db.write(write)
        charge(write=units)
        if done is None:
            raise RecordConflict
        with measured() as cost:
            charge(write=done.write, read=done.read)
        charge_changes(changes, done.outcomes, cost)
        if waiting:
            self._db.after_commit(self._arrivals.ring)
        if done.ended:
            ended = done.ended
            self._db.after_commit(lambda: self._ends.ended(ended))
        return done.outcomes

    def claim(self, claim: Claim) -> None:
        run = ClaimRun(claim)
        self._db.write(lambda db: run.run(self._db, db, lambda: None))
        if run.error is not None:
            raise run.error

    def read(
        self,
        task_ids: Iterable[str],
        *,
        payload: bool = True,
        consistent: bool = True,  # only the cost depends on this
    ) -> dict[str, Task]:
        wanted = list(dict.fromkeys(task_ids))
        with measured() as cost:
            found = self._found(wanted, payload=payload, consistent=consistent)
        tasks = {task.id: task for task in found if not task.is_tombstone}
        charge_tasks(len(wanted), tasks.values(), cost, consistent=consistent)
        return tasks

    def tombstones(self, task_ids: Iterable[str]) -> dict[str, Task]:
        return {task.id: task for task in self._found(task_ids) if task.is_tombstone}

    def _found(
        self, task_ids: Iterable[str], *, payload: bool = True, consistent: bool = True
    ) -> list[Task]:
        with self._db.reading() as db:
            rows = read_rows(db, task_ids, payload=payload)
        sizes = (task_bytes(row, None if payload else row[-1] or 0) for row in rows.values())
        charge(read=sum(read_units(size, consistent=consistent) for size in sizes))
        return [task_of(row[-2], row[-1] if payload else None) for row in rows.values()]

    def ids(self, prefix: str, *, limit: int) -> tuple[Sequence[str], bool] | None:
        with self._db.reading() as db:
            rows = db.execute(
                "SELECT id FROM tasks WHERE id >= ? AND id < ? ORDER BY id LIMIT ?",
                (prefix, prefix + _BEHIND_ALL, limit + 1),
            ).fetchall()
        charge(read=read_units(sum(len(task_id) for (task_id,) in rows), consistent=False))
        return [task_id for (task_id,) in rows[:limit]], len(rows) > limit

    def entries(
        self,
        place: Place,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        after: Position | None = None,
        descending: bool = False,
        limit: int,
    ) -> EntryPage:
        where, values = _bounds(place, since, until, after, descending=descending)
        order = "DESC" if descending else "ASC"
        text = "task" if place.lane in (TURN_LANE, RETURN_LANE) else "NULL"
        with self._db.reading() as db:
            rows = db.execute(
                f"SELECT id, scheduled_at, expires_at, retained_until, due_at, {text} FROM tasks"
                f" WHERE {where} ORDER BY scheduled_at {order}, id {order} LIMIT ?",
                (*values, limit + 1),
            ).fetchall()
        entries = tuple([entry_of(place, row) for row in rows[:limit]])
        size = entries_bytes(place, rows[:limit])
        charge(read=read_units(size, consistent=False))
        if len(rows) <= limit:
            return EntryPage(entries, None)
        return EntryPage(entries, Position(entries[-1].scheduled_at, entries[-1].task_id))

    def count(
        self,
        place: Place,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        after: Position | None = None,
        now: datetime | None,
    ) -> CountPage:
        where, values = _bounds(place, since, until, after)
        with self._db.reading() as db:
            last = db.execute(
                f"SELECT scheduled_at, id FROM tasks WHERE {where}"
                " ORDER BY scheduled_at, id LIMIT 1 OFFSET ?",
                (*values, self.counted_at_once - 1),
            ).fetchone()
            if last is not None:
                where += " AND (scheduled_at, id) <= (?, ?)"
                values += last
            number, read = db.execute(
                "SELECT count(*) FILTER (WHERE ? IS NULL OR retained_until IS NULL"
                f" OR retained_until > ?), count(*) FROM tasks WHERE {where}",
                (*(2 * [None if now is None else micros_of(now)]), *values),
            ).fetchone()
        charge(read=read_units(counted_bytes(place, read), consistent=False))
        return CountPage(number, last and Position(instant_of(last[0]), last[1]))

    def pages(self) -> "FilePages":
        """Return a reader of all tasks in pages."""
        return FilePages(self._db)


def _bounds(
    place: Place,
    since: datetime | None,
    until: datetime | None,
    after: Position | None,
    *,
    descending: bool = False,
) -> tuple[str, list[Any]]:
    where = "queue = ? AND state = ? AND label = ?"
    values: list[Any] = [place.queue, str(place.state), place.label]
    if since is not None:
        where += " AND scheduled_at >= ?"
        values.append(micros_of(since))
    if until is not None:
        where += " AND scheduled_at <= ?"
        values.append(micros_of(until))
    if after is not None:
        where += f" AND (scheduled_at, id) {'<' if descending else '>'} (?, ?)"
        values += [micros_of(after.scheduled_at), after.task_id]
    return where, values


ROW: Final = "row"
"""The key of a scan: the number of the row, which a task keeps as long as it exists."""

_ROWS: Final = 5_000  # of a page
_CHARACTERS: Final = 1024 * 1024  # of a page, as of DynamoDB's pages; one row may be larger
_UNIT: Final = 4096
_PAYLOAD: Final = "payload"
_IN_COLUMNS: Final = frozenset(
    {
        keys.TASK_ID,
        keys.QUEUE_STATE,
        keys.SCHEDULED_AT,
        keys.EXPIRES_AT,
        keys.TTL,
        keys.DUE_AT,
        _PAYLOAD,
    }
)
_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class FilePages:
    """Each method returns one page as bytes: ``Items``, ``ConsumedCapacity``, ``LastEvaluatedKey``.

    Tombstones, and tasks past their retention at *now*, are left out.  The units are those that
    DynamoDB would count.  Every method raises Unavailable.
    """

    db: Database

    def parts(self, number: int) -> list[tuple[int, int]]:
        """Return *number* parts of the rows that there are now: behind which one, and up to which.

        A task that exists all the time is in one part; a later task may be in no part.
        """
        with self.db.reading() as db:
            first, last = db.execute(
                "SELECT (SELECT min(rowid) FROM tasks), (SELECT max(rowid) FROM tasks)"
            ).fetchone()
        if last is None:
            return [(0, 0)] * number
        rows = last - first + 1
        ends = [first - 1 + rows * part // number for part in range(number + 1)]
        return list(pairwise(ends))

    def scan(
        self,
        part: tuple[int, int],
        *,
        attributes: Sequence[str],
        now: datetime,
        start: Item | None,
        consistent: bool = False,
    ) -> bytes:
        """Return a page of one of the *parts*, behind the key *start*."""
        after, until = part
        text = "NULL" if _IN_COLUMNS.issuperset(attributes) else "task"
        payload = "payload" if _PAYLOAD in attributes else "NULL"
        statement = (
            "SELECT rowid, id, queue, state, label, scheduled_at, expires_at, retained_until,"
            f" due_at, {text}, {payload}"
            " FROM tasks WHERE rowid > ? AND rowid <= ? ORDER BY rowid LIMIT ?"
        )
        after = after if start is None else int(start[ROW]["N"])
        rows, read, more = self._some(statement, (after, until, _ROWS))
        moment = micros_of(now)
        items = [
            _item(row[1:], attributes)
            for row in rows
            if row[3] in SHOWN_STATES and (row[7] is None or row[7] > moment)
        ]
        last = {ROW: {"N": str(rows[-1][0])}} if more else None
        return _page(items, read / _UNIT * (1 if consistent else 0.5), last)

    def entries(
        self, place: Place, *, now: datetime, start: Item | None, between: Between = EVER
    ) -> bytes:
        """Return a page of one partition of the index, behind the key *start*.

        *between* are the first and the last microsecond of `scheduled_at` that are wanted.
        """
        first, until = between
        after: tuple[int, str] = (first, "")
        if start is not None:
            after = (int(start[keys.SCHEDULED_AT]["N"]), start[keys.TASK_ID]["S"])
        statement = (
            "SELECT id, queue, state, label, scheduled_at, expires_at, retained_until, due_at,"
            " NULL, NULL FROM tasks WHERE queue = ? AND state = ? AND label = ?"
            " AND (scheduled_at, id) > (?, ?) AND scheduled_at <= ?"
            " AND (retained_until IS NULL OR retained_until > ?)"
            " ORDER BY scheduled_at, id LIMIT ?"
        )
        spot = (place.queue, str(place.state), place.label)
        rows, read, more = self._some(statement, (*spot, *after, until, micros_of(now), _ROWS))
        items = [_item(row, sorted(_IN_COLUMNS)) for row in rows]
        last = None
        if more:
            last = {name: items[-1][name] for name in (keys.TASK_ID, keys.SCHEDULED_AT)}
        return _page(items, read / _UNIT / 2, last)

    def tasks(self, task_ids: Sequence[str], *, attributes: Sequence[str]) -> bytes:
        """Return those of the tasks that there are, as last written, as a page."""
        with self.db.reading() as db:
            rows = read_rows(db, task_ids, payload=_PAYLOAD in attributes)
        items = [_item(row, attributes) for row in rows.values() if row[2] in SHOWN_STATES]
        return _page(items, sum(map(_size, rows.values())) / _UNIT, None)

    def _some(self, statement: str, values: Sequence[object]) -> tuple[list[Row], int, bool]:
        """Return the first rows, as many as make a page, how long they are, and if there are more.

        The last of *values* is how many there are at the most.
        """
        rows: list[Row] = []
        read = 0
        with self.db.reading() as db, closing(db.execute(statement, values)) as found:
            for row in found:
                rows.append(row)
                read += _size(row)
                if read >= _CHARACTERS:
                    return rows, read, True
        return rows, read, len(rows) == values[-1]


def _size(row: Row) -> int:
    """Return the approximate size of the item of a row without columns that were left out."""
    *_, text, payload = row
    size = payload if isinstance(payload, int) else len(payload or "")  # of one that was left out
    return 100 + len(text or "") + size


def _item(row: Row, attributes: Sequence[str]) -> Item:
    """Return the *attributes* of a row, as far as the task has them."""
    text, payload = row[8:]
    if text is not None:
        whole = to_item(task_of(text, payload if isinstance(payload, str) else None))
        return {name: whole[name] for name in attributes if name in whole}
    id_, queue, state, label, scheduled_at, expires_at, retained_until, due_at = row[:8]
    known: dict[str, Any] = {
        keys.TASK_ID: {"S": id_},
        keys.QUEUE_STATE: {"S": f"{queue}#{state}#{label}"},
        keys.SCHEDULED_AT: {"N": str(scheduled_at)},
        keys.DUE_AT: {"N": str(due_at)},
    }
    if expires_at is not None:
        known[keys.EXPIRES_AT] = {"N": str(expires_at)}
    if retained_until is not None:
        known[keys.TTL] = SECONDS.encode(instant_of(retained_until))
    if payload is not None:
        known[_PAYLOAD] = {"S": payload}
    return {name: known[name] for name in attributes if name in known}


def _page(items: Sequence[Item], units: float, last: Item | None) -> bytes:
    page = {"Items": items, "ConsumedCapacity": {"CapacityUnits": units}}
    return _encode(page if last is None else page | {"LastEvaluatedKey": last})
