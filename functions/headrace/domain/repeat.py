"""A request under an ``Idempotency-Key``: what identifies it, what is known of the first.

Everything here is pure.  The first request under a key runs; a repeat of it gets the first answer;
another request under the same key is a conflict.  A failed request is forgotten, and its repeat
runs.

All records of one key have one kind: the record named ``FIRST``, and the parts of an answer that is
too large for one item.  Answers are compressed, because DynamoDB charges items by the kilobyte.
"""

import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import Any, Final

from headrace.domain.errors import IdempotencyConflict, Unavailable
from headrace.domain.ids import is_tagged
from headrace.domain.task import State, Task
from headrace.domain.times import instant_of, micros_of

KEPT: Final = timedelta(minutes=15)
"""So long a repeat is answered as the first request was, counted from when that began."""

FIRST: Final = "first"
PART_BYTES: Final = 300_000
"""The maximum size of a part; an item may have 400 KB."""

_OURS: Final = "tsk_"
_IDS: Final = re.compile(r"[.,][^.,]+")  # no id has these characters
_PLAIN_BYTES: Final = 500  # shorter texts are not compressed


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """What a caller asks under a key; the same *fingerprint* is the same request."""

    caller: str
    key: str
    fingerprint: str

    @property
    def kind(self) -> str:
        """The kind of the records of the key, which is different for each caller."""
        return f"repeat:{self.caller}:{self.key}"


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """An answer as it is given again."""

    status: int
    content_type: str | None
    body: str


@dataclass(frozen=True, slots=True)
class First:
    """What is known of the first request under a key.

    It began *at* an instant and is over *until* another, even if its process died.  ``answer`` is
    None while it runs; ``failed`` means that there is nothing to repeat.
    """

    fingerprint: str
    at: datetime
    until: datetime
    answer: RecordedAnswer | None = None
    failed: bool = False
    begun_at: datetime | None = None
    """When the first try of all began, where that was before: what it has made is known by that."""

    @property
    def began(self) -> datetime:
        """When the first try of all began."""
        return self.at if self.begun_at is None else self.begun_at

    @classmethod
    def of(cls, body: Mapping[str, Any], parts: Sequence[str] = ()) -> "First":
        """Return the content of a record; *parts* are the parts of a divided answer."""
        answer = None
        text = body.get("text") or "".join(parts)
        if text:
            answer = RecordedAnswer(body["status"], body["type"], _unpacked(text))
        return cls(
            body["of"],
            instant_of(body["at"]),
            instant_of(body["until"]),
            answer,
            "failed" in body,
            instant_of(body["begun"]) if "begun" in body else None,
        )

    def body(self) -> dict[str, Any]:
        """Return the body of the record, without the parts of its answer."""
        body: dict[str, Any] = {
            "of": self.fingerprint,
            "at": micros_of(self.at),
            "until": micros_of(self.until),
        }
        if self.failed:
            body["failed"] = True
        if self.begun_at is not None:
            body["begun"] = micros_of(self.begun_at)
        if self.answer is not None:
            text = _packed(self.answer.body)
            body |= {"status": self.answer.status, "type": self.answer.content_type}
            body |= {"text": text} if len(text) <= PART_BYTES else {"parts": len(_cut(text))}
        return body

    def parts(self) -> list[str]:
        """Return the parts of an answer that is too large for its record."""
        text = _packed(self.answer.body) if self.answer is not None else ""
        return _cut(text) if len(text) > PART_BYTES else []

    def next_try(self, request: KeyedRequest, *, now: datetime, until: datetime) -> "First":
        """Return *request* as the next to run; of the same one this may have done a part."""
        again = self.fingerprint == request.fingerprint and now < self.at + KEPT
        return First(request.fingerprint, now, until, begun_at=self.began if again else None)

    def repeated_by(self, request: KeyedRequest, *, now: datetime) -> bool:
        """Return whether *request* repeats this one; False: *request* comes first now.

        Raises IdempotencyConflict when it is another request.
        """
        if self.failed or now >= self.at + KEPT:
            return False
        if self.fingerprint != request.fingerprint:
            raise IdempotencyConflict(
                "this Idempotency-Key was sent with another request within the last 15 minutes: "
                "each request takes a key of its own, which only its repeats carry"
            )
        return True

    def answer_to(self, request: KeyedRequest, *, now: datetime) -> RecordedAnswer | None:
        """Return the recorded answer to *request*; None: it runs, as if it was the first.

        Raises IdempotencyConflict when it is another request, and Unavailable while the first one
        still runs.
        """
        if not self.repeated_by(request, now=now):
            return None
        if self.answer is None and now < self.until:
            raise still_running(self.at, self.until, now=now)
        return self.answer  # None: its process died


@dataclass(frozen=True, slots=True)
class NotedBatch:
    """What a dequeue under a key set out to lease: noted before the first lease is written.

    It began *at* an instant and leases nothing more after *until*.  Its leases are made with *tag*,
    the latest of which were noted at *latest*: of tasks that were due then.
    A *closed* batch was given to a repeat: no task joins it.
    """

    at: datetime
    until: datetime
    tag: str
    task_ids: tuple[str, ...] = ()
    closed: bool = False
    latest: datetime | None = None  # None: not known

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> "NotedBatch":
        """Return the batch in a record, which is empty for a record of another request."""
        ids = tuple(
            f"{_OURS}{name[1:]}" if name.startswith(".") else name[1:]
            for name in _IDS.findall(body.get("ids", ""))
        )
        at, until = instant_of(body["at"]), instant_of(body["until"])
        latest = instant_of(body["at"] + body["late"]) if "late" in body else None
        return cls(at, until, body.get("tag", ""), ids, "closed" in body, latest)

    def body(self, request: KeyedRequest) -> dict[str, Any]:
        """Return the body of the record: up to 1 KB for 25 tasks with ids of the service."""
        ids = "".join(
            f".{name.removeprefix(_OURS)}" if name.startswith(_OURS) else f",{name}"
            for name in self.task_ids
        )
        body = {
            "of": request.fingerprint,
            "at": micros_of(self.at),
            "until": micros_of(self.until),
            "tag": self.tag,
            "ids": ids,
        }
        if self.latest is not None:
            body["late"] = micros_of(self.latest) - micros_of(self.at)
        if self.closed:
            body["closed"] = True
        return body

    def holds(self, task: Task, *, now: datetime) -> bool:
        """Return whether *task* is under a lease of this batch that is still good."""
        return (
            task.state is State.INFLIGHT
            and task.lease_id is not None
            and task.lease_expires_at is not None
            and is_tagged(task.lease_id, self.tag)
            and task.lease_expires_at > now
        )

    def check_finished(
        self, tasks: Iterable[Task], *, queues: Collection[str], now: datetime
    ) -> None:
        """Raise Unavailable while the first try may still lease some of *tasks*, as read.

        *queues* are the names of the request; tasks of other queues are not checked.
        """
        waiting = (task for task in tasks if task.queue in queues)
        if now < self.until and any(map(self._may_come, waiting)):
            raise still_running(self.at, self.until, now=now)

    def _may_come(self, task: Task) -> bool:
        """Return whether the first try may still lease *task*, which waits.

        It cannot if the task was delivered since, or fell due later, for example by a restart.  A
        lease is conditional on one of the two times, so the earlier one decides.
        """
        delivered_since = task.started_at is not None and task.started_at >= self.at
        due = self.latest is None or min(task.due_at, task.scheduled_at) <= self.latest
        return task.state is State.ENQUEUED and not delivered_since and due


def still_running(at: datetime, until: datetime, *, now: datetime) -> Unavailable:
    """Return the refusal of a repeat that came while the first request runs.

    It may come again after as long as the first has been running: soon at first, and hardly
    later than *until*, when one that has died is over.
    """
    wait = min(now - at, until - now).total_seconds()
    return Unavailable(
        "the first request under this Idempotency-Key is still being worked on",
        retry_after_seconds=max(1, ceil(wait)),
    )


def _cut(text: str) -> list[str]:
    return [text[start : start + PART_BYTES] for start in range(0, len(text), PART_BYTES)]


def _packed(text: str) -> str:
    """Return *text* as ASCII, compressed; or with an equals sign before it, as it is."""
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) <= _PLAIN_BYTES:
        return f"={text}"
    return b64encode(zlib.compress(raw)).decode("ascii")


def _unpacked(text: str) -> str:
    if text.startswith("="):
        return text[1:]
    return zlib.decompress(b64decode(text)).decode("utf-8", "surrogatepass")
