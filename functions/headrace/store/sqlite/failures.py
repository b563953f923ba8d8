"""What SQLite's errors mean to whoever uses the file, and which of them pass by themselves."""

import shutil
import sqlite3
from pathlib import Path
from typing import Final

from headrace.domain.errors import Unavailable


class Unusable(Unavailable):
    """The file cannot be used as it is: to try again is in vain until somebody sees to it."""


_BUSY: Final = "another process has held it for too long"
_FULL: Final = "the disk is full, and nothing of this was written: make room on it"
_PASSING: Final = {
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_LOCKED: _BUSY,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_IOERR: "the disk does not answer as it should",
    sqlite3.SQLITE_NOMEM: "there is no memory left",
}
_LASTING: Final = {
    sqlite3.SQLITE_READONLY: "it may not be written to, or its folder may not",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened, or its folder not be written to",
    sqlite3.SQLITE_CORRUPT: "it is damaged: restore a backup (headrace doctor shows the damage)",
    sqlite3.SQLITE_NOTADB: "it is no database: name another file, or restore a backup",
    sqlite3.SQLITE_PERM: "access is denied",
    sqlite3.SQLITE_PROTOCOL: "the file system does not lock as it should",
}
_SCARCE: Final = 256 * 1024  # bytes: less than SQLite may want at once


class errors:  # noqa: N801  a block, as those of contextlib
    """A block in which SQLite's errors become Unavailable, or Unusable, that say what it means.

    *name* is what the file is called, *path* where it is (None: in memory).  One may be entered
    again, by several threads too.
    """

    __slots__ = ("_name", "_path")

    def __init__(self, name: str, path: Path | None = None) -> None:
        self._name = name
        self._path = path

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Raise what *error* means, if it is one of SQLite's."""
        if not isinstance(error, sqlite3.DatabaseError):
            return
        code = getattr(error, "sqlite_errorcode", None)
        if code is None or isinstance(error, sqlite3.ProgrammingError | sqlite3.IntegrityError):
            return  # a defect of ours
        raise _meaning(code & 0xFF, f"{self._name}: ", str(error), self._path) from error


def _meaning(code: int, name: str, message: str, path: Path | None) -> Unavailable:
    if code == sqlite3.SQLITE_IOERR and path is not None and _no_room(path):
        return Unavailable(name + _FULL)  # the memory beside the file could not be made larger
    if code in _PASSING:
        return Unavailable(name + _PASSING[code])
    return Unusable(name + _LASTING.get(code, message))


def _no_room(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < _SCARCE
    except OSError:
        return False
