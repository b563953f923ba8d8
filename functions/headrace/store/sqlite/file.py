"""The file: what SQLite's errors mean to its users, and where it may be.

It is made for its owner alone, and never on a file system of several machines.
"""

import os
import re
import shutil
import sqlite3
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from headrace.domain.errors import Unavailable


class Unusable(Unavailable):
    """The file cannot be used: retries fail until the user has fixed the cause."""


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
    """A block in which errors of SQLite become Unavailable or Unusable with an explanation.

    *name* is the name of the file in messages, *path* its path (None: in memory).  Several threads
    may enter the block, and more than once.
    """

    __slots__ = ("_name", "_path")

    def __init__(self, name: str, path: Path | None = None) -> None:
        self._name = name
        self._path = path

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Raise the meaning of *error*, if it is an error of SQLite."""
        if not isinstance(error, sqlite3.DatabaseError):
            return
        code = getattr(error, "sqlite_errorcode", None)
        if code is None or isinstance(error, sqlite3.ProgrammingError | sqlite3.IntegrityError):
            return  # a defect of Headrace
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


_NETWORKED: Final = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "davfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs"}
    | {"nfs4", "ocfs2", "orangefs", "pvfs2", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs"}
    | {"fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "fuse.vmhgfs-fuse"}
)
MOUNTS: Final = Path("/proc/mounts")
_MEND: Final = "change the rights, or name a file elsewhere"
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


Identity = tuple[int, int]
"""What identifies a file under any name: device and inode."""


def create(name: str, path: Path) -> Identity:
    """Create an empty file that only its owner may use, if it is missing; return its identity.

    SQLite gives the files beside it the same rights.  Raises Unusable.
    """
    try:
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        if stat.S_ISDIR(os.stat(path).st_mode):  # noqa: PTH116  Path's hides what is wrong
            raise Unusable(f"{name}: it is a folder; name a file in it")
        identity = _identity(path)
    except FileNotFoundError as error:
        raise Unusable(f"{name}: there is no folder {path.parent}; make it first") from error
    except PermissionError as error:
        raise Unusable(f"{name}: {error.strerror}; {_MEND}") from error
    except OSError as error:
        raise Unusable(f"{name}: {error.strerror or error}") from error
    if not os.access(path, os.R_OK | os.W_OK):  # SQLite would open it read-only, and fail later
        what = "it may not be written to by this user, or not be read"
        raise Unusable(f"{name}: {what}; {_MEND}")
    if not os.access(path.parent, os.W_OK):
        what = "its folder may not be written to, where its log has to be"
        raise Unusable(f"{name}: {what}; {_MEND}")
    return identity


def check_same(name: str, path: Path, identity: Identity | None) -> None:
    """Raise Unusable if the file at *path* was replaced: writes would be lost."""
    try:
        same = _identity(path) == identity
    except (FileNotFoundError, NotADirectoryError):
        same = False
    except PermissionError as error:
        raise Unusable(f"{name}: {error.strerror}") from error
    if not same:
        raise Unusable(
            f"{name}: it was removed or replaced while it was open; start this program again to"
            " use the new file"
        )


def _identity(path: Path) -> Identity:
    found = os.stat(path)  # noqa: PTH116  half the time of Path's, and before each write
    return found.st_dev, found.st_ino


def refuse_network(name: str, path: Path, mounts: Path = MOUNTS) -> None:
    """Raise Unusable if *path* is on a file system that several machines share, by *mounts*.

    Write-ahead logging needs memory that all processes share: on a network SQLite would lose data.
    """
    try:
        text = mounts.read_text(errors="surrogateescape")
    except OSError:  # not Linux
        return
    kind = file_system(text, path)
    if kind in _NETWORKED:
        raise Unusable(f"{name}: is on a network file system ({kind}); use a local disk")


def file_system(mounts: str, path: Path) -> str:
    """Return the kind of file system that *path* is on, by the text of /proc/mounts."""
    best, kind = -1, ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:  # noqa: PLR2004  device, folder, kind
            continue
        folder = Path(_ESCAPED.sub(lambda octal: chr(int(octal[1], 8)), fields[1]))
        if (folder == path or folder in path.parents) and len(folder.parts) >= best:
            best, kind = (
                len(folder.parts),
                fields[2],
            )  # the later of two mounts is visible
    return kind
