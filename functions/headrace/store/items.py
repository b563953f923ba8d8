"""Tasks as DynamoDB items and back: instants in microseconds, ``ttl`` in seconds, JSON as text.

``FIELDS`` says for each field of a task under which attribute and in which form it is stored;
the statements of the senders are made from it too.  A dot leads into a map: all fields of the lease
are in one attribute, which is written as a whole, extended by its path, and removed as a whole.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from types import NoneType
from typing import Any, Final, TypeAlias, get_args, get_type_hints

from headrace.domain.change import Entry
from headrace.domain.retry import RetryStrategy
from headrace.domain.task import (
    BatchEnd,
    ErrorKind,
    Hop,
    Membership,
    OffloadedText,
    Place,
    State,
    Task,
    TaskError,
)
from headrace.domain.times import EPOCH, MICROSECOND, instant_of, micros_of
from headrace.domain.values import decoder
from headrace.store import keys

Value = dict[str, Any]  # one attribute in DynamoDB's own JSON, such as {"N": "5"}
Item = dict[str, Value]
Between: TypeAlias = tuple[int, int]
"""The first and the last microsecond of a span of time."""
EVER: Final[Between] = (-(2**63), 2**63 - 1)
READ_AT_ONCE: Final = 100
"""The number of tasks in one ``tasks`` call of a page reader: the limit of one BatchGetItem."""

_SECOND: Final = timedelta(seconds=1)

_dump: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def partition(place: Place) -> str:
    """Return the index partition of *place*: queue, state and label."""
    return f"{place.queue}#{place.state}#{place.label}"


def _place(text: str) -> Place:
    queue, state, label = text.split("#")
    return Place.labelled(queue, State(state), int(label))


def _number(text: str) -> int | float:
    return int(text) if text.lstrip("-").isdigit() else float(text)


def _error_text(error: TaskError) -> str:
    times = {"at": error.at, "started_at": error.started_at}
    stored = {**asdict(error), **{name: at and micros_of(at) for name, at in times.items()}}
    return _dump({name: value for name, value in stored.items() if name != "started_at" or value})


def _error(text: str) -> TaskError:
    stored = json.loads(text)
    times = {name: instant_of(stored[name]) for name in ("at", "started_at") if name in stored}
    return TaskError(**{**stored, **times, "kind": ErrorKind(stored["kind"])})


def _hop(text: str) -> Hop:
    queue, at = json.loads(text)
    return Hop(queue, instant_of(at))


def member(text: str) -> Membership:
    """Return the membership that *text* encodes."""
    batch, inherited, spawned = json.loads(text)
    return Membership(batch, bool(inherited), spawned)


def offloaded(text: str) -> OffloadedText:
    """Return the reference that *text* encodes."""
    size, digest, name = text.split(" ")
    return OffloadedText(name, int(size), digest)


def retry_text(retry: RetryStrategy) -> str:
    """Return *retry* as JSON, the way it is stored."""
    return _dump(asdict(retry))


_retry: Final = decoder(RetryStrategy).decode


@dataclass(frozen=True, slots=True)
class Form:
    """How one kind of value is stored."""

    encode: Callable[[Any], Value]
    decode: Callable[[Value], Any]


TEXT: Final = Form(lambda text: {"S": str(text)}, lambda value: value["S"])
INTEGER: Final = Form(lambda number: {"N": str(number)}, lambda value: int(value["N"]))
NUMBER: Final = Form(lambda number: {"N": str(number)}, lambda value: _number(value["N"]))
MICROS: Final = Form(
    lambda moment: {"N": str(micros_of(moment))}, lambda value: instant_of(int(value["N"]))
)
SECONDS: Final = Form(
    lambda moment: {"N": str((moment - EPOCH) // _SECOND)},
    lambda value: EPOCH + timedelta(seconds=int(value["N"])),
)
LENGTH: Final = Form(
    lambda length: {"N": str(length // MICROSECOND)},
    lambda value: timedelta(microseconds=int(value["N"])),
)
PLACE: Final = Form(lambda place: {"S": partition(place)}, lambda value: _place(value["S"]))
RETRY: Final = Form(lambda retry: {"S": retry_text(retry)}, lambda value: _retry(value["S"]))
FLAG: Final = Form(lambda flag: {"BOOL": bool(flag)}, lambda value: bool(value["BOOL"]))
TAGS: Final = Form(
    lambda tags: {"M": {key: {"S": text} for key, text in tags.items()}},
    lambda value: {key: text["S"] for key, text in value["M"].items()},
)
ERRORS: Final = Form(
    lambda errors: {"L": [{"S": _error_text(error)} for error in errors]},
    lambda value: tuple(_error(entry["S"]) for entry in value["L"]),
)
TRAIL: Final = Form(
    lambda trail: {"L": [{"S": _dump([hop.queue, micros_of(hop.at)])} for hop in trail]},
    lambda value: tuple(_hop(entry["S"]) for entry in value["L"]),
)
MEMBERS: Final = Form(
    lambda members: {
        "L": [{"S": _dump([one.batch, int(one.inherited), one.spawned])} for one in members]
    },
    lambda value: tuple(member(entry["S"]) for entry in value["L"]),
)
BATCH: Final = Form(
    lambda batch: {"S": _dump(asdict(batch))},
    lambda value: BatchEnd(**json.loads(value["S"])),
)
OFFLOADED: Final = Form(
    lambda one: {"S": f"{one.bytes} {one.sha256} {one.name}"},
    lambda value: offloaded(value["S"]),
)


def _word(words: type[StrEnum]) -> Form:
    return Form(lambda word: {"S": str(word)}, lambda value: words(value["S"]))


_ATTRIBUTES: Final = {
    "id": keys.TASK_ID,
    "place": keys.QUEUE_STATE,
    "scheduled_at": keys.SCHEDULED_AT,
    "due_at": keys.DUE_AT,
    "expires_at": keys.EXPIRES_AT,
    "lease_id": "lease.id",
    "lease_expires_at": "lease.expires_at",
    "lease_length": "lease.length",
    "retained_until": keys.TTL,
    "ended_in": keys.ENDED_IN,
    "group_key": keys.GROUP_KEY,
}
"""The attributes whose names differ from their fields."""

_SECONDS_FIELDS: Final = ("retained_until", "deleted_retention")
_FORMS: Final[dict[Any, Form]] = {
    str: TEXT,
    int: INTEGER,
    float: NUMBER,
    bool: FLAG,
    datetime: MICROS,
    timedelta: LENGTH,
    Place: PLACE,
    RetryStrategy: RETRY,
    BatchEnd: BATCH,
    OffloadedText: OFFLOADED,
    Mapping[str, str]: TAGS,
    tuple[TaskError, ...]: ERRORS,
    tuple[Hop, ...]: TRAIL,
    tuple[Membership, ...]: MEMBERS,
}
"""The form of each type of a task's fields; an enum is stored as its text."""


def _form_of(name: str, hint: Any) -> Form:  # noqa: ANN401 (a type)
    if name in _SECONDS_FIELDS:
        return SECONDS
    kinds = [one for one in get_args(hint) if one is not NoneType]
    kind = hint if hint in _FORMS or not kinds else float if float in kinds else kinds[0]
    return _word(kind) if isinstance(kind, type) and issubclass(kind, StrEnum) else _FORMS[kind]


FIELDS: Final[dict[str, tuple[str, Form]]] = {
    name: (_ATTRIBUTES.get(name, name), _form_of(name, hint))
    for name, hint in get_type_hints(Task).items()
}
MAPS: Final[dict[str, tuple[str, ...]]] = {
    "lease": tuple(name for name, (path, _) in FIELDS.items() if path.startswith("lease."))
}
"""The attributes that are maps of fields, and the fields in each."""

ATTRIBUTES: Final = tuple(dict.fromkeys(path.partition(".")[0] for path, _ in FIELDS.values()))
"""Every attribute of a task's item."""

_BY_PATH: Final = {path: (name, form) for name, (path, form) in FIELDS.items()}
_ALWAYS: Final = frozenset({"errors", "trail"})  # Spark reads empty lists, not nulls


_NOT_IN_TOMBSTONE: Final = frozenset({"place", "scheduled_at"})


def to_item(task: Task) -> Item:
    """Return *task* as an item, without the fields that are not set."""
    item: Item = {}
    for name, (path, form) in FIELDS.items():
        if task.ended_in is not None and name in _NOT_IN_TOMBSTONE:
            continue
        value = getattr(task, name)
        always = name in _ALWAYS if task.ended_in is None else bool(value)
        if value is not None and (always or value not in ({}, ())):
            attribute, _, part = path.partition(".")
            if part:
                item.setdefault(attribute, {"M": {}})["M"][part] = form.encode(value)
            else:
                item[attribute] = form.encode(value)
    return item


def from_item(item: Mapping[str, Value]) -> Task:
    """Return the task of *item*; unknown attributes are left out."""
    fields = {}
    for attribute, value in item.items():
        paths = {attribute: value}
        if attribute in MAPS:
            paths = {f"{attribute}.{part}": inner for part, inner in value["M"].items()}
        for path, inner in paths.items():
            known = _BY_PATH.get(path)
            if known is not None:
                name, form = known
                fields[name] = form.decode(inner)
    if "ended_in" in fields:
        fields |= {"place": fields["ended_in"], "scheduled_at": fields["finished_at"]}
    return Task(**fields)


def entry_from_item(item: Mapping[str, Value]) -> Entry:
    """Return the index entry of *item*."""
    expires, ttl, due = item.get(keys.EXPIRES_AT), item.get(keys.TTL), item.get(keys.DUE_AT)
    group = item.get(keys.GROUP_KEY)
    return Entry(
        item[keys.TASK_ID]["S"],
        PLACE.decode(item[keys.QUEUE_STATE]),
        MICROS.decode(item[keys.SCHEDULED_AT]),
        MICROS.decode(expires) if expires else None,
        SECONDS.decode(ttl) if ttl else None,
        MICROS.decode(due) if due else None,
        group["S"] if group else None,
        knows_group=True,
    )


def item_bytes(item: Mapping[str, Value]) -> int:
    """Return the size of *item* in bytes, as DynamoDB counts it.

    See "DynamoDB item sizes and formats" in Amazon's guide: a number takes one byte for every
    two digits and one more; a list or map takes three bytes, and one for each element.
    """
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def _value_bytes(value: Value) -> int:
    ((kind, content),) = value.items()
    if kind == "S":
        return len(str(content).encode())
    if kind == "BOOL":
        return 1
    if kind == "N":
        digits = len(str(content).strip("-0").replace(".", ""))
        return -(-digits // 2) + 1 + str(content).startswith("-")
    if kind == "L":
        return 3 + len(content) + sum(map(_value_bytes, content))
    return 3 + len(content) + item_bytes(content)
