"""Payloads of up to 1 GiB: uploaded from a file, and fetched into one, a part at a time."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias, Unpack
from urllib.parse import urlsplit
from urllib.request import url2pathname

import msgspec
from msgspec import structs

from headrace.client.calls import ApiCall, path_of, posts, reads, without_none
from headrace.client.calls.tasks import enqueue
from headrace.client.operations import Blocking, Operation
from headrace.client.sending import NewTaskFields
from headrace.domain import limits
from headrace.domain.errors import HeadraceError, InvalidRequest, Unavailable
from headrace.wire.tasks import Enqueued, Task, UploadGranted

PayloadFile: TypeAlias = str | os.PathLike[str] | BinaryIO
"""A path, or a file opened for bytes that can be read twice."""

_PART: Final = 1024 * 1024
_SECONDS: Final = 60.0  # that nothing moves
_REFUSED: Final = 400


class PayloadLost(HeadraceError):
    """An uploaded payload is lost or damaged."""

    code = "payload_lost"
    title = "Payload lost"


def upload_payload(
    queue: str, *, size: int, digest: str, id: str | None = None
) -> ApiCall[UploadGranted]:
    """Ask where to PUT a payload of *size* bytes with the sha256 *digest*, in hex.

    The task that it is for gets *id*, or a new one.
    Raises NotFound for a missing queue, and InvalidRequest, also where payloads cannot be uploaded.
    """
    body = without_none(bytes=size, sha256=digest, id=id)
    call = posts(path_of("queues", queue, "payloads"), reads(UploadGranted), body)
    return structs.replace(call, key=None)  # one whose answer was lost has done nothing


def upload(queue: str, file: PayloadFile, *, id: str | None = None) -> Operation[str]:
    """Upload *file* as the payload of one task of *queue*; return its ``payload_ref``.

    Enqueue it within the hour.  The file is read twice, and never held.
    Raises InvalidRequest for one that is empty or larger than 1 GiB, NotFound, Unavailable.
    """
    with _opened(file) as stream:
        size, digest = yield Blocking(lambda: _measured(stream))
        granted: UploadGranted = yield upload_payload(queue, size=size, digest=digest, id=id)
        yield Blocking(lambda: _put(granted, stream))
    return granted.payload_ref


def enqueue_file(
    queue: str, file: PayloadFile, **fields: Unpack[NewTaskFields]
) -> Operation[Enqueued]:
    """Upload *file* and put one task with it into *queue*; *fields* as in ``enqueue``."""
    ref = yield from upload(queue, file, id=fields.get("id"))
    fields["payload_ref"] = ref
    made: Enqueued = yield enqueue(queue, **fields)
    return made


def download(task: Task, to: str | os.PathLike[str]) -> Operation[Path]:
    """Write the uploaded payload of *task* to the path *to*, and return that.

    Raises PayloadLost when it is not what was uploaded, and Unavailable.
    """
    path: Path = yield Blocking(lambda: fetched(task, to))
    return path


def fetched(task: Task, to: str | os.PathLike[str]) -> Path:
    """Write the uploaded payload of *task* to the path *to*, a part at a time, and return that.

    There is no file before it is whole and as it was uploaded.
    Raises InvalidRequest for a task that has none, PayloadLost and Unavailable.
    """
    url, digest = task.payload_url, task.payload_sha256
    if isinstance(url, msgspec.UnsetType) or isinstance(digest, msgspec.UnsetType):
        raise InvalidRequest.of("payload_url", f"task {task.id} has no uploaded payload")
    path = Path(to)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    seen = sha256()
    try:
        with part.open("wb") as file:
            for piece in _pieces(url):
                seen.update(piece)
                file.write(piece)
        if seen.hexdigest() != digest:
            raise PayloadLost(f"the payload of task {task.id} is not what was uploaded")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path


def _measured(stream: BinaryIO) -> tuple[int, str]:
    """Return size and sha256 of the rest of *stream*, and rewind it.  Raises InvalidRequest."""
    least, most = limits.UPLOAD_BYTES
    try:
        start = stream.tell()
        size = stream.seek(0, os.SEEK_END) - start
        stream.seek(start)
    except (OSError, ValueError) as error:
        raise InvalidRequest.of("file", "must be one that can be read twice: save it") from error
    if size > most:
        raise InvalidRequest.of("file", f"must be at most {most} bytes (1 GiB)")
    if size < least:
        raise InvalidRequest.of("file", "is empty: enqueue the task without a payload")
    seen = sha256()
    while piece := stream.read(_PART):
        seen.update(piece)
    stream.seek(start)
    return size, seen.hexdigest()


def _put(granted: UploadGranted, stream: BinaryIO) -> None:
    """PUT the rest of *stream* to where that was granted.  Raises HeadraceError."""
    if (path := _file_at(granted.url)) is not None:
        _copied(stream, path)
        return
    import httpx2 as httpx  # noqa: PLC0415  takes as long to import as all else together

    try:
        answer = httpx.put(
            granted.url,
            content=iter(lambda: stream.read(_PART), b""),
            headers=granted.headers,
            timeout=_SECONDS,
        )
    except httpx.RequestError as error:
        raise Unavailable(
            f"the upload got no answer: {str(error) or type(error).__name__}"
        ) from error
    if answer.status_code >= _REFUSED:
        detail = f"the upload was answered with {answer.status_code}: {answer.text[:500]}"
        raise HeadraceError(detail)


def _pieces(url: str) -> Iterator[bytes]:
    """Yield the content at *url* in parts.  Raises Unavailable and PayloadLost."""
    if (path := _file_at(url)) is not None:
        try:
            with path.open("rb") as file:
                yield from iter(lambda: file.read(_PART), b"")
        except FileNotFoundError:
            raise PayloadLost("the payload is not where it was kept") from None
        return
    import httpx2 as httpx  # noqa: PLC0415  as above

    try:
        with httpx.stream("GET", url, timeout=_SECONDS) as answer:
            if answer.status_code == httpx.codes.NOT_FOUND:
                raise PayloadLost("the payload is not where it was kept")
            if answer.status_code >= _REFUSED:
                raise Unavailable(f"the payload was answered with {answer.status_code}")
            yield from answer.iter_raw(_PART)
    except httpx.RequestError as error:
        raise Unavailable(
            f"the payload did not come: {str(error) or type(error).__name__}"
        ) from error


def _file_at(url: str) -> Path | None:
    """Return the file that *url* means, over a file on this machine; None for another one."""
    parts = urlsplit(url)
    return Path(url2pathname(parts.path)) if parts.scheme == "file" else None


def _copied(stream: BinaryIO, path: Path) -> None:
    """Write the rest of *stream* beside *path*, then move it there."""
    part = path.with_name(f"{path.name}+{os.getpid()}.part")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(part, "wb", opener=_private) as file:
            shutil.copyfileobj(stream, file, _PART)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise Unavailable(f"the payload cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    """Open a file that only its owner may read, whatever the umask."""
    return os.open(path, flags, 0o600)


@contextmanager
def _opened(file: PayloadFile) -> Iterator[BinaryIO]:
    if not isinstance(file, str | os.PathLike):
        yield file
        return
    path = Path(file)
    if not path.is_file():
        raise InvalidRequest.of("file", f"{path} is no file")
    with path.open("rb") as stream:
        yield stream
