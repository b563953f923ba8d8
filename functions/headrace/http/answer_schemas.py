"""The schemas of answers in the OpenAPI document, made from the structs that are encoded."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from inspect import cleandoc
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET
from msgspec.structs import fields

from headrace.domain.access import Role
from headrace.domain.operate import ActionStatus, BulkAction
from headrace.domain.task import SHOWN_STATES, DeadReason, ErrorKind
from headrace.domain.worker import Command
from headrace.history.counters import KEPT
from headrace.history.series import POINTS
from headrace.ops.delivery.reports import ReportOutcome
from headrace.ops.tasks.enqueue import EnqueueOutcome
from headrace.ops.tasks.explain import ReasonCode
from headrace.wire import actions, batches, queues, service, tasks
from headrace.wire.base import REFERENCE, Answer, JsonValue

Document: TypeAlias = dict[str, Any]


_NAMES: Final[Mapping[type[Answer], str]] = {
    actions.Actions: "ActionPage",
    batches.BatchSeen: "Batch",
    batches.Batches: "BatchPage",
    queues.Queues: "QueuePage",
    queues.ScheduleList: "SchedulePage",
    service.Keys: "KeyPage",
    service.WorkerSeen: "Worker",
    service.Workers: "WorkerPage",
    tasks.Bulk: "BulkDone",
    tasks.Count: "TaskCount",
    tasks.Tasks: "TaskPage",
}
"""The schemas that do not have the name of their struct."""

_BODIES: Final = {
    "DequeuingSettings": "DequeuingSettingsBody",
    "DeadLetterConfig": "DeadLetterBody",
    "RateLimiting": "RateLimitingBody",
}
"""The structs that are described by the schemas of request bodies."""

_REFERS: Final = {**_BODIES, **{answer.__name__: name for answer, name in _NAMES.items()}}
_ONLY_IN_FULL: Final = ("stats", "schedules", "schedules_cursor")
_PAYLOAD: Final = ("payload", "payload_url", "payload_bytes", "payload_sha256")

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


def schema_of(answer: type[Answer]) -> str:
    """Return the name of the schema of an answer."""
    return _NAMES.get(answer, answer.__name__)


def answer_schemas(answers: Iterable[type[Answer]]) -> Document:
    """Return the schemas of *answers* and of their parts, made from the structs."""
    structs = {*answers, service.Problem, tasks.Notification, *_WORDS}
    _, made = msgspec.json.schema_components(structs, ref_template=REFERENCE)
    unset = {
        struct.__name__: {one.encode_name for one in fields(struct) if one.default is UNSET}
        for struct in _structs(Answer)
    }
    schemas = {
        name: _schema(schema, name, unset.get(struct))
        for struct, schema in made.items()
        if struct not in _BODIES and (name := _REFERS.get(struct, struct))
    }
    schemas["QueueInFull"] = {
        **schemas["Queue"],
        "title": "QueueInFull",
        "description": "A queue with its settings, its statistics and its schedules.",
    }
    schemas["Queue"] = _without(schemas["Queue"], _ONLY_IN_FULL)
    schemas["TaskWithoutPayload"] = {
        **_without(schemas["Task"], _PAYLOAD),
        "title": "TaskWithoutPayload",
        "description": "A task without its payload.",
    }
    schemas["ShownTask"] = {
        "description": "A task, with its payload unless that was not asked for.",
        "anyOf": [_reference("Task"), _reference("TaskWithoutPayload")],
    }
    schemas["TaskPage"]["properties"]["tasks"]["items"] = _reference("ShownTask")
    schemas["Enqueued"]["properties"]["task"]["anyOf"][0] = _reference("TaskWithoutPayload")
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
    return schemas


def _schema(schema: Document, name: str, unset: Collection[str] | None) -> Document:
    """Return the schema of an answer; it allows no other members, and requires most of them.

    The members *unset* have the default UNSET.  None is for a class that is no answer: the first
    paragraph of its docstring describes it.
    """
    text = cleandoc(schema.get("description", "")).partition(
        "\n\n" if unset is None else "\n\nShows "
    )[0]
    # Generators name a class by its title, so there are no two of the same.
    made = {**_plain(schema), "title": name, "description": text}
    if "properties" not in schema:
        return made
    members = {
        member: of for member, of in made["properties"].items() if not of.pop("x-sdk-only", False)
    }
    sometimes = {member for member, of in members.items() if of.pop("x-sometimes", False)}
    required = [member for member in members if member not in {*sometimes, *(unset or ())}]
    return {**made, "properties": members, "required": required, "additionalProperties": False}


def _structs(base: type[Answer]) -> Iterator[type[Answer]]:
    for struct in base.__subclasses__():
        yield struct
        yield from _structs(struct)


def _without(schema: Document, names: Collection[str]) -> Document:
    """Return the schema of an answer without the members with these names."""
    members = {name: of for name, of in schema["properties"].items() if name not in names}
    required = [name for name in schema["required"] if name not in names]
    return {**schema, "properties": members, "required": required}


def _reference(name: str) -> Document:
    return {"$ref": REFERENCE.format(name=name)}


def _plain(node: JsonValue) -> JsonValue:
    """Return a schema without msgspec's defaults and with short types."""
    if isinstance(node, list):
        return [_plain(part) for part in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        kept = {word: node[word] for word in node.keys() - {"enum", "type", "default"}}
        return kept | _reference(_REFERS.get(name, name))
    if node.get("anyOf") == _NUMBERS:
        node = {**node, **_NUMBERS[1]}
        del node["anyOf"]
    if "enum" in node:
        node = {"type": "string", **node}
    return {word: _plain(part) for word, part in node.items() if word != "default"}
