"""The fields of a task: one row says who sets a field, what clears it, and where it is shown.

Types and defaults are those of ``Task``.  The store's item, request bodies, answers, SDK checks,
CLI options, console pages, the lake and Spark's columns are made from these rows.
"""

from dataclasses import dataclass
from enum import Flag, auto
from functools import cache
from typing import Final

from headrace.domain import limits
from headrace.domain.limits import Bounds


class SetBy(Flag):
    """Requests that may set a field; the service sets all other fields."""

    SERVICE = 0
    ENQUEUE = auto()
    SPAWN = auto()
    CALLBACK = auto()  #: of a batch
    SCHEDULE = auto()
    REPORT = auto()
    OPERATOR = auto()


class ClearedBy(Flag):
    """Transitions that clear a field."""

    NOTHING = 0
    DELIVERY_END = auto()  #: a report or the end of the lease
    NEW_LIFE = auto()  #: a restart or a move by an operator
    MOVE = auto()  #: a move by a worker or an operator
    TOMBSTONE = auto()  #: the end of a task that is not retained


_MAKE: Final = SetBy.ENQUEUE | SetBy.SPAWN | SetBy.CALLBACK
_KEYED: Final = SetBy.ENQUEUE | SetBy.SPAWN
_NOTHING: Final = ClearedBy.NOTHING
_LEASE: Final = ClearedBy.DELIVERY_END | ClearedBy.TOMBSTONE
_FINISH: Final = ClearedBy.NEW_LIFE
_QUEUE: Final = ClearedBy.MOVE | ClearedBy.TOMBSTONE
_PROGRESS: Final = ClearedBy.NEW_LIFE | ClearedBy.MOVE | ClearedBy.TOMBSTONE
_TASK: Final = ClearedBy.TOMBSTONE


@dataclass(frozen=True, slots=True)
class TaskField:
    """One field of a task.

    ``api`` is its name in the API, if that is another.  General code shows texts that have a
    ``title``, and takes texts that have ``within``, their limits in bytes.  ``replayed`` fields are
    in the lake, where their queue keeps payloads; a replay sets them again.  ``for_event`` fields
    stay in a tombstone if another queue is notified of the end.
    """

    name: str
    cleared_by: ClearedBy = _NOTHING
    set_by: SetBy = SetBy.SERVICE
    api: str = ""
    title: str = ""
    help: str = ""
    within: Bounds | None = None
    replayed: bool = False
    for_event: bool = False

    @property
    def api_name(self) -> str:
        """The name of the field in the API."""
        return self.api or self.name

    def fault(self, value: object) -> str | None:
        """Return the fault of *value* as the text of this field."""
        low, high = self.within or (0, 0)
        return limits.text_fault(value, int(high), int(low))


TASK_FIELDS: Final = (
    TaskField("id", set_by=_KEYED),
    TaskField("place", _TASK),
    TaskField("scheduled_at", _TASK),
    TaskField("due_at", set_by=_MAKE | SetBy.REPORT | SetBy.OPERATOR, api="scheduled_at"),
    TaskField("created_at"),
    TaskField("enqueued_at"),
    TaskField("payload", _TASK, _MAKE | SetBy.SCHEDULE | SetBy.REPORT),
    TaskField("expires_at", _TASK, _MAKE),
    TaskField("retained_until", _FINISH),
    TaskField("returned_at"),
    TaskField("tags", _TASK, _MAKE | SetBy.SCHEDULE | SetBy.REPORT, replayed=True),
    TaskField(
        "dedupe_key",
        _QUEUE,
        _KEYED | SetBy.SCHEDULE,
        title="Dedupe key",
        help="no other task with this key is created while the task is live",
        within=limits.DEDUPE_KEY_BYTES,
    ),
    TaskField("schedule", title="Schedule", help="the schedule that created the task"),
    TaskField(
        "keepalive",
        _QUEUE,
        _MAKE | SetBy.SCHEDULE,
        api="keepalive_timeout_in_seconds",
        replayed=True,
    ),
    TaskField("retry", _QUEUE, _MAKE | SetBy.SCHEDULE, api="retry_strategy", replayed=True),
    TaskField("attempts"),
    TaskField("version"),
    TaskField("last_move"),
    TaskField("lease_id", _LEASE),
    TaskField("lease_expires_at", _LEASE),
    TaskField("lease_length", _LEASE),
    TaskField("worker", _TASK),
    TaskField("progress", _PROGRESS, SetBy.REPORT),
    TaskField("started_at"),
    TaskField("finished_at", _FINISH),
    TaskField("result", _FINISH | _TASK, SetBy.REPORT, for_event=True),
    TaskField("dead_reason", _FINISH, for_event=True),
    TaskField("errors", _TASK, SetBy.REPORT, for_event=True),
    TaskField("trail", _TASK),
    TaskField("settled_lease_id"),
    TaskField("settled_status"),
    TaskField("settled_digest"),
    TaskField("enqueue_token"),
    TaskField("slot", _TASK),
    TaskField("ended_in"),
    TaskField(
        "priority",
        _TASK,
        _MAKE | SetBy.SCHEDULE,
        title="Priority",
        help="high, normal or low, in a queue with priorities",
        replayed=True,
    ),
    TaskField("batches", set_by=_MAKE),
    TaskField("batch"),
    TaskField("deleted_by"),
    TaskField("deleted_from"),
    TaskField("deleted_retention"),
    TaskField("payload_ref", set_by=_KEYED),
    TaskField("result_ref"),
    TaskField("progress_ref"),
    TaskField(
        "group_key",
        _TASK,
        _MAKE,
        title="Group",
        help="the group of the task, in a queue with groups",
        within=limits.GROUP_KEY_BYTES,
        replayed=True,
    ),
    TaskField(
        "note",
        _TASK,
        _MAKE | SetBy.SCHEDULE,
        title="Note",
        help="a text for people that stays with the task",
        within=(0, 256),
        replayed=True,
    ),
    TaskField("turn", _TASK),
    TaskField("reports_end_of"),
    TaskField("after", _TASK),
    TaskField("on_expiry", _QUEUE, SetBy.SCHEDULE),
    TaskField("dedupe_until", _QUEUE, _KEYED | SetBy.SCHEDULE),
    TaskField("has_progress", _PROGRESS),
)

FIELD: Final = {field.name: field for field in TASK_FIELDS}
"""The rows by the names of their fields."""

TITLED: Final = tuple(field for field in TASK_FIELDS if field.title)
"""Texts that the CLI and the console show under their titles."""

REPLAYED: Final = tuple(field for field in TASK_FIELDS if field.replayed)
"""Fields that the lake keeps with a payload, and that a replay sets again."""


@cache
def fields_cleared_by(by: ClearedBy) -> tuple[str, ...]:
    """Return the names of the fields that the transition *by* clears."""
    return tuple(field.name for field in TASK_FIELDS if by in field.cleared_by)


@cache
def texts(by: SetBy) -> tuple[TaskField, ...]:
    """Return the texts with limits in bytes that the request *by* may set."""
    return tuple(field for field in TASK_FIELDS if field.within and by in field.set_by)
