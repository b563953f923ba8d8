"""The table of tasks and its index: each change is checked and made in one transaction."""

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from headrace.domain import cost
from headrace.domain.change import Change
from headrace.domain.task import RETURN_LANE, TURN_LANE, Place, Task
from headrace.domain.times import instant_of, micros_of
from headrace.store.base import (
    CountPage,
    EntryPage,
    Noting,
    NotingRefused,
    Outcome,
    Position,
    record_patch,
)
from headrace.store.call_scope import charge
from headrace.store.sqlite.arrivals import ArrivalNumbers
from headrace.store.sqlite.commits import Commit, MadeChanges, make_patch
from headrace.store.sqlite.database import Database
from headrace.store.sqlite.ends import TaskEnds
from headrace.store.sqlite.log import Log
from headrace.store.sqlite.pages import FilePages
from headrace.store.sqlite.rows import entry_of, read_rows, task_of
from headrace.store.sqlite.units import counted_bytes, entries_bytes, task_bytes

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
        noting: Noting | None = None,
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
            return done, self._arrivals.came(db, done.arrived, self._log.now), units

        done, waiting, units = self._db.write(write)
        charge(write=units)
        if done is None:
            raise NotingRefused
        charge(write=done.write, read=done.read)
        if waiting:
            self._db.once_it_stands(self._arrivals.ring)
        if done.ended:
            ended = done.ended
            self._db.once_it_stands(lambda: self._ends.ended(ended))
        return done.outcomes

    def read(
        self,
        task_ids: Iterable[str],
        *,
        payload: bool = True,
        consistent: bool = True,  # only the cost depends on it
    ) -> dict[str, Task]:
        found = self._found(task_ids, payload=payload, consistent=consistent)
        return {task.id: task for task in found if not task.remains}

    def spent(self, task_ids: Iterable[str]) -> dict[str, Task]:
        return {task.id: task for task in self._found(task_ids) if task.remains}

    def _found(
        self, task_ids: Iterable[str], *, payload: bool = True, consistent: bool = True
    ) -> list[Task]:
        with self._db.reading() as db:
            rows = read_rows(db, task_ids, payload=payload)
        sizes = (task_bytes(row, None if payload else row[-1] or 0) for row in rows.values())
        charge(read=sum(cost.read_units(size, consistent=consistent) for size in sizes))
        return [task_of(row if payload else (*row[:-1], None)) for row in rows.values()]

    def ids(self, prefix: str, *, limit: int) -> tuple[Sequence[str], bool] | None:
        with self._db.reading() as db:
            rows = db.execute(
                "SELECT id FROM tasks WHERE id >= ? AND id < ? ORDER BY id LIMIT ?",
                (prefix, prefix + _BEHIND_ALL, limit + 1),
            ).fetchall()
        charge(read=cost.read_units(sum(len(task_id) for (task_id,) in rows), consistent=False))
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
        rest = "rest" if place.lane in (TURN_LANE, RETURN_LANE) else "NULL"
        with self._db.reading() as db:
            rows = db.execute(
                f"SELECT id, scheduled_at, expires_at, retained_until, due_at, {rest} FROM tasks"
                f" WHERE {where} ORDER BY scheduled_at {order}, id {order} LIMIT ?",
                (*values, limit + 1),
            ).fetchall()
        entries = tuple([entry_of(place, row) for row in rows[:limit]])
        size = entries_bytes(place, rows[:limit])
        charge(read=cost.read_units(size, consistent=False))
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
        charge(read=cost.read_units(counted_bytes(place, read), consistent=False))
        return CountPage(number, last and Position(instant_of(last[0]), last[1]))

    def pages(self) -> FilePages:
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
