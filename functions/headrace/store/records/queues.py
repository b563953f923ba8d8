"""A queue as the body of a control record, and back."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from headrace.domain.queue import (
    DeadLetterConfig,
    DequeuingSettings,
    IntervalUnit,
    Queue,
    QueueSettings,
    RateLimiting,
)
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import State
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
    body = {**record.body, **_found_out(record)}
    uncounted, resharded = body.get("uncounted_since"), body.get("resharded_at")
    return Queue(
        name=record.name,
        settings=_settings(body["settings"]),
        created_at=datetime.fromisoformat(body["created_at"]),
        updated_at=datetime.fromisoformat(body["updated_at"]),
        version=record.version,
        resume_at=datetime.fromisoformat(body["resume_at"]) if body["resume_at"] else None,
        shards_in_use=body["shards_in_use"],
        drained=frozenset(State(state) for state in body.get("drained") or ()),
        resharded_at=datetime.fromisoformat(resharded) if resharded else None,
        shards_ever=record.body.get("shards_ever", record.body["shards_in_use"]),
        uncounted_since=datetime.fromisoformat(uncounted) if uncounted else None,
    )


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


def _settings(stored: Mapping[str, Any]) -> QueueSettings:
    retry, dequeuing = stored["retry_strategy"], stored["dequeuing_settings"]
    rate = dequeuing["rate_limiting"]
    return QueueSettings(
        **{
            **stored,
            "retry_strategy": RetryStrategy(
                **{**retry, "kind": Backoff(retry["kind"]), "intervals": tuple(retry["intervals"])}
            ),
            "dequeuing_settings": DequeuingSettings(
                **{
                    **dequeuing,
                    "rate_limiting": rate
                    and RateLimiting(
                        **{**rate, "interval_unit": IntervalUnit(rate["interval_unit"])}
                    ),
                }
            ),
            "dead_letter_queue_config": DeadLetterConfig(**stored["dead_letter_queue_config"]),
        }
    )
