"""Control records of requests with an ``Idempotency-Key``.

All records of one key have one kind: the record named ``first``, and the parts of an answer that is
too large for one item.  Answers are compressed, because DynamoDB charges items by the kilobyte.
"""

import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any, Final

from headrace.domain.repeat import KEPT, First, KeyedRequest, NotedBatch, RecordedAnswer
from headrace.domain.times import instant_of, micros_of
from headrace.store.base import Record

FIRST: Final = "first"
PART_BYTES: Final = 300_000
"""The maximum size of a part; an item may have 400 KB."""

_OURS: Final = "tsk_"
_IDS: Final = re.compile(r"[.,][^.,]+")  # no id has these characters
_PLAIN_BYTES: Final = 500  # shorter texts are not compressed


def kind_of(request: KeyedRequest) -> str:
    """Return the kind of the records of a key, which is different for each caller."""
    return f"repeat:{request.caller}:{request.key}"


def record_of(request: KeyedRequest, first: First, *, version: int) -> Record:
    """Return the record of *first*, without the parts of its answer."""
    body: dict[str, Any] = {
        "of": first.fingerprint,
        "at": micros_of(first.at),
        "until": micros_of(first.until),
    }
    if first.failed:
        body["failed"] = True
    if first.begun_at is not None:
        body["begun"] = micros_of(first.begun_at)
    if first.answer is not None:
        text = _packed(first.answer.body)
        body |= {"status": first.answer.status, "type": first.answer.content_type}
        body |= {"text": text} if len(text) <= PART_BYTES else {"parts": len(_cut(text))}
    return Record(kind_of(request), FIRST, body, version, expires_at=first.at + KEPT)


def parts_of(request: KeyedRequest, first: First, *, version: int) -> list[Record]:
    """Return the records of the parts of an answer that is too large for its record."""
    text = _packed(first.answer.body) if first.answer is not None else ""
    if len(text) <= PART_BYTES:
        return []
    return [
        Record(kind_of(request), part_name(version, place), {"text": part}, 1, first.at + KEPT)
        for place, part in enumerate(_cut(text))
    ]


def part_name(version: int, place: int) -> str:
    """Return the name of one part; the parts of each version are of another answer."""
    return f"{version}.{place:03d}"


def first_of(record: Record, parts: Sequence[str] = ()) -> First:
    """Return the content of a record; *parts* are the parts of a divided answer."""
    body = record.body
    answer = None
    text = body.get("text") or "".join(parts)
    if text:
        answer = RecordedAnswer(body["status"], body["type"], _unpacked(text))
    return First(
        body["of"],
        instant_of(body["at"]),
        instant_of(body["until"]),
        answer,
        "failed" in body,
        instant_of(body["begun"]) if "begun" in body else None,
    )


def batch_record(request: KeyedRequest, batch: NotedBatch, *, version: int) -> Record:
    """Return the record of *batch*: up to 1 KB for 25 tasks with ids of the service."""
    ids = "".join(
        f".{name.removeprefix(_OURS)}" if name.startswith(_OURS) else f",{name}"
        for name in batch.task_ids
    )
    body = {
        "of": request.fingerprint,
        "at": micros_of(batch.at),
        "until": micros_of(batch.until),
        "tag": batch.tag,
        "ids": ids,
    }
    if batch.latest is not None:
        body["late"] = micros_of(batch.latest) - micros_of(batch.at)
    if batch.closed:
        body["closed"] = True
    return Record(kind_of(request), FIRST, body, version, expires_at=batch.at + KEPT)


def batch_of(record: Record) -> NotedBatch:
    """Return the batch in a record, which is empty for a record of another request."""
    body = record.body
    ids = tuple(
        f"{_OURS}{name[1:]}" if name.startswith(".") else name[1:]
        for name in _IDS.findall(body.get("ids", ""))
    )
    at, until = instant_of(body["at"]), instant_of(body["until"])
    latest = instant_of(body["at"] + body["late"]) if "late" in body else None
    return NotedBatch(at, until, body.get("tag", ""), ids, "closed" in body, latest)


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
