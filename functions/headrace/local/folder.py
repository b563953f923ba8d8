"""The folder a service keeps its data in: made, locked, and given back; or one in memory.

Kept in it: the tasks in `headrace.db`, `admin.key`, `lock`, and the raw changes of all tasks in
`lake/`.  Whatever the umask, nobody but who runs the service may read any of it: folders have mode
700 and files 600.
"""

import contextlib
import os
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headrace.local import DataFolderInUse, DataFolderUnusable

DATABASE_NAME: Final = "headrace.db"
IN_MEMORY: Final = ":memory:"
LAKE_NAME: Final = "lake"

_PREFIX: Final = "headrace-"
ADMIN_KEY_NAME: Final = "admin.key"
_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 (the tmpfs itself; the folder in it is private)
_OURS: Final = re.compile(rf"{re.escape(DATABASE_NAME)}.*|admin\.key(\.new)?|lock|{LAKE_NAME}")
_KEY: Final = re.compile(r"[!-~]{16,256}")


@contextlib.contextmanager
def data_folder(where: str) -> Iterator[Path]:
    """Hold the data folder at `where`, or one that keeps nothing for `:memory:`.

    Raises:
        DataFolderInUse: another service holds it.
        DataFolderUnusable: it cannot be made or written to.

    """
    if where == IN_MEMORY:
        with temporary_folder() as folder:
            yield folder
        return
    folder = Path(where).absolute()
    with _private():
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _make_private(folder)
            lock = _lock(folder)
        except FileExistsError as error:
            raise DataFolderUnusable(
                f"The data folder {folder} cannot be used: that is a file."
            ) from error
        except OSError as error:
            raise DataFolderUnusable(
                f"The data folder {folder} cannot be used: {error.strerror or error}."
            ) from error
        try:
            yield folder
        finally:
            os.close(lock)


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Hold a new folder, in memory where the system has a tmpfs, and remove it at the end."""
    shared = _SHARED_MEMORY.is_dir() and os.access(_SHARED_MEMORY, os.W_OK)
    base = _SHARED_MEMORY if shared else Path(tempfile.gettempdir())
    _remove_abandoned(base)
    with _private():
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        lock = _lock(folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def kept_admin_key(folder: Path) -> str:
    """Return the admin key that the folder keeps; makes one the first time.

    Raises:
        DataFolderUnusable: what is kept there is no key, or cannot be read.

    """
    path = folder / ADMIN_KEY_NAME
    try:
        if not path.exists():
            _write_privately(path, f"hr_{secrets.token_urlsafe(32)}\n")
        key = path.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        key = ""
    except OSError as error:
        raise DataFolderUnusable(f"{path} cannot be kept or read: {error.strerror}.") from error
    if not is_key(key):
        raise DataFolderUnusable(f"{path} holds no admin key: delete the file to get a new one.")
    return key


def is_key(text: str) -> bool:
    """Tell whether `text` can be an admin key: 16 to 256 visible ASCII characters."""
    return _KEY.fullmatch(text) is not None


@contextlib.contextmanager
def _private() -> Iterator[None]:
    """Let all files that this process and its children make meanwhile be its user's alone."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _make_private(folder: Path) -> None:
    """Take from others what an earlier service, or whoever made the folder, has left them.

    The folder itself only if nothing else is in it: it may be one that others need to read.  What
    belongs to another user, as a mounted volume may, stays as it is.
    """
    inside = list(folder.iterdir())
    ours = [path for path in inside if _OURS.fullmatch(path.name) and not path.is_symlink()]
    for path in [*ours, *([folder] if len(ours) == len(inside) else [])]:
        if path.stat().st_mode & 0o077 == 0:
            continue
        below = path.rglob("*") if path.is_dir() and path != folder else ()
        for each in (*below, path):
            with contextlib.suppress(PermissionError):
                each.chmod(0o700 if each.is_dir() else 0o600)


def _write_privately(path: Path, text: str) -> None:
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    draft.replace(path)


def _lock(folder: Path) -> int:
    """Take the folder's lock and return the descriptor that holds it; its holder is written in.

    The system lets go of it however the process ends.
    """
    path = folder / "lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    if _try_lock(descriptor):
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        return descriptor
    os.close(descriptor)
    raise DataFolderInUse(
        f"Another service (process {path.read_text(errors='replace').strip()}) works in the data"
        f" folder {folder}: stop it, or set HEADRACE_DATA_DIR to another folder."
    )


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        # A byte far behind the text, which others must be able to read.
        os.lseek(descriptor, 1 << 20, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)
        return True

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _remove_abandoned(base: Path) -> None:
    """Remove what services that were killed have left in memory: the folders nobody locks."""
    for folder in base.glob(f"{_PREFIX}*"):
        try:
            # A folder that is just being made has no such file yet.
            descriptor = os.open(folder / "lock", os.O_RDWR)
        except OSError:
            continue
        try:
            if _try_lock(descriptor):
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)
