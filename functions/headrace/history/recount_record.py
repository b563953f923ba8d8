"""The records of queues that are counted anew: one under way, and the last that was finished."""

from datetime import datetime, timedelta
from typing import Final

from headrace.history.counter_buffer import KEPT
from headrace.history.recount import NewCount
from headrace.store.base import Record, Store

OPEN: Final = "recounting"
DONE: Final = "recount"
_GIVEN_UP_AFTER: Final = timedelta(hours=1)


def to_record(kind: str, queue: str, count: NewCount, now: datetime, version: int) -> Record:
    """Return *count* as a record of *kind*."""
    kept = KEPT if kind == DONE else _GIVEN_UP_AFTER
    return Record(kind, queue, count.body(), version, now + kept)


def write(store: Store, kind: str, queue: str, count: NewCount, now: datetime) -> int:
    """Write *count* as the record of *kind*, whatever was there; return its version."""
    while True:
        before = store.record(kind, queue)
        version = before.version if before is not None else 0
        record = to_record(kind, queue, count, now, version + 1)
        if store.put_record(record, replaces=version or None):
            return version + 1


def read(
    store: Store, kind: str, queue: str, recount: str, now: datetime
) -> tuple[NewCount, int] | None:
    """Return the count of *queue* of this id and its version; None if there is none any more."""
    record = store.record(kind, queue)
    if record is None or (record.expires_at is not None and record.expires_at <= now):
        return None
    count = NewCount.of(dict(record.body))
    return (count, record.version) if count.id == recount else None
