"""The index of values: which tasks of a queue have a value in a field that it indexes."""

import sqlite3
from collections.abc import Collection, Sequence
from typing import Final

from headrace.domain import cost
from headrace.domain.indexing import FIELD_LENGTH, TERM_LENGTH, Match
from headrace.store.call_scope import charge
from headrace.store.sqlite.database import Database

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
        charge(read=cost.read_units(size, consistent=False))
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
