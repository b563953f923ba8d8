"""The record of a queue's alerts: one a queue that has some, written when one changes."""

from headrace.domain.alerts import AlertState
from headrace.domain.queue import Queue
from headrace.shapes import convert
from headrace.store.base import Record, Store
from headrace.store.records import body_of
from headrace.store.records.queues import ALERTS


def to_record(queue: str, state: AlertState, version: int) -> Record:
    """Return *state* as the record of *queue*."""
    body = body_of(state, "alerts")
    body["alerts"] = {str(name): body_of(alert) for name, alert in state.alerts.items()}
    return Record(ALERTS, queue, body, version)


def from_record(record: Record) -> AlertState:
    """Return the state that to_record() wrote."""
    return convert(record.body, AlertState)


def state_of(store: Store, queue: Queue) -> AlertState | None:
    """Return the alerts of *queue* as last written; None for a queue that has had none yet."""
    record = store.record(ALERTS, queue.name)
    state = None if record is None else from_record(record)
    return state if state is not None and state.epoch == queue.alerts_since else None
