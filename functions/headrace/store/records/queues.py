"""Records of queues and of their alerts."""

import json
from typing import Any, Final

from headrace.domain.alerts import AlertState
from headrace.domain.queue import Queue
from headrace.domain.task import ORDINARY
from headrace.domain.values import convert
from headrace.store.base import Record, Store
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
