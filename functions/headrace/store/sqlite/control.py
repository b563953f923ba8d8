"""Control items and the index of values: each read and each write is one transaction."""

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from headrace.domain.change import Change
from headrace.domain.indexing import FIELD_LENGTH, TERM_LENGTH, Match
from headrace.domain.patch import ControlItem, Fields, Patch, Patched
from headrace.store.call_scope import TRANSACTION, charge, read_units
from headrace.store.sqlite.arrivals import ArrivalNumbers
from headrace.store.sqlite.commits import ITEM, Commit, Log, item_at, item_fields, make_patch
from headrace.store.sqlite.database import Database
from headrace.store.sqlite.rows import control_bytes, read_rows


class Control:
    """Implements the control items of ``headrace.store.base.Store``."""

    _db: Database
    _log: Log
    _arrivals: ArrivalNumbers

    def item(self, kind: str, name: str, *, consistent: bool = True) -> Fields | None:
        with self._db.reading() as db:
            found = item_at(db, kind, name)
        charge(read=read_units(control_bytes(kind, name, found), consistent=consistent))
        return found

    def items_by_key(self, wanted: Collection[tuple[str, str]]) -> Mapping[tuple[str, str], Fields]:
        found: dict[tuple[str, str], Fields] = {}
        with self._db.reading() as db:
            for key in wanted:
                fields = item_at(db, *key)
                charge(read=read_units(control_bytes(*key, fields)))
                if fields is not None:
                    found[key] = fields
        return found

    def items_of_kind(
        self,
        kind: str,
        *,
        first: str = "",
        last: str = "",
        after: str = "",
        limit: int | None = None,
        consistent: bool = True,
    ) -> tuple[Sequence[ControlItem], bool]:
        where, values = "kind = ? AND name >= ? AND name > ?", [kind, first, after]
        if last:
            where += " AND name <= ?"
            values.append(last)
        with self._db.reading() as db:
            rows = db.execute(
                f"SELECT name, {ITEM} FROM items WHERE {where} ORDER BY name LIMIT ?",
                (*values, -1 if limit is None else limit + 1),
            ).fetchall()
        found = [ControlItem(kind, name, item_fields(*row)) for name, *row in rows[:limit]]
        size = sum(control_bytes(kind, item.name, item.fields) for item in found)
        charge(read=read_units(size, consistent=consistent))
        return found, len(rows) > len(found)

    def patch(self, patch: Patch, *, lazy: bool = False) -> Patched:
        patched, units = self._db.write(lambda db: make_patch(db, patch), lazy=lazy)
        charge(write=units)
        return patched

    def patch_all(self, patches: Sequence[Patch], *, tasks: Sequence[Change] = ()) -> bool:
        arrived = False

        def write(db: sqlite3.Connection) -> tuple[bool, float]:
            nonlocal arrived
            made = all(patch.is_allowed(item_at(db, patch.kind, patch.name)) for patch in patches)
            made = made and not read_rows(db, [new.task_id for new in tasks])
            units = 0.0 if made else float(len(tasks))
            if made and tasks:
                done = Commit(db, self._log).make(tasks)
                arrived = self._arrivals.note(db, done.arrived, self._log.now)
                units = done.write
            for patch in patches:
                units += make_patch(db, patch)[1] if made else 1.0
            return made, units * TRANSACTION

        made, units = self._db.write(write)
        charge(write=units)
        if arrived:
            self._arrivals.ring()
        return made


_BEHIND_ALL: Final = "\x7f"  # of terms and ids, which are ASCII


class Matches:
    """Implements the index of values of ``headrace.store.base.Store``."""

    _db: Database

    def note_matches(self, there: Collection[Match], gone: Collection[Match]) -> None:
        if not there and not gone:
            return

        def write(db: sqlite3.Connection) -> int:
            away = {(one.task_id, one.queue) for one in gone}
            dropped = sum(
                db.execute("DELETE FROM matches WHERE id = ? AND queue = ?", one).rowcount
                for one in away
            )
            db.executemany(
                "INSERT OR IGNORE INTO matches (queue, term, id) VALUES (?, ?, ?)",
                [(one.queue, one.term, one.task_id) for one in there],
            )
            return dropped

        charge(write=float(len(there) + self._db.write(write, lazy=True)))

    def matches(
        self, queue: str, term: str, *, after: str = "", descending: bool = False, limit: int
    ) -> tuple[Sequence[str], bool]:
        first, last = ("", after or _BEHIND_ALL) if descending else (after, _BEHIND_ALL)
        order = "DESC" if descending else "ASC"
        with self._db.reading() as db:
            rows = db.execute(
                "SELECT id FROM matches WHERE queue = ? AND term = ? AND id > ? AND id < ?"
                f" ORDER BY id {order} LIMIT ?",
                (queue, term, first, last, limit + 1),
            ).fetchall()
        ids = [task_id for (task_id,) in rows]
        size = sum(len(queue) + TERM_LENGTH + len(task_id) for task_id in ids[:limit])
        charge(read=read_units(size, consistent=False))
        return ids[:limit], len(ids) > limit

    def drop_matches(self, queue: str, field: str, *, limit: int) -> bool:
        def write(db: sqlite3.Connection) -> int:
            return db.execute(
                "DELETE FROM matches WHERE (queue, term, id) IN (SELECT queue, term, id"
                " FROM matches WHERE queue = ? AND substr(term, 1, ?) = ? LIMIT ?)",
                (queue, FIELD_LENGTH, field, limit),
            ).rowcount

        dropped = self._db.write(write, lazy=True)
        charge(write=float(dropped))
        return dropped == limit
