"""The tables of the file, and how a file is taken: made, brought up to date, or refused.

``PRAGMA application_id`` says that a file is ours, ``PRAGMA user_version`` which version of the
schema it has.  Each entry of ``MIGRATIONS`` brings a file from one version to the next.
"""

import sqlite3
from typing import Final

from headrace.domain.errors import Unavailable

APPLICATION_ID: Final = 0x48445231  # "HDR1"
OLDEST_SQLITE: Final = (3, 35, 0)

MIGRATIONS: Final = (
    """
    CREATE TABLE tasks (
        id TEXT NOT NULL UNIQUE,
        queue TEXT, state TEXT, shard INTEGER,  -- NULL for what is left of a task that is gone
        scheduled_at INTEGER NOT NULL, expires_at INTEGER, retained_until INTEGER,
        rest TEXT NOT NULL,
        payload TEXT
    );
    CREATE INDEX tasks_by_state
        ON tasks (queue, state, shard, scheduled_at, id, expires_at, retained_until)
        WHERE queue IS NOT NULL;
    CREATE INDEX tasks_to_forget ON tasks (retained_until) WHERE retained_until IS NOT NULL;
    CREATE TABLE key_locks (
        kind TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL,
        PRIMARY KEY (kind, name)
    ) WITHOUT ROWID;
    CREATE TABLE records (
        kind TEXT NOT NULL, name TEXT NOT NULL,
        version TEXT NOT NULL,  -- may be wider than SQLite's integers
        body TEXT NOT NULL, expires_at INTEGER, note TEXT,
        PRIMARY KEY (kind, name)
    ) WITHOUT ROWID;
    CREATE INDEX records_to_forget ON records (expires_at) WHERE expires_at IS NOT NULL;
    CREATE TABLE pools (
        queue TEXT NOT NULL, pool INTEGER NOT NULL, held TEXT NOT NULL,
        PRIMARY KEY (queue, pool, held)
    ) WITHOUT ROWID;
    CREATE TABLE buckets (
        queue TEXT NOT NULL PRIMARY KEY, given TEXT NOT NULL,  -- wider than SQLite's integers
        tokens INTEGER NOT NULL, unit INTEGER NOT NULL, since INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE groups (
        key TEXT NOT NULL PRIMARY KEY, kept_until INTEGER NOT NULL, body TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE arrivals (
        queue TEXT NOT NULL PRIMARY KEY, number INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE changes (
        number INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, forgotten INTEGER NOT NULL,
        before TEXT, after TEXT, payload TEXT
    );
    """,
)
"""All instants are microseconds since 1970."""

VERSION: Final = len(MIGRATIONS)


def check_library() -> None:
    """Raise Unavailable where this Python's SQLite is too old."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        raise Unavailable(
            f"this Python has SQLite {sqlite3.sqlite_version}; Headrace needs {needed} or newer"
        )


def bring_up_to_date(db: sqlite3.Connection, name: str) -> None:
    """Make the tables of an empty file, and those that are new since an older one was written.

    *name* is what messages call the file.  Raises Unavailable for a file that is not ours, and
    for one that a newer Headrace has written.
    """
    if _version(db, name) == VERSION:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have been faster.
        for number in range(_version(db, name), VERSION):
            for statement in MIGRATIONS[number].split(";"):
                if statement.strip():
                    db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _version(db: sqlite3.Connection, name: str) -> int:
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    tables = db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    if (application, version, tables) == (0, 0, None):
        return 0
    if application != APPLICATION_ID:
        raise Unavailable(f"{name} is another program's database, not a file of Headrace")
    if version > VERSION:
        raise Unavailable(
            f"{name} was written by a newer Headrace (schema {version}, this one knows up to"
            f" {VERSION}): use that, or another file"
        )
    return int(version)
