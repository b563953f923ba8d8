"""The schemas of answers in the OpenAPI document, made from the structs that are encoded."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from inspect import cleandoc
from typing import Any, Final, TypeAlias

import msgspec

from headrace.domain.access import Role
from headrace.domain.operate import ActionStatus, BulkAction
from headrace.domain.retry import RetryStrategy
from headrace.domain.task import SHOWN_STATES, DeadReason, ErrorKind
from headrace.domain.worker import Command
from headrace.history.counters import KEPT
from headrace.history.series import POINTS
from headrace.ops.delivery.reports import ReportOutcome
from headrace.ops.tasks.enqueue import EnqueueOutcome
from headrace.ops.tasks.explain import ReasonCode
from headrace.wire import actions, batches, queues, service, tasks
from headrace.wire.base import REFERENCE, JsonValue

Document: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Shown:
    """The schema of an answer, and its differences from the struct.

    Some members are *never* in it, some only *sometimes*. *refers* renames schemas that it refers
    to.
    """

    name: str
    answer: type[Any]
    never: frozenset[str] = frozenset()
    sometimes: frozenset[str] = frozenset()
    refers: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None


_SETTINGS: Final = {
    "DequeuingSettings": "DequeuingSettingsBody",
    "DeadLetterConfig": "DeadLetterBody",
}
_UPLOADED: Final = frozenset({"payload_url", "payload_bytes", "payload_sha256"})
_SOMETIMES: Final = _UPLOADED | {"dedupe_until", "last_progress"}
_ANSWERS: Final = (
    _Shown("Problem", service.Problem, sometimes=frozenset({"request_id"})),
    _Shown(
        "Queue",
        queues.Queue,
        never=frozenset({"stats", "schedules", "schedules_cursor"}),
        sometimes=frozenset({"pause"}),
        refers=_SETTINGS,
    ),
    _Shown(
        "QueueInFull",
        queues.Queue,
        sometimes=frozenset({"pause"}),
        refers=_SETTINGS,
        description="A queue, its settings, how it is doing, and its schedules.",
    ),
    _Shown("QueuePage", queues.Queues),
    _Shown(
        "Purged",
        queues.Purged,
        never=frozenset({"in_background"}),
        sometimes=frozenset({"undo"}),
    ),
    _Shown(
        "RetryStrategy",
        RetryStrategy,
        description="How often and when a failed task is tried again.",
    ),
    _Shown("Recount", queues.Recount),
    _Shown("SigningSecret", queues.SigningSecret),
    _Shown("Stats", queues.Stats),
    _Shown("Metrics", queues.Metrics),
    _Shown("Group", queues.Group),
    _Shown("Schedule", queues.Schedule, sometimes=frozenset({"payload"})),
    _Shown("SchedulePage", queues.ScheduleList),
    _Shown("Task", tasks.Task, sometimes=_SOMETIMES),
    _Shown(
        "TaskWithoutPayload",
        tasks.Task,
        never=frozenset({"payload"}) | _UPLOADED,
        sometimes=frozenset({"dedupe_until", "last_progress"}),
        description="A task as it stands.",
    ),
    _Shown("CancelledTask", tasks.CancelledTask, sometimes=_SOMETIMES),
    _Shown("LeasedTask", tasks.LeasedTask, sometimes=_SOMETIMES),
    _Shown("UploadGranted", tasks.UploadGranted),
    _Shown("TaskPage", tasks.Tasks, refers={"Task": "ShownTask"}),
    _Shown("Enqueued", tasks.Enqueued, refers={"Task": "TaskWithoutPayload"}),
    _Shown("EnqueueResults", tasks.EnqueueResults),
    _Shown("Dequeued", tasks.Dequeued),
    _Shown(
        "Reported",
        tasks.Reported,
        never=frozenset({"now"}),
        sometimes=frozenset({"dead_reason"}),
    ),
    _Shown("ReportResults", tasks.ReportResults),
    _Shown("TaskCount", tasks.Count),
    _Shown("Explained", tasks.Explained),
    _Shown("BulkDone", tasks.Bulk, sometimes=frozenset({"undo"})),
    _Shown("DeletedTask", tasks.DeletedTask),
    _Shown("ActionSeen", actions.ActionSeen),
    _Shown("ActionPage", actions.Actions),
    _Shown("Batch", batches.BatchSeen),
    _Shown("BatchPage", batches.Batches, refers={"BatchSeen": "Batch"}),
    _Shown("CancelledBatch", batches.CancelledBatch),
    _Shown("BatchSteps", batches.BatchSteps),
    _Shown("BatchRecount", batches.BatchRecount),
    _Shown("BatchResult", batches.BatchResult, sometimes=frozenset({"stands_for"})),
    _Shown("BatchResults", batches.BatchResults),
    _Shown("Leased", tasks.Leased, sometimes=frozenset({"cancelled"})),
    _Shown("NewKey", service.NewKey, never=frozenset({"last_used_at"})),
    _Shown("KeyInFull", service.KeyInFull),
    _Shown("KeyPage", service.Keys),
    _Shown(
        "AuditEntry", service.AuditEntry, sometimes=frozenset({"reason", "before", "after", "run"})
    ),
    _Shown("AuditEntries", service.AuditEntries),
    _Shown("Commanded", service.Commanded),
    _Shown("Worker", service.WorkerSeen),
    _Shown("WorkerPage", service.Workers, refers={"WorkerSeen": "Worker"}),
    _Shown("Health", service.Health),
    _Shown("Notification", tasks.Notification),
)
SCHEMA_OF: Final = {shown.answer: shown.name for shown in reversed(_ANSWERS)}
"""The name of the schema of an answer's type, the first if there are several."""

_IN_BODIES: Final = frozenset({*_SETTINGS, "RateLimiting"})
"""Schemas that the request bodies describe."""

_NUMBERS: Final = [{"type": "integer"}, {"type": "number"}]
_WORDS: Final[tuple[type[StrEnum], ...]] = (
    ActionStatus,
    BulkAction,
    Command,
    DeadReason,
    EnqueueOutcome,
    ErrorKind,
    ReasonCode,
    ReportOutcome,
    Role,
)
"""Enums of which answers have values.  Programs must accept other words too."""


def answer_schemas() -> Document:
    """Return the schemas of all answers, made from the structs that are encoded."""
    _, made = msgspec.json.schema_components(
        [*(shown.answer for shown in _ANSWERS), *_WORDS], ref_template=REFERENCE
    )
    structs = {shown.answer.__name__ for shown in _ANSWERS}
    others = [_Shown(name, object) for name in made.keys() - structs - _IN_BODIES]
    schemas = {shown.name: _schema(made[shown.name], shown) for shown in others} | {
        shown.name: _schema(made[shown.answer.__name__], shown) for shown in _ANSWERS
    }
    for name in ("stats", "schedules"):
        member = schemas["QueueInFull"]["properties"][name]
        member |= member.pop("anyOf")[0]  # the other is null
    schemas["Metrics"]["properties"]["points"] |= {
        "maxItems": POINTS,
        "description": f"The service keeps {KEPT.days} days; what is older comes from the lake. "
        "Where that has no rolled-up day, or there is no lake, every number is null.",
    }
    secret = schemas["NewKey"]["properties"]["secret"]
    secret["anyOf"] = [{"type": secret.pop("type")}, {"type": "null"}]
    secret["description"] += " Null in the answer to a repeat."
    schemas["State"]["enum"] = sorted(SHOWN_STATES)
    schemas["ShownTask"] = {
        "description": "A task, with its payload unless that was not asked for.",
        "anyOf": [{"$ref": REFERENCE.format(name=name)} for name in ("Task", "TaskWithoutPayload")],
    }
    return schemas


def _schema(schema: Document, shown: _Shown) -> Document:
    """Return the schema of an answer, with all members required and no others allowed."""
    schema = _plain(schema, shown.refers)
    text = shown.description or cleandoc(schema.get("description", ""))
    # Generators name a class by its title, so there are no two of the same.
    made = {**schema, "title": shown.name, "description": text.partition("\n\nShows ")[0]}
    if "properties" not in schema:
        return made
    members = {name: of for name, of in schema["properties"].items() if name not in shown.never}
    required = [name for name in members if name not in shown.sometimes]
    return {**made, "properties": members, "required": required, "additionalProperties": False}


def _plain(node: JsonValue, refers: Mapping[str, str]) -> JsonValue:
    """Return a schema without msgspec's defaults and with short types."""
    if isinstance(node, list):
        return [_plain(part, refers) for part in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        kept = {word: node[word] for word in node.keys() - {"enum", "type", "default"}}
        return kept | {"$ref": REFERENCE.format(name=refers.get(name, name))}
    if node.get("anyOf") == _NUMBERS:
        node = {**node, **_NUMBERS[1]}
        del node["anyOf"]
    if "enum" in node:
        node = {"type": "string", **node}
    return {word: _plain(part, refers) for word, part in node.items() if word != "default"}
