"""Large texts of tasks kept outside their items: which go, and their references and orphans.

An item is paid for by its size at every write, and a payload never changes on the way.  So a text
over a threshold is put into an object store first, and only then is the task written, with a
reference to it.  Every write gives its object a new name, which is never used again: so an
object can be dropped as soon as its reference is gone, whatever is still on its way.

What a crash leaves between the two writes is an object that no task refers to.  Nothing looks for
it at once; see ``ops.delivery.orphans``.

Payloads that producers upload themselves: what is granted, and what a reference stands for.

A reference is the name of the object that it is for, and the name is the whole grant: the id of
the task that it makes, the queue, size and digest, and the end.  Only the store of objects and its
signer allow a write under such a name, and only of that size and digest: so an object that exists
was granted, and no other record of it is needed.

A reference makes one task: the task has its id.  It is good for an hour.  An object is never
dropped in that time, even if its task is removed, because the same reference may come again; see
``may_come_again``.  Without a reference the object is an orphan then.
"""

import hmac
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2b, sha256
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from msgspec import structs

from headrace.domain import limits
from headrace.domain.change import Change
from headrace.domain.task import OFFLOADED, OffloadedText, Task

_MARK: Final = "/up."
_NAME: Final = re.compile(
    rf"(?P<id>{limits.TASK_ID})/up\.(?P<token>[A-Za-z0-9_-]{{8,64}})\.(?P<until>[0-9]{{1,12}})"
    r"\.(?P<bytes>[0-9]{1,10})\.(?P<sha256>[0-9a-f]{64})\.(?P<queue>[0-9a-f]{16})",
    re.ASCII,
)
_SKEW: Final = timedelta(minutes=10)  # between the clocks of two processes

PATH: Final = "/v1/payloads/"
"""Where a service without S3 takes uploads itself, and hands them out."""


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload that was granted; ``queue`` is a mark of its queue, ``until`` in whole seconds."""

    task_id: str
    token: str
    until: datetime
    bytes: int
    sha256: str
    queue: str

    @property
    def name(self) -> str:
        """The name of the object, which is the reference too."""
        until = int(self.until.timestamp())
        rest = f"{self.token}.{until}.{self.bytes}.{self.sha256}.{self.queue}"
        return f"{self.task_id}{_MARK}{rest}"

    @property
    def text(self) -> OffloadedText:
        """The reference that the task stores."""
        return OffloadedText(self.name, self.bytes, self.sha256)

    def fault(self, queue: str, now: datetime) -> str | None:
        """Return why the upload cannot be a payload in *queue*, as far as its name says."""
        if self.queue != queue_mark(queue):
            return "is for another queue"
        if self.until <= now:
            return f"is over: it was good for {limits.UPLOAD_SECONDS} s. Upload it again"
        return None


def grant_upload(
    queue: str, *, task_id: str, token: str, size: int, digest: str, now: datetime
) -> Upload:
    """Return the upload of a payload of *size* bytes with the sha256 *digest*, in hex."""
    until = now.replace(microsecond=0) + timedelta(seconds=limits.UPLOAD_SECONDS)
    return Upload(task_id, token, until, size, digest.lower(), queue_mark(queue))


def read(reference: str) -> Upload | None:
    """Return the upload that *reference* names, or None."""
    found = _NAME.fullmatch(reference)
    if found is None:
        return None
    until = datetime.fromtimestamp(int(found["until"]), UTC)
    size = int(found["bytes"])
    return Upload(found["id"], found["token"], until, size, found["sha256"], found["queue"])


def queue_mark(queue: str) -> str:
    """Return the mark of a queue in object names; a queue's name may be too long for a file."""
    return blake2b(queue.encode(), digest_size=8).hexdigest()


def may_come_again(name: str, now: datetime) -> bool:
    """Return whether a task that refers to the object *name* may still be made."""
    if _MARK not in name:
        return False
    upload = read(name)
    return upload is not None and now < upload.until + _SKEW


def signature(key: bytes, method: str, name: str, until: int) -> str:
    """Return the signature of *method* on the object *name*, valid until then (seconds)."""
    return hmac.new(key, f"{method} {until} {name}".encode(), sha256).hexdigest()


def signatures_match(good: str, shown: str) -> bool:
    """Return whether two signatures are equal, in a time that does not depend on them."""
    return hmac.compare_digest(good.encode(), shown.encode())


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as a list shows it."""

    name: str
    written_at: datetime


class ObjectDoor(Protocol):
    """Signs URLs by which clients read and write objects without the service."""

    def upload_url(self, upload: Upload, seconds: int) -> tuple[str, Mapping[str, str]]:
        """Return where to PUT just what *upload* grants, and with which headers."""

    def download_url(self, name: str, seconds: int) -> str:
        """Return where to GET an object."""


class ReceivedObject(Protocol):
    """An object that is written part by part; it exists once it is complete."""

    def write(self, part: bytes) -> object:
        """Take the next part."""

    def keep(self) -> None:
        """Complete the object; it outlasts a loss of power then."""

    def abandon(self) -> None:
        """Drop the object, unless keep() has completed it."""


class ObjectStore(Protocol):
    """A place for texts of tasks, each under a name that is written once.

    Every method may raise Unavailable.
    """

    def unused(self) -> bool:
        """Return whether the store is known to be empty, without a request."""

    def put(self, contents: Mapping[str, bytes]) -> None:
        """Write objects by name; each outlasts a loss of power once this returns."""

    def get(self, names: Collection[str]) -> Mapping[str, bytes]:
        """Return the content of those of the objects that exist, by name."""

    def drop(self, names: Collection[str]) -> None:
        """Remove objects; missing objects are no error."""

    def sizes(self, names: Collection[str]) -> Mapping[str, int]:
        """Return how many bytes those of the objects have that exist, by name."""

    def door(self) -> "ObjectDoor | None":
        """Return the signer of URLs for objects; None if the service must pass them on itself."""

    def list(self, after: str, limit: int) -> Sequence[StoredObject]:
        """Return up to *limit* objects after *after* in the store's order; "" is the start."""


class OwnObjects(ObjectStore, Protocol):
    """Objects that the service itself receives and sends, part by part."""

    def path_of(self, name: str) -> Path | None:
        """Return the file of an object, for programs on this machine, or None."""

    def receive(self, name: str) -> ReceivedObject:
        """Begin to write an object."""

    def open(self, name: str) -> BinaryIO | None:
        """Return an object to read, or None."""


def object_name(task_id: str, token: str) -> str:
    """Return the name of an object of a task; *token* makes it the only one of this name."""
    return f"{task_id}/{token}"


def owner_of(name: str) -> str:
    """Return the id of the task that an object was written for."""
    return name.partition("/")[0]


def content_of(text: str) -> bytes:
    """Return *text* as an object's content."""
    return text.encode("utf-8", "surrogatepass")


def text_of(content: bytes, reference: OffloadedText) -> str | None:
    """Return the text of an object's *content*; None if it is not what *reference* was made of."""
    if len(content) != reference.bytes or sha256(content).hexdigest() != reference.sha256:
        return None
    return content.decode("utf-8", "surrogatepass")


@dataclass(slots=True)
class Offload:
    """Changes plans so that texts over *most* bytes are kept elsewhere.

    ``contents`` are the objects to write before any of those changes, by name.
    """

    most: float
    new_token: Callable[[], str]
    contents: dict[str, bytes]

    def plan(self, change: Change) -> Change:
        """Return *change* with references in place of large texts.

        A text that is written or emptied takes the reference of the one before it along.
        """
        if change.also:
            also = tuple(self.plan(one) if isinstance(one, Change) else one for one in change.also)
            change = structs.replace(change, also=also)
        if change.insert is not None:
            return self._inserted(change, change.insert)
        written = [name for name in OFFLOADED if name in change.put]
        emptied = [name for name in change.clear if name in OFFLOADED]
        if not written and not emptied:
            return change
        large = self._large(change.task_id, {name: change.put[name] for name in written})
        stale = [OFFLOADED[name] for name in (*written, *emptied) if name not in large]
        clear = (*change.clear, *stale, *large)
        if not large:
            return structs.replace(change, clear=clear)
        put = {name: value for name, value in change.put.items() if name not in large}
        put |= {OFFLOADED[name]: reference for name, reference in large.items()}
        return structs.replace(change, put=put, clear=clear)

    def _inserted(self, change: Change, task: Task) -> Change:
        if math.isinf(self.most):
            return change
        given = {name: getattr(task, name) for name in OFFLOADED}
        large = self._large(task.id, given)
        if not large:
            return change
        fields = {OFFLOADED[name]: reference for name, reference in large.items()}
        return structs.replace(
            change, insert=structs.replace(task, **fields, **dict.fromkeys(large))
        )

    def _large(self, task_id: str, given: Mapping[str, str | None]) -> dict[str, OffloadedText]:
        """Return references in place of those of the texts *given* that are large, by field."""
        large = {}
        for name, text in given.items():
            if text is None or 3 * len(text) <= self.most:  # no character takes more bytes
                continue
            content = content_of(text)
            if len(content) > self.most:
                where = object_name(task_id, self.new_token())
                self.contents[where] = content
                digest = sha256(content).hexdigest()
                large[name] = OffloadedText(where, len(content), digest)
        return large


@dataclass(frozen=True, slots=True, order=True)
class LakeObject:
    """An object of the lake; ``stamp`` changes when it is rewritten, ``size`` is in bytes."""

    name: str
    size: int
    stamp: str


class Lake(Protocol):
    """A place for files that are written whole, under names with slashes.

    Every method may raise Unavailable.
    """

    def put(self, name: str, content: bytes) -> None:
        """Write a file, or replace the file of that name; no reader sees a half of it."""

    def get(self, name: str, within: range | None = None) -> bytes | None:
        """Return the content of a file, or its bytes *within* a range; None if there is no file."""

    def list(self, prefix: str) -> Sequence[LakeObject]:
        """Return the files whose names begin with *prefix*, by name."""


class PieceLake(Lake, Protocol):
    """A lake whose files may be larger than memory."""

    def pieces(self, name: str) -> AbstractContextManager[Iterator[bytes] | None]:
        """Yield the content of a file in pieces, or None if there is no file."""
