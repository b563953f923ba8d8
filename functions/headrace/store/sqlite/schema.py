"""Creates the tables of the file, migrates an older schema, or refuses the file.

``PRAGMA application_id`` marks a file of Headrace, ``PRAGMA user_version`` is the version of its
schema.  Each entry of ``MIGRATIONS`` brings a file from one version to the next.
"""

import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Final, TypeVar

from headrace.store.call_scope import CALL_SECONDS
from headrace.store.sqlite.file import Unusable

_T = TypeVar("_T")

APPLICATION_ID: Final = 0x48445233  # "HDR3"
OLDEST_SQLITE: Final = (3, 35, 0)

MIGRATIONS: Final = (
    """
    CREATE TABLE tasks (
        id TEXT NOT NULL UNIQUE,
        queue TEXT, state TEXT, label INTEGER,  -- NULL for the tombstone of a task
        scheduled_at INTEGER NOT NULL, expires_at INTEGER, retained_until INTEGER,
        due_at INTEGER,
        task TEXT NOT NULL,  -- as JSON, without its payload
        payload TEXT
    );
    CREATE INDEX tasks_by_state
        ON tasks (queue, state, label, scheduled_at, id, expires_at, retained_until, due_at)
        WHERE queue IS NOT NULL;
    CREATE INDEX tasks_to_forget ON tasks (retained_until) WHERE retained_until IS NOT NULL;
    CREATE TABLE items (
        kind TEXT NOT NULL, name TEXT NOT NULL,
        body TEXT, fields TEXT NOT NULL,  -- JSON: its numbers may be wider than SQLite's
        expires_at INTEGER,
        PRIMARY KEY (kind, name)
    ) WITHOUT ROWID;
    CREATE INDEX items_to_forget ON items (expires_at) WHERE expires_at IS NOT NULL;
    CREATE TABLE arrivals (
        queue TEXT NOT NULL PRIMARY KEY, number INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE changes (
        number INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, forgotten INTEGER NOT NULL,
        before TEXT, after TEXT, payload TEXT, payload_bytes INTEGER NOT NULL
    );
    CREATE TABLE matches (
        queue TEXT NOT NULL, term TEXT NOT NULL, id TEXT NOT NULL,
        PRIMARY KEY (queue, term, id)
    ) WITHOUT ROWID;
    CREATE INDEX matches_of_task ON matches (id);
    """,
)
"""All instants are microseconds since 1970."""

VERSION: Final = len(MIGRATIONS)


WAIT_SECONDS: Final = CALL_SECONDS
"""How long another process may hold the file before a call gives up."""

_SHORTEST_PAUSE: Final = 0.0008  # as long as a short transaction
_LONGEST_PAUSE: Final = 0.004


def check_library(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> None:
    """Raise Unusable if the SQLite of this Python, of *version*, is too old."""
    if version < OLDEST_SQLITE:
        has, needed = (".".join(map(str, one)) for one in (version, OLDEST_SQLITE))
        raise Unusable(f"this Python has SQLite {has}; Headrace needs {needed} or newer")


def bring_up_to_date(db: sqlite3.Connection, name: str) -> None:
    """Create the tables of an empty file, and the new tables of an older file.

    *name* is the name of the file in messages.  Raises Unusable, without a change, for a file of
    another program or a newer Headrace, and for a read-only file.
    """
    db.execute("BEGIN")  # so that a change by another process is seen completely
    try:
        version = _version(db, name)
    finally:
        roll_back(db)
    if version == 0:
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # takes effect before the first page only
    _write_ahead(db, name)
    begin(db)
    try:
        # Another process may have been faster.
        for number in range(_version(db, name), VERSION):
            for statement in MIGRATIONS[number].split(";"):
                if statement.strip():
                    db.execute(statement)
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {number + 1}")
        db.execute("COMMIT")
    finally:
        roll_back(db)


@cache
def empty_tables() -> sqlite3.Connection:
    """Return empty tables in memory; a copy takes a sixtieth of the time to create them."""
    db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    bring_up_to_date(db, ":memory:")
    return db


def _write_ahead(db: sqlite3.Connection, name: str) -> None:
    def switch() -> str:
        (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
        return str(mode)

    if retry_while_busy(switch) not in ("wal", "memory"):
        raise Unusable(f"{name}: its file system cannot do write-ahead logging; use a local disk")


def begin(db: sqlite3.Connection) -> None:
    """Begin a transaction that writes, once no other process writes."""
    if db.in_transaction:  # the caller that had begun it was interrupted
        db.execute("ROLLBACK")
    retry_while_busy(lambda: db.execute("BEGIN IMMEDIATE"))


def roll_back(db: sqlite3.Connection) -> None:
    """Roll back the transaction, if an error has not done so; that error is the one to raise."""
    if db.in_transaction:
        with suppress(sqlite3.Error):
            db.execute("ROLLBACK")


def retry_while_busy(attempt: Callable[[], _T]) -> _T:
    """Repeat *attempt* while another process locks the file, up to WAIT_SECONDS.

    SQLite's own pauses grow to 100 ms, which is many transactions; and some of its operations do
    not wait at all.
    """
    deadline = time.monotonic() + WAIT_SECONDS
    pause = _SHORTEST_PAUSE
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > deadline:
                raise
        time.sleep(random.uniform(pause / 2, pause))  # noqa: S311  jitter is no secret
        pause = min(pause * 1.5, _LONGEST_PAUSE)


def _version(db: sqlite3.Connection, name: str) -> int:
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    tables = db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    if (application, version, tables) == (0, 0, None):
        return 0
    if application != APPLICATION_ID:
        raise Unusable(
            f"{name} is another program's database, or an earlier Headrace's; name another file"
        )
    if version > VERSION:
        raise Unusable(
            f"{name} was written by a newer Headrace (schema {version}, this one knows up to"
            f" {VERSION}): use that, or another file"
        )
    return int(version)
