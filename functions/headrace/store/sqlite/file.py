"""The file: where it may be.

It is made for its owner alone, and never on a file system of several machines.
"""

import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from headrace.domain.errors import Unavailable


class Unusable(Unavailable):
    """The file cannot be used: retries fail until the user has fixed the cause."""


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
