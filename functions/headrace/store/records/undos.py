"""Records of undos: the deletion, the end of the undo, and the ids of a few tasks."""

from datetime import datetime

from headrace.domain.operate import Undo
from headrace.store.base import Record

KIND = "undo"


def to_record(undo: Undo, ids: tuple[str, ...] | None) -> Record:
    """Return *undo* as a record, with the *ids* of its tasks if they are named."""
    body = {"queue": undo.queue, "at": undo.at.isoformat(), "until": undo.until.isoformat()}
    named = {} if ids is None else {"ids": list(ids)}
    return Record(KIND, undo.id, body | named, expires_at=undo.until)


def from_record(record: Record) -> tuple[Undo, tuple[str, ...] | None]:
    """Return the undo of *record*, and the ids of its tasks if they are named."""
    body = record.body
    at, until = (datetime.fromisoformat(body[name]) for name in ("at", "until"))
    ids = body.get("ids")
    return Undo(record.name, body["queue"], at, until), None if ids is None else tuple(ids)
