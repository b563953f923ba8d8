"""Records of queues: their settings, alerts, workers, and indexed fields.

A worker's record is renewed by its heartbeats; a command is a note on the record.  Each queue that
has had indexed fields has a record of them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from headrace.domain.alerts import AlertState
from headrace.domain.queue import Queue
from headrace.domain.task import ORDINARY
from headrace.domain.values import convert
from headrace.domain.worker import REMEMBERED_FOR, Command, LiveWorker, WorkerHeartbeat
from headrace.store.base import Record, Store, every_record
from headrace.store.records import body_of, read_body

KIND: Final = "queue"
ALERTS: Final = "alert"  # the kind of the records in ``alerts``; most processes need only this
_SELDOM: Final = (
    "drained",
    "resharded_at",
    "uncounted_since",
    "signing_generation",
    "rotated_at",
    "alerts_since",
    "on_end_for",
    "pause",
)
_LANES: Final = ("lanes_in_use", "lanes_ever")  # rarely other than the ordinary lanes
_EMPTY: Final[tuple[object, ...]] = (
    None,
    "",
    [],
)  # settings that a record leaves out: their defaults say the same
_FOUND_OUT: Final = ("shards_in_use", "lanes_in_use", "drained", "uncounted_since")
"""The fields that the service finds out after a change of the settings."""


def to_record(queue: Queue) -> Record:
    """Return *queue* as a record."""
    usual = ["shards_ever"] if queue.shards_ever <= queue.shards_in_use else []
    usual += [name for name in _SELDOM if not getattr(queue, name)]
    usual += [name for name in _LANES if getattr(queue, name) == ORDINARY]
    body = body_of(queue, "name", "version", *usual)
    body["settings"] = {
        name: value for name, value in body["settings"].items() if value not in _EMPTY
    }
    return Record(KIND, queue.name, body, queue.version)


def from_record(record: Record) -> Queue:
    """Return the queue of *record*.  Raises NewerRecord."""
    stored = record.body
    body = {"shards_ever": stored["shards_in_use"], **stored, **_found_out(record)}
    body |= {name: body.get(name) or ORDINARY for name in _LANES}
    body["drained"] = body.get("drained") or ()
    return read_body(body, Queue, name=record.name, version=record.version)


def note_of(queue: Queue) -> str:
    """Return the note for the record of *queue*, with the fields that the service found out."""
    found = to_record(queue).body
    note = {name: found.get(name) for name in _FOUND_OUT}
    return json.dumps({"version": queue.version, **note})


def _found_out(record: Record) -> dict[str, Any]:
    """Return the content of the note on *record*, if it is about the current settings."""
    note: dict[str, Any] = json.loads(record.note) if record.note else {}
    if note.get("version") != record.version:
        return {}
    return {name: note[name] for name in _FOUND_OUT if name in note}


def alerts_record(queue: str, state: AlertState, version: int) -> Record:
    """Return *state* as the record of the alerts of *queue*."""
    body = body_of(state, "alerts")
    body["alerts"] = {str(name): body_of(alert) for name, alert in state.alerts.items()}
    return Record(ALERTS, queue, body, version)


def alerts_in(record: Record) -> AlertState:
    """Return the state that alerts_record() wrote."""
    return convert(record.body, AlertState)


def alerts_of(store: Store, queue: Queue) -> AlertState | None:
    """Return the alerts of *queue* as last written, or None if it has had none yet."""
    record = store.record(ALERTS, queue.name)
    state = None if record is None else alerts_in(record)
    return state if state is not None and state.epoch == queue.alerts_since else None


WORKERS: Final = "worker"


def worker_record(heartbeat: WorkerHeartbeat, now: datetime) -> Record:
    """Return a heartbeat of *now* as the record of its worker."""
    body = {**body_of(heartbeat, "name"), "seen_at": now.isoformat()}
    return Record(WORKERS, heartbeat.name, body, expires_at=now + REMEMBERED_FOR)


def worker_of(record: Record) -> LiveWorker:
    """Return the worker of *record*, with the command for it."""
    heartbeat = convert({**record.body, "name": record.name}, WorkerHeartbeat)
    seen_at = datetime.fromisoformat(record.body["seen_at"])
    if not record.note:
        return LiveWorker(heartbeat, seen_at)
    noted = (command for command in Command if record.note == command_note(command, heartbeat))
    return LiveWorker(heartbeat, seen_at, next(noted, None))


def command_note(command: Command, heartbeat: WorkerHeartbeat) -> str:
    """Return a command with the start of its process, because it is not for later processes."""
    return f"{command} {heartbeat.started_at.isoformat()}"


INDEXES: Final = "index"
_PAGE: Final = 100

KNOWN_AFTER: Final = timedelta(seconds=90)
"""The time after a change of the fields until every recorder uses the new fields."""


@dataclass(frozen=True, slots=True)
class QueueIndex:
    """The fields of a queue that are indexed, ``since`` they were last changed.

    The index is complete for ``ready`` fields; the entries of ``gone`` fields have to be removed.
    Fields in ``again`` are indexed again once all of their entries are removed.
    """

    queue: str
    fields: tuple[str, ...]
    since: datetime
    ready: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    version: int = 1
    again: tuple[str, ...] = ()

    def with_fields(self, fields: tuple[str, ...], now: datetime) -> "QueueIndex":
        """Return the index after a change of its fields to *fields*."""
        gone = {*self.gone, *self.fields} - {*fields}
        ready = tuple(field for field in self.ready if field in fields)
        return replace(
            self,
            fields=fields,
            since=now,
            ready=ready,
            gone=tuple(sorted(gone)),
            again=(),
        )

    def for_rebuild(self, now: datetime) -> "QueueIndex":
        """Return the index for a rebuild: as if its fields were removed, and added later.

        No recorder adds entries before that, so that the removal of entries comes to an end.
        """
        wanted = self.wanted
        return replace(self.with_fields((), now), again=wanted)

    @property
    def wanted(self) -> tuple[str, ...]:
        """The fields that will be indexed."""
        return self.again or self.fields

    @property
    def built(self) -> bool:
        """Whether there is nothing to do."""
        return not self.gone and not self.again and {*self.ready} == {*self.fields}


def index_record(index: QueueIndex) -> Record:
    """Return an index as a record."""
    usual = () if index.again else ("again",)
    return Record(INDEXES, index.queue, body_of(index, "queue", "version", *usual), index.version)


def index_in(record: Record) -> QueueIndex:
    """Return the index of *record*.  Raises NewerRecord."""
    return read_body(record.body, QueueIndex, queue=record.name, version=record.version)


def index_of(store: Store, queue: str) -> QueueIndex | None:
    """Return the index of *queue*, or None if it never had one."""
    record = store.record(INDEXES, queue)
    return None if record is None else index_in(record)


def every_index(store: Store) -> Mapping[str, QueueIndex]:
    """Return the index of every queue."""
    found = every_record(store, INDEXES, page=_PAGE)
    return {record.name: index_in(record) for record in found}


def change_index(store: Store, queue: str, fields: tuple[str, ...], now: datetime) -> None:
    """Store that *fields* of *queue* are indexed, and no other fields."""
    while True:
        index = index_of(store, queue)
        if index is None:
            if not fields:
                return
            new = QueueIndex(queue, fields, now)
            if store.put_record(index_record(new), replaces=None):
                return
        elif index.wanted == fields or save_index(store, index.with_fields(fields, now)):
            return


def build_anew(store: Store, queue: str, now: datetime) -> None:
    """Store that the index of *queue* is rebuilt, if it exists; may be repeated.

    A rebuild that is running starts again.
    """
    # The index has no fields for a while, so the reaper removes every entry: to add the missing
    # entries only would keep those of tasks that are gone, which nothing else knows.
    while (index := index_of(store, queue)) is not None:
        if save_index(store, index.for_rebuild(now)):
            return


def save_index(store: Store, index: QueueIndex) -> bool:
    """Write *index*, if the stored version is the one that was read."""
    record = index_record(replace(index, version=index.version + 1))
    return store.put_record(record, replaces=index.version)
