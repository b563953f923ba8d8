"""A queue as the body of a control record, and back."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from headrace.domain.queue import (
    DeadLetterConfig,
    DequeuingSettings,
    IntervalUnit,
    Queue,
    QueueSettings,
    RateLimiting,
)
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.store.base import Record

KIND = "queue"


def to_record(queue: Queue) -> Record:
    """Return *queue* as a record."""
    body = {
        "settings": asdict(queue.settings),
        "created_at": queue.created_at.isoformat(),
        "updated_at": queue.updated_at.isoformat(),
        "resume_at": queue.resume_at and queue.resume_at.isoformat(),
        "shards_in_use": queue.shards_in_use,
    }
    return Record(KIND, queue.name, body, queue.version)


def from_record(record: Record) -> Queue:
    """Return the queue of *record*."""
    body = record.body
    return Queue(
        name=record.name,
        settings=_settings(body["settings"]),
        created_at=datetime.fromisoformat(body["created_at"]),
        updated_at=datetime.fromisoformat(body["updated_at"]),
        version=record.version,
        resume_at=datetime.fromisoformat(body["resume_at"]) if body["resume_at"] else None,
        shards_in_use=body["shards_in_use"],
    )


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
