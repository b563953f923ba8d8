"""The tables of the file, and how a file is taken: made, brought up to date, or refused.

``PRAGMA application_id`` says that a file is ours, ``PRAGMA user_version`` which version of the
schema it has.  Each entry of ``MIGRATIONS`` brings a file from one version to the next.
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

APPLICATION_ID: Final = 0x48445232  # "HDR2"
OLDEST_SQLITE: Final = (3, 35, 0)

MIGRATIONS: Final = (
    """
    CREATE TABLE tasks (
        id TEXT NOT NULL UNIQUE,
        queue TEXT, state TEXT, label INTEGER,  -- NULL for the tombstone of a task
        scheduled_at INTEGER NOT NULL, expires_at INTEGER, retained_until INTEGER,
        due_at INTEGER,
        rest TEXT NOT NULL,
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
        before TEXT, after TEXT, payload TEXT
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

_SHORTEST_PAUSE: Final = 0.0008  # a short transaction: who asks more often waits as long
_LONGEST_PAUSE: Final = 0.004


def check_library(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> None:
    """Raise Unusable where this Python's SQLite, of *version*, is too old."""
    if version < OLDEST_SQLITE:
        has, needed = (".".join(map(str, one)) for one in (version, OLDEST_SQLITE))
        raise Unusable(f"this Python has SQLite {has}; Headrace needs {needed} or newer")


def bring_up_to_date(db: sqlite3.Connection, name: str) -> None:
    """Make the tables of an empty file, and those that are new since an older one was written.

    *name* is what messages call the file.  Raises Unusable, and has changed nothing, for a file
    that is not ours, for one that a newer Headrace has written, and for one not to be written to.
    """
    db.execute("BEGIN")  # what another process makes of it meanwhile is seen as a whole
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
    """Return tables without rows, in memory; to copy them takes a sixtieth of making them."""
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
    """Begin to write, once no other process does."""
    if db.in_transaction:  # whoever had begun was interrupted, anywhere
        db.execute("ROLLBACK")
    retry_while_busy(lambda: db.execute("BEGIN IMMEDIATE"))


def roll_back(db: sqlite3.Connection) -> None:
    """Undo what was begun, if an error has not done so already; that error is the one to tell."""
    if db.in_transaction:
        with suppress(sqlite3.Error):
            db.execute("ROLLBACK")


def retry_while_busy(attempt: Callable[[], _T]) -> _T:
    """Make *attempt* until no other process is in the way, or has been so for too long.

    SQLite's own wait grows to 100 ms between two looks, which is many transactions; and it does
    not wait at all for some of what it does.
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
        raise Unusable(f"{name} is another program's database; name another file")
    if version > VERSION:
        raise Unusable(
            f"{name} was written by a newer Headrace (schema {version}, this one knows up to"
            f" {VERSION}): use that, or another file"
        )
    return int(version)
