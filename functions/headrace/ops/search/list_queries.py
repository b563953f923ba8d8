"""What can be asked of each list besides that of tasks: its keys, and what they mean."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from headrace.domain import access, limits
from headrace.domain.access import Role, ShownKey
from headrace.domain.batch import TaskBatch
from headrace.domain.list_query import (
    ListKey,
    ListLanguage,
    at_or_after,
    called_function,
    contains,
    is_before,
    starts_with,
)
from headrace.domain.operate import ActionStatus, BulkAction
from headrace.domain.query_grammar import one_of, queue_name, since, task_id, text_of, yes_or_no
from headrace.domain.queue import Queue
from headrace.domain.schedule import Schedule
from headrace.domain.worker import LiveWorker, WorkerStanding
from headrace.ops.shared.audit import AuditRecord
from headrace.store.records.actions import Action

_TEXT: Final = text_of(limits.WORKER_BYTES)
_REASON: Final = text_of(limits.REASON_BYTES)


def batch_state(batch: TaskBatch, now: datetime) -> str:
    """Return the state of a batch in a word of ``BATCH_STATES``."""
    if batch.cancelled_at is not None:
        return "cancelled"
    if batch.finished_at is not None:
        return "finished"
    if batch.is_stalled(now):
        return "stalled"
    return "open" if batch.total is None else "running"


BATCH_STATES: Final = ("open", "running", "stalled", "finished", "cancelled")


def _of_key(wanted: str, pattern: str) -> bool:
    return access.covers(pattern, wanted)


def _actors(row: AuditRecord | Action) -> Iterator[str]:
    named = (row.actor, row.actor_id) if isinstance(row, AuditRecord) else (row.by, row.by_id)
    yield from (one for one in named if one)


def _some(*texts: str | None) -> Iterator[str]:
    return (text for text in texts if text)


def _audit_texts(entry: AuditRecord) -> Iterable[str]:
    return _some(entry.actor, entry.action, entry.queue, entry.reason, entry.run)


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """Tasks with the same error: the functions and the versions of the latest ones."""

    fingerprint: str
    type: str
    message: str
    functions: tuple[str, ...]
    queues: tuple[str, ...]
    versions: tuple[str, ...]


WORKERS: Final[ListLanguage[LiveWorker]] = ListLanguage(
    {
        "name": ListKey(_TEXT, lambda one, _: [one.heartbeat.name], contains),
        "host": ListKey(_TEXT, lambda one, _: [one.heartbeat.host]),
        "queue": ListKey(queue_name, lambda one, _: one.heartbeat.queues),
        "version": ListKey(_TEXT, lambda one, _: [one.heartbeat.version]),
        "state": ListKey(one_of(*WorkerStanding), lambda one, now: [one.standing(now).value]),
    },
    lambda one: (one.heartbeat.name, one.heartbeat.version, *one.heartbeat.queues),
)
"""Of workers, as far as the caller may see them."""

BATCHES: Final[ListLanguage[TaskBatch]] = ListLanguage(
    {
        "id": ListKey(task_id, lambda one, _: [one.id], starts_with),
        "state": ListKey(one_of(*BATCH_STATES), lambda one, now: [batch_state(one, now)]),
        "dead": ListKey(yes_or_no, lambda one, _: [one.dead > 0]),
        "queue": ListKey(queue_name, lambda one, _: one.queues),
    },
    lambda one: (one.id, *one.queues),
)
"""Of batches; ``dead:yes`` are those with dead members."""

SCHEDULES: Final[ListLanguage[Schedule]] = ListLanguage(
    {
        "name": ListKey(_TEXT, lambda one, _: [one.name], contains),
        "queue": ListKey(queue_name, lambda one, _: [one.queue]),
        "paused": ListKey(yes_or_no, lambda one, _: [one.settings.paused]),
        "task": ListKey(_TEXT, lambda one, _: [called_function(one.settings.payload)]),
    },
    lambda one: _some(one.name, one.queue, one.settings.cron),
)
"""Of schedules; ``task`` is the function that they call, if the caller may see payloads."""

KEYS: Final[ListLanguage[ShownKey]] = ListLanguage(
    {
        "name": ListKey(_TEXT, lambda one, _: [one.name], contains),
        "role": ListKey(one_of(*Role), lambda one, _: [one.role.value]),
        "queue": ListKey(queue_name, lambda one, _: one.queues, _of_key),
        "expired": ListKey(yes_or_no, lambda one, now: [one.is_expired(now)]),
    },
    lambda one: (one.name, one.prefix, *one.queues),
)
"""Of keys; ``queue`` is one that they are for."""

QUEUES: Final[ListLanguage[Queue]] = ListLanguage(
    {
        "name": ListKey(_TEXT, lambda one, _: [one.name], contains),
        "paused": ListKey(
            yes_or_no, lambda one, _: [one.settings.dequeuing_settings.dequeuing_paused]
        ),
    },
    lambda one: _some(one.name, one.settings.description),
)
"""Of queues."""

ACTIONS: Final[ListLanguage[Action]] = ListLanguage(
    {
        "action": ListKey(one_of(*BulkAction), lambda one, _: [one.action.value]),
        "queue": ListKey(queue_name, lambda one, _: one.touches),
        "actor": ListKey(_TEXT, lambda one, _: _actors(one)),
        "status": ListKey(
            one_of(*(status.lower() for status in ActionStatus)),
            lambda one, _: [one.status.lower()],
        ),
        "reason": ListKey(_REASON, lambda one, _: [one.reason], contains),
        "after": ListKey(since, lambda one, _: [one.started_at or one.as_of], at_or_after),
        "before": ListKey(since, lambda one, _: [one.started_at or one.as_of], is_before),
    },
    lambda one: _some(one.action.value, one.by, one.reason, *one.touches),
)
"""Of actions on many tasks; ``after`` and ``before`` are of when they began."""

AUDIT: Final[ListLanguage[AuditRecord]] = ListLanguage(
    {
        "action": ListKey(_TEXT, lambda one, _: [one.action]),
        "actor": ListKey(_TEXT, lambda one, _: _actors(one)),
        "queue": ListKey(queue_name, lambda one, _: _some(one.queue)),
        "id": ListKey(_TEXT, lambda one, _: (*(one.ids or ()), *(one.undos or ()))),
        "reason": ListKey(_REASON, lambda one, _: _some(one.reason), contains),
        "after": ListKey(since, lambda one, _: [one.at], at_or_after),
        "before": ListKey(since, lambda one, _: [one.at], is_before),
    },
    _audit_texts,
)
"""Of the audit."""

ERRORS: Final[ListLanguage[ErrorKind]] = ListLanguage(
    {
        "queue": ListKey(queue_name, lambda one, _: one.queues),
        "error": ListKey(
            text_of(limits.ERROR_BYTES), lambda one, _: [f"{one.type}: {one.message}"], contains
        ),
        "task": ListKey(_TEXT, lambda one, _: one.functions),
        "version": ListKey(_TEXT, lambda one, _: one.versions),
        "fingerprint": ListKey(_TEXT, lambda one, _: [one.fingerprint]),
    },
    lambda one: (f"{one.type}: {one.message}", *one.functions),
)
"""Of errors; ``task`` is the function of one of its samples, if the caller may see payloads."""

LANGUAGES: Final[dict[str, ListLanguage[Any]]] = {
    "workers": WORKERS,
    "workflows": BATCHES,
    "schedules": SCHEDULES,
    "keys": KEYS,
    "queues": QUEUES,
    "activity": AUDIT,
    "errors": ERRORS,
}
"""By the names of the lists."""
