"""Maintenance of the file: expiry, vacuum in small steps, backups, and checks for damage."""

import os
import secrets
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.domain.errors import Conflict, InvalidRequest
from headrace.domain.times import micros_of
from headrace.store.sqlite.commits import Log
from headrace.store.sqlite.connections import errors
from headrace.store.sqlite.database import Database
from headrace.store.sqlite.file import Unusable
from headrace.store.sqlite.rows import COLUMNS

_PAGES_AT_A_TIME: Final = 2_000  # of a backup, between two looks at signals
_LINES: Final = 100  # of damage
_TRIAL_BYTES: Final = 1024 * 1024
_TRIAL_MICROS: Final = 60_000_000


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The numbers of expired rows that one step removed, by kind."""

    tasks: int
    items: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.tasks + self.items


class FileUpkeep:
    """Maintenance that is not part of the protocol; each call is short, except a backup."""

    _db: Database
    _log: Log

    def forget(self, limit: int = 500) -> Forgotten:
        """Remove at most *limit* expired tasks and control items, as DynamoDB does on its tables.

        The log of writes says that a task was forgotten.
        Raises Unavailable.
        """
        now = micros_of(self._log.now())

        def write(db: sqlite3.Connection) -> Forgotten:
            rows = db.execute(
                f"SELECT {COLUMNS} FROM tasks WHERE retained_until <= ?"
                " ORDER BY retained_until LIMIT ?",
                (now, limit),
            ).fetchall()
            db.executemany("DELETE FROM tasks WHERE id = ?", [(row[0],) for row in rows])
            self._log.write(db, [self._log.line(row, None, forgotten=True) for row in rows])
            tasks = len(rows)
            items = db.execute(
                "DELETE FROM items WHERE (kind, name) IN"
                " (SELECT kind, name FROM items WHERE expires_at <= ? LIMIT ?)",
                (now, limit - tasks),
            ).rowcount
            return Forgotten(tasks, items)

        return self._db.write(write)

    def vacuum(self, pages: int = 256) -> int:
        """Return at most *pages* empty pages to the file system; return the number of the others.

        Raises Unavailable.
        """

        def write(db: sqlite3.Connection) -> int:
            for _ in range(pages):  # sqlite3 ends the statement behind its first page
                db.execute("PRAGMA incremental_vacuum(1)")
            (left,) = db.execute("PRAGMA freelist_count").fetchone()
            return int(left)

        return self._db.write(write)

    def try_write(self) -> None:
        """Write a megabyte and remove it: a smaller write may succeed on a full disk.

        Raises Unavailable with the reason if nothing can be written.
        """
        kind, name = "trial", secrets.token_hex(8)
        until = micros_of(self._log.now()) + _TRIAL_MICROS  # if this process ends first

        def write(db: sqlite3.Connection) -> None:
            db.execute(
                "INSERT INTO items (kind, name, body, fields, expires_at) VALUES (?, ?, ?, ?, ?)",
                (kind, name, "x" * _TRIAL_BYTES, "{}", until),
            )

        def remove(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM items WHERE kind = ? AND name = ?", (kind, name))

        self._db.write(write)
        self._db.write(remove)

    def check(self) -> Sequence[str]:
        """Return a line for each damage of the file; this reads the whole file.

        Raises Unavailable.
        """
        try:
            with self._db.reading() as db:
                found = db.execute(f"PRAGMA integrity_check({_LINES})").fetchall()
        except Unusable as error:
            return (error.detail,)
        return tuple(line for (line,) in found if line != "ok")

    def backup(self, path: str) -> None:
        """Write a copy of the file as it is now to *path*, while reads and writes go on.

        Only its owner may use the copy.  It is complete, or it does not exist.  Raises Conflict if
        *path* exists, InvalidRequest if its folder does not, and Unavailable.
        """
        target = Path(os.path.realpath(path))
        if not target.parent.is_dir():
            raise InvalidRequest.of("path", f"must be in a folder that exists: {target.parent}")
        try:
            _refuse_existing(target)
            opened, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        except OSError as error:
            raise Unusable(f"{path}: {error.strerror or error}") from error
        os.close(opened)
        part = Path(name)
        try:
            self._copy(path, part)
            _give_name(part, target)
        finally:
            with suppress(FileNotFoundError):
                part.unlink()

    def _copy(self, name: str, part: Path) -> None:
        with self._db.reading() as source:
            # In one transaction: a write by another connection would restart the copy.
            source.execute("BEGIN")
            source.execute("SELECT count(*) FROM sqlite_master").fetchall()
            try:
                with errors(name, part), closing(sqlite3.connect(part)) as copy:
                    source.backup(copy, pages=_PAGES_AT_A_TIME)
            finally:
                source.execute("ROLLBACK")


def _refuse_existing(target: Path) -> None:
    if os.path.lexists(target):
        raise Conflict(f"{target} exists already; a backup replaces no file")


def _give_name(part: Path, target: Path) -> None:
    """Rename *part* to *target*, if *target* is missing, and sync the folder."""
    try:
        os.link(part, target)
    except FileExistsError:
        _refuse_existing(target)
        raise
    except (OSError, NotImplementedError):  # no file here can have two names
        _refuse_existing(target)
        part.rename(target)
    if os.name == "posix":
        opened = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
