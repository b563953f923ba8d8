"""Records, key locks, limits and groups: each write a condition and a change in one transaction."""

import json
import sqlite3
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

import msgspec

from headrace.domain import cost
from headrace.domain.change import Change, KeyLock
from headrace.domain.ids import group_key
from headrace.domain.instants import instant_of, micros_of
from headrace.domain.lease import GroupChange, LeaseGroup
from headrace.domain.rate import Bucket, Draw, Rate
from headrace.store.base import Record
from headrace.store.call_scope import charge
from headrace.store.sqlite.arrivals import ArrivalNumbers
from headrace.store.sqlite.commits import Commit, key_lock, write_key_lock
from headrace.store.sqlite.database import Database
from headrace.store.sqlite.log import Log
from headrace.store.sqlite.rows import read_rows
from headrace.store.sqlite.units import group_bytes, key_lock_bytes, pool_bytes, record_bytes

_T = TypeVar("_T")
_LAST_POOL: Final = 99_999
_RECORD: Final = "kind, name, body, version, expires_at, note"
_group: Final = msgspec.json.Decoder(LeaseGroup).decode
_text: Final = msgspec.json.Encoder().encode


class Control:
    """Implements the rest of ``headrace.store.base.Store``."""

    _db: Database
    _log: Log
    _arrivals: ArrivalNumbers

    # -- key locks -----------------------------------------------------------------------------

    def key_lock(self, kind: str, name: str) -> str | None:
        charge(read=1.0)
        with self._db.reading() as db:
            return key_lock(db, kind, name)

    def key_locks(self, kind: str) -> dict[str, str]:
        with self._db.reading() as db:
            found = dict(db.execute("SELECT name, value FROM key_locks WHERE kind = ?", (kind,)))
        locks = (KeyLock(kind, name, value) for name, value in found.items())
        charge(read=cost.read_units(sum(map(key_lock_bytes, locks))))
        return found

    def set_key_lock(self, lock: KeyLock) -> bool:
        def write(db: sqlite3.Connection) -> bool:
            if key_lock(db, lock.kind, lock.name) != lock.expects:
                return False
            write_key_lock(db, lock)
            return True

        charge(write=cost.write_units(key_lock_bytes(lock)))
        return self._db.write(write)

    # -- records -------------------------------------------------------------------------------

    def record(self, kind: str, name: str) -> Record | None:
        with self._db.reading() as db:
            found = record_at(db, kind, name)
        charge(read=cost.read_units(record_bytes(found)))
        return found

    def records(
        self,
        kind: str,
        *,
        prefix: str = "",
        after: str = "",
        limit: int,
        consistent: bool = True,
    ) -> tuple[Sequence[Record], bool]:
        with self._db.reading() as db:
            rows = db.execute(
                f"SELECT {_RECORD} FROM records WHERE kind = ? AND name > ? AND name >= ?"
                " AND substr(name, 1, ?) = ? ORDER BY name LIMIT ?",
                (kind, after, prefix, len(prefix), prefix, limit + 1),
            ).fetchall()
        found = tuple(map(_read_record, rows[:limit]))
        charge(read=cost.read_units(sum(map(record_bytes, found)), consistent=consistent))
        return found, len(rows) > limit

    def put_record(self, record: Record, *, replaces: int | None, lazy: bool = False) -> bool:
        return self._put_records([(record, replaces)], transaction=False, lazy=lazy)

    def put_records(
        self, writes: Sequence[tuple[Record, int | None]], *, tasks: Sequence[Change] = ()
    ) -> bool:
        return self._put_records(writes, tasks, transaction=True)

    def _put_records(
        self,
        writes: Sequence[tuple[Record, int | None]],
        tasks: Sequence[Change] = (),
        *,
        transaction: bool,
        lazy: bool = False,
    ) -> bool:
        arrived = False

        def write(db: sqlite3.Connection) -> tuple[bool, float]:
            nonlocal arrived
            stored = [record_at(db, record.kind, record.name) for record, _ in writes]
            there = [one.version if one else None for one in stored]
            made = there == [replaces for _, replaces in writes]
            made = made and not read_rows(db, [new.task_id for new in tasks])
            units = 0.0 if made else float(len(tasks))
            if made and tasks:
                done = Commit(db, self._log).make(tasks)
                arrived = self._arrivals.came(db, done.arrived, self._log.now)
                units = done.write
            for before, (record, _) in zip(stored, writes, strict=True):
                after = record if made else None
                units += cost.write_units(record_bytes(before), record_bytes(after))
                if made:
                    write_record(db, record)
            return made, units * times

        times = cost.TRANSACTION if transaction else 1
        made = self._charged(write, lazy=lazy)
        if arrived:
            self._arrivals.ring()
        return made

    def renew_record(self, record: Record) -> Record:
        def write(db: sqlite3.Connection) -> tuple[Record, int]:
            stored = record_at(db, record.kind, record.name)
            renewed = Record(
                record.kind,
                record.name,
                record.body,
                record.version,
                record.expires_at,
                stored.note if stored else None,
            )
            write_record(db, renewed)
            return renewed, cost.write_units(record_bytes(stored), record_bytes(renewed))

        return self._charged(write)

    def leave_note(self, kind: str, name: str, note: str, *, expects: str | None) -> bool:
        def write(db: sqlite3.Connection) -> tuple[bool, int]:
            stored = record_at(db, kind, name)
            before = record_bytes(stored)
            if stored is None or stored.note != expects:
                return False, cost.write_units(before)
            noted = replace(stored, note=note)
            write_record(db, noted)
            return True, cost.write_units(before, record_bytes(noted))

        return self._charged(write)

    def drop_record(self, kind: str, name: str, *, version: int | None = None) -> bool:
        def write(db: sqlite3.Connection) -> tuple[bool, int]:
            stored = record_at(db, kind, name)
            units = cost.write_units(record_bytes(stored))
            if stored is None or version not in (None, stored.version):
                return False, units
            db.execute("DELETE FROM records WHERE kind = ? AND name = ?", (kind, name))
            return True, units

        return self._charged(write)

    def _charged(
        self, write: Callable[[sqlite3.Connection], tuple[_T, float]], *, lazy: bool = False
    ) -> _T:
        """Do *write*, which returns its units too, and put them on the meter of the caller."""
        result, units = self._db.write(write, lazy=lazy)
        charge(write=units)
        return result

    # -- limits --------------------------------------------------------------------------------

    def reserve(
        self, queue: str, pool: int, texts: Collection[str], *, room: int
    ) -> tuple[frozenset[str], bool]:
        def write(db: sqlite3.Connection) -> tuple[tuple[frozenset[str], bool], int]:
            there = _pool(db, queue, pool)
            before = pool_bytes(queue, there)
            if not there.issuperset(texts) and len(there) + len(texts) > room:
                return (there, False), cost.write_units(before)
            db.executemany(
                "INSERT OR IGNORE INTO pools (queue, pool, held) VALUES (?, ?, ?)",
                [(queue, pool, text) for text in texts],
            )
            after = there | frozenset(texts)
            return (after, True), cost.write_units(before, pool_bytes(queue, after))

        return self._charged(write)

    def free(self, queue: str, pool: int, texts: Collection[str]) -> frozenset[str]:
        def write(db: sqlite3.Connection) -> tuple[frozenset[str], int]:
            there = _pool(db, queue, pool)
            db.executemany(
                "DELETE FROM pools WHERE queue = ? AND pool = ? AND held = ?",
                [(queue, pool, text) for text in texts],
            )
            return there.difference(texts), cost.write_units(pool_bytes(queue, there))

        return self._charged(write)

    def pools(self, queue: str, first: int, last: int) -> dict[int, frozenset[str]]:
        with self._db.reading() as db:
            found = _pools(db, queue, first, last)
        size = sum(pool_bytes(queue, held) for held in found.values())
        charge(read=cost.read_units(size, consistent=False))
        return found

    def drop_pools(self, queue: str) -> None:
        def write(db: sqlite3.Connection) -> tuple[float, int]:
            found = _pools(db, queue, 0, _LAST_POOL)
            db.execute("DELETE FROM pools WHERE queue = ?", (queue,))
            sizes = [pool_bytes(queue, held) for held in found.values()]
            return cost.read_units(sum(sizes), consistent=False), sum(map(cost.write_units, sizes))

        charge(read=self._charged(write))

    def bucket(self, queue: str) -> Bucket | None:
        charge(read=0.5)
        with self._db.reading() as db:
            return _bucket(db, queue)

    def draw(
        self,
        queue: str,
        draw: Draw,
        *,
        seen: Bucket | None,  # noqa: ARG002  what is there is at hand
    ) -> tuple[Bucket | None, bool]:
        def write(db: sqlite3.Connection) -> tuple[Bucket | None, bool]:
            there = _bucket(db, queue)
            if not draw.allowed(there):
                return there, False
            return _write_bucket(db, queue, draw.apply(there)), True

        charge(write=1.0)
        return self._db.write(write)

    def replace_bucket(self, queue: str, bucket: Bucket, *, expects: Bucket | None) -> bool:
        def write(db: sqlite3.Connection) -> bool:
            if _bucket(db, queue) != expects:
                return False
            _write_bucket(db, queue, bucket)
            return True

        charge(write=1.0)
        return self._db.write(write)

    def drop_bucket(self, queue: str) -> None:
        charge(write=1.0)
        self._db.write(
            lambda db: db.execute("DELETE FROM buckets WHERE queue = ?", (queue,)).rowcount
        )

    # -- groups --------------------------------------------------------------------------------

    def open_group(self, group: LeaseGroup, *, now: datetime) -> bool:
        def write(db: sqlite3.Connection) -> tuple[bool, int]:
            there = _group_at(db, group.key)
            before = group_bytes(there)
            if there is not None and there.kept_until > now:
                return False, cost.write_units(before)
            _write_group(db, group)
            return True, cost.write_units(before, group_bytes(group))

        return self._charged(write)

    def group(self, group_id: str) -> LeaseGroup | None:
        with self._db.reading() as db:
            there = _group_at(db, group_key(group_id))
        charge(read=cost.read_units(group_bytes(there)))
        return there if there is not None and there.id == group_id else None

    def change_group(self, change: GroupChange) -> LeaseGroup | None:
        def write(db: sqlite3.Connection) -> tuple[LeaseGroup | None, int]:
            there = _group_at(db, group_key(change.id))
            before = group_bytes(there)
            if there is None or not change.allowed(there):
                return None, cost.write_units(before)
            changed = _write_group(db, change.apply(there))
            return changed, cost.write_units(before, group_bytes(changed))

        return self._charged(write)


def replaced_record(
    db: sqlite3.Connection, record: Record, replaces: int | None
) -> tuple[bool, float]:
    """Write *record* if the stored version is *replaces*; return whether it was, and the units."""
    stored = record_at(db, record.kind, record.name)
    if (stored.version if stored else None) != replaces:
        return False, cost.write_units(record_bytes(stored))
    write_record(db, record)
    return True, cost.write_units(record_bytes(stored), record_bytes(record))


def record_at(db: sqlite3.Connection, kind: str, name: str) -> Record | None:
    """Return a record."""
    row = db.execute(
        f"SELECT {_RECORD} FROM records WHERE kind = ? AND name = ?", (kind, name)
    ).fetchone()
    return None if row is None else _read_record(row)


def _read_record(row: tuple[Any, ...]) -> Record:
    kind, name, body, version, expires_at, note = row
    until = None if expires_at is None else instant_of(expires_at)
    return Record(kind, name, json.loads(body), int(version), until, note)


def write_record(db: sqlite3.Connection, record: Record) -> None:
    """Write a record, whatever was there."""
    until = None if record.expires_at is None else micros_of(record.expires_at)
    body = json.dumps(record.body, ensure_ascii=False, separators=(",", ":"))
    db.execute(
        f"INSERT OR REPLACE INTO records ({_RECORD}) VALUES (?, ?, ?, ?, ?, ?)",
        (record.kind, record.name, body, str(record.version), until, record.note),
    )


def _pool(db: sqlite3.Connection, queue: str, pool: int) -> frozenset[str]:
    return frozenset(
        held
        for (held,) in db.execute(
            "SELECT held FROM pools WHERE queue = ? AND pool = ?", (queue, pool)
        )
    )


def _pools(db: sqlite3.Connection, queue: str, first: int, last: int) -> dict[int, frozenset[str]]:
    found: dict[int, set[str]] = {}
    for pool, held in db.execute(
        "SELECT pool, held FROM pools WHERE queue = ? AND pool BETWEEN ? AND ?",
        (queue, first, last),
    ):
        found.setdefault(pool, set()).add(held)
    return {pool: frozenset(held) for pool, held in found.items()}


def _bucket(db: sqlite3.Connection, queue: str) -> Bucket | None:
    row = db.execute(
        "SELECT given, tokens, unit, since FROM buckets WHERE queue = ?", (queue,)
    ).fetchone()
    if row is None:
        return None
    given, tokens, unit, since = row
    return Bucket(int(given), Rate(tokens, timedelta(microseconds=unit)), instant_of(since))


def _write_bucket(db: sqlite3.Connection, queue: str, bucket: Bucket) -> Bucket:
    rate = bucket.rate
    db.execute(
        "INSERT OR REPLACE INTO buckets (queue, given, tokens, unit, since) VALUES (?,?,?,?,?)",
        (queue, str(bucket.given), rate.max_tokens, rate.unit, micros_of(bucket.since)),
    )
    return bucket


def _group_at(db: sqlite3.Connection, key: str) -> LeaseGroup | None:
    row = db.execute("SELECT body FROM groups WHERE key = ?", (key,)).fetchone()
    return None if row is None else _group(row[0])


def _write_group(db: sqlite3.Connection, group: LeaseGroup) -> LeaseGroup:
    db.execute(
        "INSERT OR REPLACE INTO groups (key, kept_until, body) VALUES (?, ?, ?)",
        (group.key, micros_of(group.kept_until), _text(group).decode()),
    )
    return group
