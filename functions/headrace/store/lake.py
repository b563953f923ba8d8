"""A lake in a folder, and the lake at an address."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from headrace.domain.errors import InvalidRequest, Unavailable
from headrace.domain.offload import LakeObject, PieceLake

_S3: Final = frozenset({"s3", "s3a"})  # the second is Hadoop's name for the first
_PIECE: Final = 1024 * 1024
_HIDDEN: Final = (".", "_")  # Spark marks files without data so


@dataclass(frozen=True, slots=True)
class FolderLake:
    """Files under one folder, made when it is first written to."""

    folder: Path

    def put(self, name: str, content: bytes) -> None:
        """Write a file beside its place, then rename it, so that no reader sees a half of it."""
        path = self.folder / name
        with _lake_errors("written"):
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_name(f".{path.name}.{os.getpid()}")
            with new.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())  # a file in the lake counts as recorded
            new.replace(path)

    def get(self, name: str, within: range | None = None) -> bytes | None:
        """Return the content of a file, or its bytes *within* a range; None if it is missing."""
        with _lake_errors("read"):
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
        """Yield the content of a file in pieces, or None if it is missing."""
        with _lake_errors("read"):
            try:
                file = (self.folder / name).open("rb")
            except FileNotFoundError:
                yield None
                return
            with file:
                yield iter(lambda: file.read(_PIECE), b"")

    def list(self, prefix: str) -> Sequence[LakeObject]:
        """Return the files whose names begin with *prefix*, by name."""
        with _lake_errors("read"):
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
    """How to reach a bucket, where it differs from the environment.

    As the role *role_arn*, in *region*, at the URL *endpoint*.  It has no credentials, so it can be
    sent to other processes.
    """

    role_arn: str | None = None
    region: str | None = None
    endpoint: str | None = None


def lake_at(
    address: str,
    session: Any = None,  # noqa: ANN401  of botocore
    access: S3Access | None = None,
) -> PieceLake:
    """Return the lake at *address*.  Raises InvalidRequest for an invalid address.

    Region and credentials are those of *session*, of the environment without one, or as *access*
    says.
    """
    try:
        place = s3_place(address)
    except ValueError as error:
        raise InvalidRequest(str(error)) from error
    if place is None:
        return FolderLake(Path(address).absolute())
    from headrace.store.s3 import S3Lake  # noqa: PLC0415  a folder needs no botocore

    return S3Lake(*place, session, access)


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
def _lake_errors(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"the lake cannot be {what}: {error.strerror or error}"
        raise Unavailable(message) from error
