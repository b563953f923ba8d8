"""A queue as the body of a control record, and back."""

import json
from dataclasses import asdict
from typing import Any, Final

from msgspec import convert

from headrace.domain.queue import Queue
from headrace.store.base import Record

KIND: Final = "queue"
_FOUND_OUT: Final = ("shards_in_use", "drained", "uncounted_since")
"""What is not decided by anybody, but found out once settings have been changed."""


def to_record(queue: Queue) -> Record:
    """Return *queue* as a record."""
    body: dict[str, Any] = {
        "settings": asdict(queue.settings),
        "created_at": queue.created_at.isoformat(),
        "updated_at": queue.updated_at.isoformat(),
        "resume_at": queue.resume_at and queue.resume_at.isoformat(),
        "shards_in_use": queue.shards_in_use,
    }
    if queue.uncounted_since is not None:
        body["uncounted_since"] = queue.uncounted_since.isoformat()
    if queue.resharded_at is not None:
        body["resharded_at"] = queue.resharded_at.isoformat()
    if queue.shards_ever > queue.shards_in_use:
        body["shards_ever"] = queue.shards_ever
    if queue.drained:
        body["drained"] = sorted(queue.drained)
    return Record(KIND, queue.name, body, queue.version)


def from_record(record: Record) -> Queue:
    """Return the queue of *record*."""
    stored = record.body
    body = {"shards_ever": stored["shards_in_use"], **stored, **_found_out(record)}
    body |= {"drained": body.get("drained") or (), "name": record.name, "version": record.version}
    return convert(body, Queue)


def note_of(queue: Queue) -> str:
    """Return the note to leave on *queue*'s record: what was found out of it as it stands."""
    found = to_record(queue).body
    note = {name: found.get(name) for name in _FOUND_OUT}
    return json.dumps({"version": queue.version, **note})


def _found_out(record: Record) -> dict[str, Any]:
    """Return the content of a note on *record*, if it is about the settings as they are."""
    note: dict[str, Any] = json.loads(record.note) if record.note else {}
    if note.get("version") != record.version:
        return {}
    return {name: note[name] for name in _FOUND_OUT if name in note}
