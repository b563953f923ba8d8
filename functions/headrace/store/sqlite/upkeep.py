"""What keeps the file in order: the broom, small steps of vacuum, backups, and a look at damage."""

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
from headrace.store.sqlite.database import Database
from headrace.store.sqlite.file import Unusable, errors
from headrace.store.sqlite.log import Log
from headrace.store.sqlite.rows import COLUMNS

_PAGES_AT_A_TIME: Final = 2_000  # of a backup, between two looks at signals
_LINES: Final = 100  # of damage
_TRIAL_BYTES: Final = 1024 * 1024
_TRIAL_MICROS: Final = 60_000_000


@dataclass(frozen=True, slots=True)
class Forgotten:
    """How many there were of each kind that is past its time, up to the limit of one step."""

    tasks: int
    items: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.tasks + self.items


class FileUpkeep:
    """What the file needs besides the store's protocol; each call is short, but for a backup."""

    _db: Database
    _log: Log

    def forget(self, limit: int = 500) -> Forgotten:
        """Remove at most *limit* tasks and control items that are past their time.

        As the tables of the cloud do by themselves: a task's removal is logged as forgotten.
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
        """Give at most *pages* that hold nothing back to the file system; return how many are left.

        Raises Unavailable.
        """

        def write(db: sqlite3.Connection) -> int:
            for _ in range(pages):  # sqlite3 ends the statement behind its first page
                db.execute("PRAGMA incremental_vacuum(1)")
            (left,) = db.execute("PRAGMA freelist_count").fetchone()
            return int(left)

        return self._db.write(write)

    def try_write(self) -> None:
        """Write a megabyte and remove it again: what is smaller finds room where none is left.

        Raises Unavailable, saying why nothing can be written.
        """
        kind, name = "trial", secrets.token_hex(8)
        until = micros_of(self._log.now()) + _TRIAL_MICROS  # in case nobody removes it

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
        """Return a line for each damage of the file, none where it is whole; reads all of it.

        Raises Unavailable.
        """
        try:
            with self._db.reading() as db:
                found = db.execute(f"PRAGMA integrity_check({_LINES})").fetchall()
        except Unusable as error:
            return (error.detail,)
        return tuple(line for (line,) in found if line != "ok")

    def backup(self, path: str) -> None:
        """Write a copy of the file as it is now to *path*, while everybody goes on.

        The copy is its owner's alone, whole or not there, and a file like any other.  Raises
        Conflict where there is one already, InvalidRequest where there is no such folder, and
        Unavailable.
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
            # From one moment: what others write meanwhile would make it begin anew.
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
    """Let *part* be called *target*, if nothing is called so; both on the disk when it returns."""
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
