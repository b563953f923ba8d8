"""Payloads that producers upload themselves: what is granted, and what a reference stands for.

A reference is the name of the object that it is for, and the name says all that was granted: the id
of the task that it makes, the queue, size and digest, and until when.  Nobody but the store of
objects, or who signs for it, lets anything be written under such a name, and only what it says: so
an object that is there was granted, and nothing else need be kept of it.

A reference makes one task: the task has its id.  It is good for an hour.  An object is never
dropped in that time, whatever becomes of its task, because the same reference may come again; see
``may_come_again``.  What nobody refers to then is an orphan like others.
"""

import hmac
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2b, sha256
from typing import Final

from headrace.domain import limits
from headrace.domain.task import OffloadedText

_MARK: Final = "/up."
_NAME: Final = re.compile(
    rf"(?P<id>{limits.TASK_ID})/up\.(?P<token>[A-Za-z0-9_-]{{8,64}})\.(?P<until>[0-9]{{1,12}})"
    r"\.(?P<bytes>[0-9]{1,10})\.(?P<sha256>[0-9a-f]{64})\.(?P<queue>[0-9a-f]{16})",
    re.ASCII,
)
_SKEW: Final = timedelta(minutes=10)  # between the clocks of those who decide

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
        """What a task keeps of it."""
        return OffloadedText(self.name, self.bytes, self.sha256)

    def fault(self, queue: str, now: datetime) -> str | None:
        """Return what keeps it from being a payload in *queue*, as far as its name tells."""
        if self.queue != queue_mark(queue):
            return "is for another queue"
        if self.until <= now:
            return f"is over: it was good for {limits.UPLOAD_SECONDS} s. Upload it again"
        return None


def granted(
    queue: str, *, task_id: str, token: str, size: int, digest: str, now: datetime
) -> Upload:
    """Return the upload of a payload of *size* bytes with the sha256 *digest*, in hex."""
    until = now.replace(microsecond=0) + timedelta(seconds=limits.UPLOAD_SECONDS)
    return Upload(task_id, token, until, size, digest.lower(), queue_mark(queue))


def read(reference: str) -> Upload | None:
    """Return what *reference* stands for; None for what is none."""
    found = _NAME.fullmatch(reference)
    if found is None:
        return None
    until = datetime.fromtimestamp(int(found["until"]), UTC)
    size = int(found["bytes"])
    return Upload(found["id"], found["token"], until, size, found["sha256"], found["queue"])


def queue_mark(queue: str) -> str:
    """Return the mark of a queue in names, which may be longer than a file's name."""
    return blake2b(queue.encode(), digest_size=8).hexdigest()


def may_come_again(name: str, now: datetime) -> bool:
    """Tell whether a task may yet be made that refers to the object *name*."""
    if _MARK not in name:
        return False
    upload = read(name)
    return upload is not None and now < upload.until + _SKEW


def signature(key: bytes, method: str, name: str, until: int) -> str:
    """Return what allows whoever shows it to PUT or GET an object until then, in seconds."""
    return hmac.new(key, f"{method} {until} {name}".encode(), sha256).hexdigest()


def same(good: str, shown: str) -> bool:
    """Compare signatures in a time that tells nothing."""
    return hmac.compare_digest(good.encode(), shown.encode())
