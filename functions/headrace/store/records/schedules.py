"""A schedule as the body of a control record, its progress as the text of a key lock, and back."""

import base64
import json
import zlib
from collections.abc import Iterator
from typing import Final

from headrace.domain.change import KeyLock
from headrace.domain.schedule import Progress, Schedule
from headrace.domain.times import instant_of, micros_of
from headrace.store.base import Record, Store, every_record
from headrace.store.records import body_of, read_body

KIND: Final = "schedule"
PROGRESS: Final = "ticks"
_PAGE: Final = 250
_PLAIN_BYTES: Final = 262_144  # of a payload, quotes escaped; an item may have 400 KB


def key(queue: str, name: str) -> str:
    """Return the name of the record and the key lock: no name has a slash."""
    return f"{queue}/{name}"


def to_record(schedule: Schedule) -> Record:
    """Return *schedule* as a record."""
    body = body_of(schedule, "queue", "name", "version")
    body["settings"]["payload"] = packed(schedule.settings.payload)
    return Record(KIND, key(schedule.queue, schedule.name), body, schedule.version)


def from_record(record: Record) -> Schedule:
    """Return the schedule of *record*.  Raises NewerRecord."""
    queue, _, name = record.name.partition("/")
    settings = record.body["settings"]
    body = {**record.body, "settings": {**settings, "payload": unpacked(settings["payload"])}}
    return read_body(body, Schedule, queue=queue, name=name, version=record.version)


def progress_lock(name: str, progress: Progress | None, *, expects: str | None) -> KeyLock:
    """Return the key lock with the progress of a schedule (None: the schedule was removed)."""
    return KeyLock(PROGRESS, name, None if progress is None else to_text(progress), expects)


def to_text(progress: Progress) -> str:
    """Return *progress* as the text of its key lock."""
    body = {
        "edition": progress.edition,
        "done": [[micros_of(first), micros_of(last)] for first, last in progress.done],
        "recent": [micros_of(tick) for tick in progress.recent],
        "ran_at": None if progress.ran_at is None else micros_of(progress.ran_at),
        "ran_id": progress.ran_id,
        "ids": {str(micros_of(tick)): id_ for tick, id_ in progress.other_ids.items()},
    }
    return json.dumps(body, separators=(",", ":"))


def from_text(text: str) -> Progress:
    """Return the progress of a key lock."""
    body = json.loads(text)
    return Progress(
        edition=body["edition"],
        done=tuple((instant_of(first), instant_of(last)) for first, last in body["done"]),
        recent=tuple(instant_of(tick) for tick in body["recent"]),
        ran_at=None if body["ran_at"] is None else instant_of(body["ran_at"]),
        ran_id=body["ran_id"],
        other_ids={instant_of(int(tick)): id_ for tick, id_ in body["ids"].items()},
    )


def of_queue(store: Store, queue: str) -> Iterator[Schedule]:
    """Yield the schedules of a queue by name, also those of a deleted queue of this name."""
    return map(from_record, every_record(store, KIND, prefix=key(queue, ""), page=_PAGE))


def drop_all(store: Store, queue: str) -> None:
    """Remove the schedules of a queue that is being deleted, whose tasks go with it."""
    for schedule in list(of_queue(store, queue)):
        name = key(queue, schedule.name)
        store.drop_record(KIND, name)
        text = store.key_lock(PROGRESS, name)
        if text is not None:
            store.set_key_lock(progress_lock(name, None, expects=text))


def packed(payload: str) -> str | list[str]:
    """Return a payload, compressed if its escaped quotes would make the record too large."""
    if len(json.dumps(payload, ensure_ascii=False).encode()) <= _PLAIN_BYTES:
        return payload
    return [base64.b64encode(zlib.compress(payload.encode())).decode()]


def unpacked(stored: str | list[str]) -> str:
    if isinstance(stored, str):
        return stored
    return zlib.decompress(base64.b64decode(stored[0])).decode()
