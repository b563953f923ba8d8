"""The data folder of a service, or a folder in memory.

It holds the tasks in `headrace.db`, `admin.key`, `lock`, and the raw changes of all tasks in
`lake/`.  Only the user of the service can read them: folders have mode 700 and files 600.
"""

import contextlib
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from filelock import BaseFileLock, FileLock, Timeout

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
    with _private(), contextlib.ExitStack() as held:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _make_private(folder)
            held.enter_context(_locked(folder))
        except FileExistsError as error:
            raise DataFolderUnusable(
                f"The data folder {folder} cannot be used: that is a file."
            ) from error
        except OSError as error:
            raise DataFolderUnusable(
                f"The data folder {folder} cannot be used: {error.strerror or error}."
            ) from error
        yield folder


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Hold a new folder, in memory where the system has a tmpfs, and remove it at the end."""
    shared = _SHARED_MEMORY.is_dir() and os.access(_SHARED_MEMORY, os.W_OK)
    base = _SHARED_MEMORY if shared else Path(tempfile.gettempdir())
    _remove_abandoned(base)
    with _private():
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        with _locked(folder):
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)


def kept_admin_key(folder: Path) -> str:
    """Return the admin key in *folder*; create one the first time.

    Raises:
        DataFolderUnusable: the file holds no key, or cannot be written or read.

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
    """Return whether *text* can be an admin key: 16 to 256 visible ASCII characters."""
    return _KEY.fullmatch(text) is not None


@contextlib.contextmanager
def _private() -> Iterator[None]:
    """Let this process and its children create files that only their user can read."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _make_private(folder: Path) -> None:
    """Remove the permissions of other users from the service's files.

    The mode of the folder itself changes only if it holds no other files, because other programs
    may need to read those.  Files of another user, as on a mounted volume, stay as they are.
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


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of *folder*, with the process id in it.  Raises DataFolderInUse.

    The system releases the lock when the process ends, even if it is killed.
    """
    lock = _lock_of(folder)
    try:
        lock.acquire()
    except Timeout:
        holder = Path(lock.lock_file).read_text(errors="replace").strip()
        raise DataFolderInUse(
            f"Another service (process {holder}) works in the data folder {folder}: stop it, or"
            " set HEADRACE_DATA_DIR to another folder."
        ) from None
    try:
        yield
    finally:
        lock.release()


def _lock_of(folder: Path) -> BaseFileLock:
    return FileLock(
        folder / "lock",
        timeout=0,
        mode=0o600,
        thread_local=False,
        on_acquired=_write_holder,
        preserve_lock_file=True,
    )


def _write_holder(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())


def _remove_abandoned(base: Path) -> None:
    """Remove the folders in memory of services that were killed: those without a lock holder."""
    for folder in base.glob(f"{_PREFIX}*"):
        if not (folder / "lock").is_file():
            continue  # it is being created
        with contextlib.suppress(Timeout, OSError), _lock_of(folder):
            shutil.rmtree(folder, ignore_errors=True)
