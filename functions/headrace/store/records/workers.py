"""The record of a worker, renewed by its heartbeats; a command is a note on the record."""

from datetime import datetime
from typing import Final

from headrace.domain.values import convert
from headrace.domain.worker import REMEMBERED_FOR, Command, LiveWorker, WorkerHeartbeat
from headrace.store.base import Record
from headrace.store.records import body_of

KIND: Final = "worker"


def to_record(heartbeat: WorkerHeartbeat, now: datetime) -> Record:
    """Return a heartbeat of *now* as the record of its worker."""
    body = {**body_of(heartbeat, "name"), "seen_at": now.isoformat()}
    return Record(KIND, heartbeat.name, body, expires_at=now + REMEMBERED_FOR)


def from_record(record: Record) -> LiveWorker:
    """Return the worker of *record*, with the command for it."""
    heartbeat = convert({**record.body, "name": record.name}, WorkerHeartbeat)
    seen_at = datetime.fromisoformat(record.body["seen_at"])
    if not record.note:
        return LiveWorker(heartbeat, seen_at)
    noted = (command for command in Command if record.note == note_of(command, heartbeat))
    return LiveWorker(heartbeat, seen_at, next(noted, None))


def note_of(command: Command, heartbeat: WorkerHeartbeat) -> str:
    """Return a command with the start of its process, because it is not for later processes."""
    return f"{command} {heartbeat.started_at.isoformat()}"
