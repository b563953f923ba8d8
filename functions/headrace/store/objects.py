"""Where texts of tasks are kept outside of them: a folder, memory; S3 by ``store.services``."""

import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from hashlib import blake2b
from io import BytesIO
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, Final

from headrace.domain.errors import Unavailable
from headrace.domain.ids import new_request_token
from headrace.domain.offload import ObjectDoor, ObjectStore, StoredObject
from headrace.store.lake import s3_place

_SLASH: Final = "~"  # in a file's name; no id of a task has one
_PART: Final = ".part"  # of a file that is being written
_TRY: Final = "+"  # before that: which of those who write it at once
_PARTS: Final = 256


@dataclass(frozen=True, slots=True)
class FolderObjects:
    """Files under one folder, made when it is first written to, in a sub-folder by a hash.

    So no folder holds too many, and a list reads a few of them at a time.
    """

    folder: Path

    def unused(self) -> bool:
        """Tell whether the folder was never written to."""
        return not self.folder.exists()

    def put(self, contents: Mapping[str, bytes]) -> None:
        """Write each file beside its place, then rename it: nobody sees a half of it."""
        with _explained("written"):
            for name, content in contents.items():
                path = self._path(name)
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                path.parent.mkdir(mode=0o700, exist_ok=True)
                new = path.with_name(path.name + _PART)
                with open(new, "wb", opener=_private) as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                new.replace(path)
            for folder in {self._path(name).parent for name in contents}:
                _sync(folder)

    def get(self, names: Collection[str]) -> Mapping[str, bytes]:
        """Read files."""
        found = {}
        with _explained("read"):
            for name in names:
                with suppress(FileNotFoundError):
                    found[name] = self._path(name).read_bytes()
        return found

    def drop(self, names: Collection[str]) -> None:
        """Remove files."""
        with _explained("removed"):
            for name in names:
                self._path(name).unlink(missing_ok=True)

    def sizes(self, names: Collection[str]) -> Mapping[str, int]:
        """Look at files."""
        found = {}
        with _explained("read"):
            for name in names:
                with suppress(FileNotFoundError):
                    found[name] = self._path(name).stat().st_size
        return found

    def door(self) -> None:
        """Return none: the service itself is."""

    def path_of(self, name: str) -> Path:
        """Return where a file is, or will be, for programs on this machine."""
        return self._path(name).absolute()

    def receive(self, name: str) -> "ReceivedFile":
        """Begin a file beside its place, with a name of its own: two may try at once."""
        with _explained("written"):
            path = self._path(name)
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            return ReceivedFile(path)

    def open(self, name: str) -> BinaryIO | None:
        """Open a file."""
        with _explained("read"):
            try:
                return self._path(name).open("rb")
            except FileNotFoundError:
                return None

    def list(self, after: str, limit: int) -> Sequence[StoredObject]:
        """Return files by sub-folder and name; what a crash left half written is among them."""
        first = int(_part_of(after), 16) if after else 0
        with _explained("read"):
            of_each = (self._list(f"{part:02x}", after) for part in range(first, _PARTS))
            return list(islice(chain.from_iterable(of_each), limit))

    def _list(self, part: str, after: str) -> Iterator[StoredObject]:
        try:
            names = sorted(path.name for path in (self.folder / part).iterdir())
        except FileNotFoundError:
            return
        behind = after.replace("/", _SLASH) if after and _part_of(after) == part else ""
        for name in names:
            if name > behind:
                with suppress(FileNotFoundError):  # dropped meanwhile
                    written = (self.folder / part / name).stat().st_mtime
                    at = datetime.fromtimestamp(written, UTC)
                    yield StoredObject(name.replace(_SLASH, "/"), at)

    def _path(self, name: str) -> Path:
        return self.folder / _part_of(name) / name.replace("/", _SLASH)


class ReceivedFile:
    """A file that is written beside its place, and moved there when it is whole."""

    def __init__(self, path: Path) -> None:
        self._to = path
        self._path = path.with_name(f"{path.name}{_TRY}{new_request_token()}{_PART}")
        self._file = open(self._path, "xb", opener=_private)  # noqa: SIM115  closed below

    def write(self, part: bytes) -> None:
        """Take the next part.  Raises Unavailable."""
        with _explained("written"):
            self._file.write(part)

    def keep(self) -> None:
        """Move it to its place.  Raises Unavailable."""
        with _explained("written"):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._path.replace(self._to)
            _sync(self._to.parent)

    def abandon(self) -> None:
        """Remove what is there of it."""
        with suppress(OSError):
            self._file.close()
            self._path.unlink(missing_ok=True)


class _ReceivedBytes(BytesIO):
    """Bytes that become an object of *objects* when they are whole."""

    def __init__(self, objects: "MemoryObjects", name: str) -> None:
        super().__init__()
        self._objects, self._to = objects, name

    def keep(self) -> None:
        """Keep them."""
        self._objects.put({self._to: self.getvalue()})

    def abandon(self) -> None:
        """Forget them."""
        self.close()


def _private(path: str, flags: int) -> int:
    """Open a file that only its owner may read, whatever the umask."""
    return os.open(path, flags, 0o600)


def _part_of(name: str) -> str:
    """Return the sub-folder of a file; one that is half written stands beside the whole."""
    whole = name.removesuffix(_PART).partition(_TRY)[0] if name.endswith(_PART) else name
    return blake2b(whole.encode(), digest_size=1).hexdigest()


def _sync(folder: Path) -> None:
    """Let the names of what was written outlast a loss of power, where folders can be synced."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"payloads beside the file cannot be {what}: {error.strerror or error}"
        raise Unavailable(message) from error


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class MemoryObjects:
    """Objects of this process, for tests and for a store in memory."""

    now: Callable[[], datetime] = _now
    _kept: dict[str, tuple[bytes, datetime]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def unused(self) -> bool:
        """Tell whether nothing is kept."""
        return not self._kept

    def put(self, contents: Mapping[str, bytes]) -> None:
        """Keep objects."""
        with self._lock:
            self._kept |= {name: (content, self.now()) for name, content in contents.items()}

    def get(self, names: Collection[str]) -> Mapping[str, bytes]:
        """Return objects."""
        with self._lock:
            return {name: self._kept[name][0] for name in names if name in self._kept}

    def drop(self, names: Collection[str]) -> None:
        """Forget objects."""
        with self._lock:
            for name in names:
                self._kept.pop(name, None)

    def sizes(self, names: Collection[str]) -> Mapping[str, int]:
        """Return how large objects are."""
        with self._lock:
            return {name: len(self._kept[name][0]) for name in names if name in self._kept}

    def door(self) -> None:
        """Return none: the service itself is."""

    def path_of(self, _name: str) -> None:
        """Return none."""

    def receive(self, name: str) -> _ReceivedBytes:
        """Begin an object."""
        return _ReceivedBytes(self, name)

    def open(self, name: str) -> BinaryIO | None:
        """Open an object."""
        with self._lock:
            kept = self._kept.get(name)
        return None if kept is None else BytesIO(kept[0])

    def list(self, after: str, limit: int) -> Sequence[StoredObject]:
        """Return objects by name."""
        with self._lock:
            behind = sorted(name for name in self._kept if name > after)[:limit]
            return [StoredObject(name, self._kept[name][1]) for name in behind]


class ObjectsToBe:
    """Objects in S3, connected when they are first used: most requests need none."""

    def __init__(self, bucket: str, prefix: str, session: object = None) -> None:
        self._place = bucket, prefix, session

    @cached_property
    def _objects(self) -> ObjectStore:
        from headrace.store.services import objects_in_s3  # noqa: PLC0415 (as said above)

        return objects_in_s3(*self._place)

    def unused(self) -> bool:
        """Tell that nobody knows without asking."""
        return False

    def put(self, contents: Mapping[str, bytes]) -> None:
        """Write objects."""
        self._objects.put(contents)

    def get(self, names: Collection[str]) -> Mapping[str, bytes]:
        """Return objects."""
        return self._objects.get(names)

    def sizes(self, names: Collection[str]) -> Mapping[str, int]:
        """Return how large objects are."""
        return self._objects.sizes(names)

    def door(self) -> ObjectDoor | None:
        """Return S3's."""
        return self._objects.door()

    def drop(self, names: Collection[str]) -> None:
        """Remove objects."""
        self._objects.drop(names)

    def list(self, after: str, limit: int) -> Sequence[StoredObject]:
        """Return objects by name."""
        return self._objects.list(after, limit)


def objects_at(address: str, session: object = None) -> ObjectStore:
    """Return the objects at *address*, ``s3://bucket/prefix`` or a folder's path.

    *session* of botocore has region and credentials; None for those of the environment.
    Raises ValueError for an address that is neither.
    """
    place = s3_place(address)
    return (
        FolderObjects(Path(address).absolute()) if place is None else ObjectsToBe(*place, session)
    )


def objects_beside(path: str, memory: str) -> ObjectStore:
    """Return the objects of the file at *path*: a folder beside it; for *memory* in memory."""
    if path == memory:
        return MemoryObjects()
    return FolderObjects(Path(f"{os.path.realpath(path)}-payloads"))
