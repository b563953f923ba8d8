"""A lake in a folder, and where a lake is by its address."""

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from headrace.domain.errors import InvalidRequest, Unavailable
from headrace.store.base import LakeObject, PieceLake

_S3: Final = frozenset({"s3", "s3a"})  # the second is Hadoop's name for the same
_PIECE: Final = 1024 * 1024
_HIDDEN: Final = (".", "_")  # Spark's mark of what is no data


@dataclass(frozen=True, slots=True)
class FolderLake:
    """Files under one folder, made when it is first written to."""

    folder: Path

    def put(self, name: str, content: bytes) -> None:
        """Write a file beside its place, then rename it: nobody sees a half of it."""
        path = self.folder / name
        with _explained("written"):
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_name(f".{path.name}.{os.getpid()}")
            with new.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())  # what is in the lake counts as recorded
            new.replace(path)

    def get(self, name: str, within: range | None = None) -> bytes | None:
        """Return the content of a file, or what is *within* a range; None if there is none."""
        with _explained("read"):
            try:
                with (self.folder / name).open("rb") as file:
                    if within is None:
                        return file.read()
                    file.seek(within.start)
                    return file.read(len(within))
            except FileNotFoundError:
                return None

    @contextmanager
    def pieces(self, name: str) -> Iterator[Iterator[bytes] | None]:
        """Give the content of a file piece by piece; None if there is none."""
        with _explained("read"):
            try:
                file = (self.folder / name).open("rb")
            except FileNotFoundError:
                yield None
                return
            with file:
                yield iter(lambda: file.read(_PIECE), b"")

    def list(self, prefix: str) -> Sequence[LakeObject]:
        """Return the files whose names begin with *prefix*, by name."""
        with _explained("read"):
            return sorted(self._list(prefix))

    def _list(self, prefix: str) -> Iterator[LakeObject]:
        start = self.folder / prefix.rpartition("/")[0]
        for folder, _, names in os.walk(start):
            for name in names:
                path = Path(folder, name)
                stored = path.relative_to(self.folder).as_posix()
                if stored.startswith(prefix) and not name.startswith(_HIDDEN):
                    found = path.stat()
                    yield LakeObject(stored, found.st_size, str(found.st_mtime_ns))


@dataclass(frozen=True, slots=True)
class S3Access:
    """How a bucket is reached, where it is not as the environment says.

    As the role *role_arn*, in *region*, at the URL *endpoint*.  It has no credentials, so it may
    travel; what it is signed in with stays in the process.
    """

    role_arn: str | None = None
    region: str | None = None
    endpoint: str | None = None


class LakeToBe:
    """A lake in S3, connected when it is first used: most requests need none, and it takes time."""

    def __init__(
        self, bucket: str, prefix: str, session: object = None, access: S3Access | None = None
    ) -> None:
        self._place = bucket, prefix, session, access

    @cached_property
    def _lake(self) -> PieceLake:
        from headrace.store.services import lake_in_s3  # noqa: PLC0415 (as said above)

        return lake_in_s3(*self._place)

    def put(self, name: str, content: bytes) -> None:
        """Write an object."""
        self._lake.put(name, content)

    def get(self, name: str, within: range | None = None) -> bytes | None:
        """Return the content of an object, or what is *within* a range; None if there is none."""
        return self._lake.get(name, within)

    def pieces(self, name: str) -> AbstractContextManager[Iterator[bytes] | None]:
        """Give the content of an object piece by piece; None if there is none."""
        return self._lake.pieces(name)

    def list(self, prefix: str) -> Sequence[LakeObject]:
        """Return the objects whose names begin with *prefix*, by name."""
        return self._lake.list(prefix)


def lake_at(address: str, session: object = None, access: S3Access | None = None) -> PieceLake:
    """Return the lake at *address*.  Raises InvalidRequest for what is no address of one.

    *session* of botocore has region and credentials; None for those of the environment, or as
    *access* says.
    """
    try:
        place = s3_place(address)
    except ValueError as error:
        raise InvalidRequest(str(error)) from error
    return (
        FolderLake(Path(address).absolute()) if place is None else LakeToBe(*place, session, access)
    )


def s3_place(address: str) -> tuple[str, str] | None:
    """Return bucket and prefix of ``s3://bucket/prefix``; None if *address* is a folder's path.

    ``s3a://`` is the same.  Raises ValueError for an address that is neither.
    """
    parts = urlsplit(address)
    if parts.scheme in _S3 and parts.netloc and not parts.query and not parts.fragment:
        prefix = parts.path.strip("/")
        return parts.netloc, f"{prefix}/" if prefix else ""
    if "://" in address:
        message = f"a lake must be s3://bucket/prefix or the path of a folder, not {address!r}"
        raise ValueError(message)
    return None


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"the lake cannot be {what}: {error.strerror or error}"
        raise Unavailable(message) from error
