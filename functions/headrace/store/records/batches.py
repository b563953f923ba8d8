"""The control records of a batch: numbers, callbacks, first members.

The numbers are written often.  Without the callbacks, whose payloads may be large, a write of them
costs one unit.  Names of members are stored with the numbers as long as that adds no unit, and in
separate records after that.
"""

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from headrace.domain.batch import BatchEvent, Callback, Fired, TaskBatch
from headrace.domain.plan import TaskSpec
from headrace.domain.times import instant_of, micros_of
from headrace.store.base import Record
from headrace.store.records import body_of, read_body
from headrace.store.records.schedules import packed, unpacked

KIND: Final = "batch"
CALLBACKS: Final = "batch_on"
MEMBERS: Final = "batch_members"
STALLED: Final = "batch_stalled"
"""Records that name batches that may be stalled, so that nobody has to read all batches."""


def to_record(batch: TaskBatch) -> Record:
    """Return *batch* as a record."""
    body = body_of(batch, "id", "version", "expires_at", *_SHORTENED)
    body["fired"] = {event: [one.task_id, micros_of(one.at)] for event, one in batch.fired.items()}
    body["posted"] = dict(batch.posted)
    body["owed"] = str(batch.owed)  # wider than JSON numbers in many programs
    if batch.members or batch.dead_ids:
        body["names"] = _names_text(batch.members, batch.dead_ids)
    body = {name: value for name, value in body.items() if value not in (None, [], {}, 0, "0")}
    if batch.total == 0:
        body["total"] = 0
    return Record(KIND, batch.id, body, batch.version, batch.expires_at)


_SHORTENED: Final = ("fired", "posted", "owed", "members", "dead_ids")
_KB: Final = 1024
_AROUND: Final = 110  # what a record takes besides its id and its body


def fits(batch: TaskBatch) -> bool:
    """Return whether the names in the record of *batch* add no write unit."""
    bare = to_record(replace(batch, members=(), dead_ids=()))
    return _units(to_record(batch)) <= _units(bare)


def _units(record: Record) -> int:
    return -(-(_AROUND + len(record.name) + len(json.dumps(record.body))) // _KB)


def _names_text(*lists: Iterable[str]) -> str:
    """Return lists of ids in about half of their bytes; they have no blanks and no bars."""
    text = "|".join(map(" ".join, lists))
    return base64.b85encode(zlib.compress(text.encode(), 9, -zlib.MAX_WBITS)).decode()


def _names_of(text: str) -> list[list[str]]:
    plain = zlib.decompress(base64.b85decode(text), -zlib.MAX_WBITS).decode()
    return [part.split() for part in plain.split("|")]


def from_record(record: Record) -> TaskBatch:
    """Return the batch of *record*.  Raises NewerRecord."""
    body = {**record.body}
    fired = {
        BatchEvent(event): Fired(task_id, instant_of(at))
        for event, (task_id, at) in body.get("fired", {}).items()
    }
    given: dict[str, Any] = {
        "id": record.name,
        "version": record.version,
        "expires_at": record.expires_at,
    }
    given |= {"fired": fired, "owed": int(body.get("owed", "0"))}
    if "names" in body:
        given["members"], given["dead_ids"] = map(tuple, _names_of(body.pop("names")))
    return read_body({"on": (), "total": None, **body}, TaskBatch, **given)


def callback_record(batch: TaskBatch, event: BatchEvent, callback: Callback) -> Record:
    """Return the record of the callback of *batch* for *event*."""
    body = callback_body(callback)
    body["new"]["payload"] = packed(callback.new.payload)
    return Record(CALLBACKS, callback_name(batch, event), body, 1, batch.expires_at)


def callback_body(callback: Callback) -> dict[str, Any]:
    """Return *callback* as JSON, equal for equal callbacks."""
    kept = {
        name: value
        for name, value in body_of(callback.new).items()
        if value not in (None, [], {}, ())
    }
    return {"queue": callback.queue, "new": kept, **({"relay": True} if callback.relay else {})}


def callback_of(record: Record) -> Callback:
    """Return the callback of *record*."""
    new = {**record.body["new"], "payload": unpacked(record.body["new"]["payload"])}
    relay = record.body.get("relay", False)
    return Callback(record.body["queue"], read_body(new, TaskSpec), relay=relay)


def callback_name(batch: TaskBatch, event: BatchEvent) -> str:
    """Return the name of the record of a callback.

    Two calls that create different batches under one id do not overwrite each other.
    """
    return f"{batch.key}.{event}.{batch.digest}"


def members_record(
    key: str, chunk: int, members: Sequence[str], *, version: int, until: datetime
) -> Record:
    """Return the record of *members*: the first members of a batch that are in a *chunk*."""
    body = {"ids": _names_text(members)}
    return Record(MEMBERS, chunk_name(key, chunk), body, version, until)


def dead_record(batch: TaskBatch, dead: Sequence[str], *, version: int) -> Record:
    """Return the record of *dead* members that have no room beside the numbers."""
    return Record(
        MEMBERS, dead_name(batch.key), {"ids": _names_text(dead)}, version, batch.expires_at
    )


def is_small(record: Record) -> bool:
    """Return whether a write of *record* costs one unit."""
    return _units(record) == 1


def chunk_name(key: str, chunk: int) -> str:
    """Return the name of the record of a chunk of members; the first is 0."""
    return f"{key}.{chunk}"


def dead_name(key: str) -> str:
    """Return the name of the record of dead members."""
    return f"{key}.dead"


def members_of(record: Record | None) -> list[str]:
    """Return the members in *record*."""
    return [] if record is None else _names_of(record.body["ids"])[0]


def body_text(total: int | None, on: Mapping[BatchEvent, Callback], expires: float | None) -> str:
    """Return the arguments of a new batch as a text, equal for equal arguments."""
    callbacks = {str(event): callback_body(callback) for event, callback in on.items()}
    return json.dumps([total, callbacks, expires], sort_keys=True)
