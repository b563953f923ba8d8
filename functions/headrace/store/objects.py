"""Large texts of tasks, stored outside of the tasks: in a folder, in memory, or in S3.

``Offloading`` is the store that writes each text before its task.
"""

import math
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from io import BytesIO
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from headrace.domain.change import Change, Outcome
from headrace.domain.errors import Unavailable
from headrace.domain.ids import new_request_token
from headrace.domain.offload import ObjectStore, Offload, StoredObject
from headrace.store.base import Record, RecordWrite, Store
from headrace.store.lake import s3_place

_SLASH: Final = "~"  # in place of a slash in a file's name; no task id has one
_PART: Final = ".part"  # of a file that is being written
_TRY: Final = "+"  # before that, a token for each of several writers of one file
_PARTS: Final = 256


@dataclass(frozen=True, slots=True)
class FolderObjects:
    """Files under one folder, which is made with the first file, in sub-folders by a hash.

    So no folder has too many files, and a list reads a few files at a time.
    """

    folder: Path

    def unused(self) -> bool:
        """Return whether the folder does not exist yet."""
        return not self.folder.exists()

    def put(self, contents: Mapping[str, bytes]) -> None:
        """Write each file beside its place, then rename it, so that no reader sees a half of it."""
        with _folder_errors("written"):
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
        with _folder_errors("read"):
            for name in names:
                with suppress(FileNotFoundError):
                    found[name] = self._path(name).read_bytes()
        return found

    def drop(self, names: Collection[str]) -> None:
        """Remove files."""
        with _folder_errors("removed"):
            for name in names:
                self._path(name).unlink(missing_ok=True)

    def sizes(self, names: Collection[str]) -> Mapping[str, int]:
        """Return the sizes of the files that exist."""
        found = {}
        with _folder_errors("read"):
            for name in names:
                with suppress(FileNotFoundError):
                    found[name] = self._path(name).stat().st_size
        return found

    def door(self) -> None:
        """Return None: uploads and downloads go through the service."""

    def path_of(self, name: str) -> Path:
        """Return the path of a file, also before it is written."""
        return self._path(name).absolute()

    def receive(self, name: str) -> "ReceivedFile":
        """Begin a file beside its place, under a unique name: two calls may write it together."""
        with _folder_errors("written"):
            path = self._path(name)
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            return ReceivedFile(path)

    def open(self, name: str) -> BinaryIO | None:
        """Open a file."""
        with _folder_errors("read"):
            try:
                return self._path(name).open("rb")
            except FileNotFoundError:
                return None

    def list(self, after: str, limit: int) -> Sequence[StoredObject]:
        """Return files by sub-folder and name, with incomplete files that a crash has left."""
        first = int(_part_of(after), 16) if after else 0
        with _folder_errors("read"):
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
                with suppress(FileNotFoundError):  # dropped since the folder was read
                    written = (self.folder / part / name).stat().st_mtime
                    at = datetime.fromtimestamp(written, UTC)
                    yield StoredObject(name.replace(_SLASH, "/"), at)

    def _path(self, name: str) -> Path:
        return self.folder / _part_of(name) / name.replace("/", _SLASH)


class ReceivedFile:
    """A file that is written beside its place, and moved there when it is complete."""

    def __init__(self, path: Path) -> None:
        self._to = path
        self._path = path.with_name(f"{path.name}{_TRY}{new_request_token()}{_PART}")
        self._file = open(self._path, "xb", opener=_private)  # noqa: SIM115  closed below

    def write(self, part: bytes) -> None:
        """Write the next part.  Raises Unavailable."""
        with _folder_errors("written"):
            self._file.write(part)

    def keep(self) -> None:
        """Move it to its place.  Raises Unavailable."""
        with _folder_errors("written"):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._path.replace(self._to)
            _sync(self._to.parent)

    def abandon(self) -> None:
        """Remove the incomplete file."""
        with suppress(OSError):
            self._file.close()
            self._path.unlink(missing_ok=True)


class _ReceivedBytes(BytesIO):
    """Bytes that become an object of *objects* when they are complete."""

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
    """Open a file that only its owner may read, with any umask."""
    return os.open(path, flags, 0o600)


def _part_of(name: str) -> str:
    """Return the sub-folder of a file; a half-written file is beside the complete file."""
    whole = name.removesuffix(_PART).partition(_TRY)[0] if name.endswith(_PART) else name
    return blake2b(whole.encode(), digest_size=1).hexdigest()


def _sync(folder: Path) -> None:
    """Sync a folder, where folders can be synced, so that its new names survive a power failure."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _folder_errors(what: str) -> Iterator[None]:
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
        """Return whether there are no objects."""
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
        """Return None: uploads and downloads go through the service."""

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


def objects_at(
    address: str,
    session: Any = None,  # noqa: ANN401  of botocore
) -> ObjectStore:
    """Return the objects at *address*, ``s3://bucket/prefix`` or a folder's path.

    Region and credentials are those of *session*, or of the environment.  Raises ValueError for
    another address.
    """
    place = s3_place(address)
    if place is None:
        return FolderObjects(Path(address).absolute())
    from headrace.store.s3 import S3Objects  # noqa: PLC0415  a folder needs no botocore

    return S3Objects(*place, session)


def objects_beside(path: str, memory: str) -> ObjectStore:
    """Return the folder of objects beside the file at *path*, or for *memory* objects in memory."""
    if path == memory:
        return MemoryObjects()
    return FolderObjects(Path(f"{os.path.realpath(path)}-payloads"))


class Offloading:
    """A store that writes texts over *most* bytes to *objects*, the rest to *store*; 0: no text."""

    def __init__(
        self,
        store: Store,
        objects: ObjectStore,
        most: int,
        new_token: Callable[[], str] = new_request_token,
    ) -> None:
        self._store = store
        self._objects = objects
        self._most = most or math.inf
        self._new_token = new_token

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  any member of the store
        return getattr(self._store, name)

    def commit(
        self,
        changes: Sequence[Change],
        *,
        partly: bool = False,
        noting: RecordWrite | None = None,
    ) -> list[Outcome]:
        """Make *changes* as the store does; raises Unavailable if objects cannot be written."""
        return self._store.commit(self._put(changes), partly=partly, noting=noting)

    def put_records(
        self, writes: Sequence[tuple[Record, int | None]], *, tasks: Sequence[Change] = ()
    ) -> bool:
        """Write records, and *tasks* with them, as the store does."""
        return self._store.put_records(writes, tasks=self._put(tasks))

    def _put(self, changes: Sequence[Change]) -> Sequence[Change]:
        """Write large texts to the objects, and return the changes that refer to them."""
        offload = Offload(self._most, self._new_token, {})
        planned = [offload.plan(change) for change in changes]
        if offload.contents:
            self._objects.put(offload.contents)
        return planned

    @property
    def store(self) -> Store:
        """This object, typed as a store."""
        return cast("Store", self)
