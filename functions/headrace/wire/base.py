"""The base of all answers: instants, raw JSON, and the values that tasks carry.

Payloads, results and progress are raw JSON in an answer.  The SDK decodes a value when the program
first reads it, so that an unreadable value affects no other task; the service decodes none.

The OpenAPI document is made from the same structs (``headrace.http.openapi``), with their
docstrings and the descriptions of their members.  A struct with the name of the class that it
shows ends with "Shows" and that class, which the document leaves out.
"""

import json
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any, Final, Self, TypeAlias

import msgspec
from msgspec import Meta

from headrace.domain.task import State, Task
from headrace.domain.task_fields import FIELD, TITLED

JsonValue: TypeAlias = Any
"""Any JSON value as Python has it."""

Decode: TypeAlias = Callable[[bytes], JsonValue]

Written: TypeAlias = Any
"""A value for a member that msgspec writes in its form, but reads as another type."""

NULL: Final = b"null"
LEFT_OUT: Final[Any] = msgspec.UNSET
"""The value of a member that the answer leaves out."""

_HALF_PAIR: Final = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair
    rb"|\\u([dD][89a-fA-F][0-9a-fA-F]{2})"  # half of one
    rb"|\\."
)
REFERENCE: Final = "#/components/schemas/{name}"

At: TypeAlias = Annotated[
    datetime,
    Meta(
        extra_json_schema={
            "format": "date-time",
            "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$",
            "example": "2026-11-21T08:00:00.000000Z",
        }
    ),
]
ByState: TypeAlias = Annotated[
    dict[State, int],
    Meta(extra_json_schema={"propertyNames": {"$ref": REFERENCE.format(name="State")}}),
]
Cursor: TypeAlias = Annotated[
    str | None, Meta(description="Send it back for the next page; null: this was the last.")
]


SOMETIMES: Final = Meta(extra_json_schema={"x-sometimes": True})
"""Marks a member that some answers leave out, like each member with the default UNSET."""

SDK_ONLY: Final = Meta(extra_json_schema={"x-sdk-only": True})
"""Marks a member that no answer has: the SDK fills it in."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The base of every answer.  Defaults are for answers of an older service."""

    @classmethod
    def of(cls, source: object, **others: Written) -> Self:
        """Return the answer about *source*: *others*, and the attributes with the other names."""
        names = [name for name in cls.__struct_fields__ if name not in others]
        return cls(**{name: _shown(getattr(source, name)) for name in names}, **others)


def _shown(value: Written) -> Written:
    return instant(value) if isinstance(value, datetime) else value


def words_of(name: str) -> Meta:
    """Let the document list the words of a member, by the *name* of their enum's schema.

    A later service may have more words, so programs accept any text.
    """
    return Meta(extra_json_schema={"$ref": REFERENCE.format(name=name)})


_NOTHING: Final = msgspec.Raw(NULL)


def nothing() -> msgspec.Raw:
    """Return the JSON of a payload, result or progress that is not in the answer."""
    return msgspec.Raw(NULL)


def raw(text: str | None) -> msgspec.Raw:
    """Return the JSON *text* as a member that the encoder writes as it is; None becomes null."""
    return msgspec.Raw(text.encode()) if text else _NOTHING


def word(value: str | None) -> Written:
    """Return *value*, a word of an enum, for a member that lists the words."""
    return value


def instant(at: datetime | None) -> Written:
    """Return *at*, which is UTC, for an answer, which has six digits of microseconds.

    msgspec leaves out microseconds that are 0, so such an instant is returned as text.
    """
    return at if at is None or at.microsecond else instant_text(at)


def instant_text(at: datetime) -> str:
    """Return the text of *at*, which is UTC, in the format of all answers."""
    return f"{at.isoformat(timespec='microseconds')[:26]}Z"


_encode: Final = msgspec.json.Encoder().encode


def without_halves(text: bytes, mark: bytes) -> bytes:
    r"""Return the JSON *text* with *mark* for the backslash and ``u`` of half a surrogate pair.

    ``"\ud800"`` is valid JSON, so the service keeps it in a payload as it was written.  msgspec
    refuses a text that contains it.
    """
    return _HALF_PAIR.sub(lambda found: mark + found[1] if found[1] else found[0], text)


def to_json(answer: object) -> str:
    """Return *answer* as JSON."""
    return _encode(answer).decode()


# --------------------------------------------------------------------------------- what tasks carry


class Unreadable(ValueError):
    """This codec cannot read a payload or result."""


class Carrying(Answer, frozen=True, kw_only=True, dict=True):
    """The base of answers with such values; each value is decoded once."""

    def decoded(self, name: str, text: msgspec.Raw) -> JsonValue:
        """Return the value of *text*, of the member *name*.  Raises Unreadable."""
        known = self.__dict__
        if name not in known:
            content = bytes(text)
            decode: Decode = known.get("decode", decode_json)
            known[name] = None if content == NULL else decode(content)
        return known[name]


def remember_decoder(answer: Carrying, decode: Decode) -> None:
    """Decode the values of *answer* with *decode* from now on."""
    answer.__dict__["decode"] = decode


def decode_json(text: bytes) -> JsonValue:
    """Return the value of a JSON *text*.

    Raises Unreadable for numbers with thousands of digits, and for thousands of levels.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"not JSON that can be read here: {error}") from error


MaxRetries: TypeAlias = Callable[[str], int]
"""Returns the retries that a queue allows, by its name."""


_SHOWN: Final = (
    *TITLED,
    *(FIELD[name] for name in ("attempts", "keepalive", "worker", "dead_reason")),
)
_AS_STORED: Final = tuple(field.api_name for field in _SHOWN)
_as_stored: Final = attrgetter(*(field.name for field in _SHOWN))


def task_members(
    task: Task,
    now: datetime,
    max_retries: MaxRetries,
    *,
    payload: bool,
    trail: Sequence[Answer],
    errors: Sequence[Answer],
    batch: Answer | None,
) -> dict[str, Any]:
    """Return the members of *task* as it stands at *now*; the last three as shown."""
    place, retry = task.place, task.retry
    return {
        **dict(zip(_AS_STORED, _as_stored(task), strict=True)),
        "id": task.id,
        "queue": place.queue,
        "state": place.state,
        "status": task.status(now),
        "payload_json": raw(task.payload) if payload else LEFT_OUT,
        "tags": dict(task.tags),
        "created_at": instant(task.created_at),
        "scheduled_at": instant(task.due_at),
        "expires_at": instant(task.expires_at),
        "max_retries": retry.max_retries if retry is not None else max_retries(place.queue),
        "lease_expires_at": instant(task.lease_expires_at),
        "progress_json": raw(task.own_progress),
        "started_at": instant(task.started_at),
        "finished_at": instant(task.finished_at),
        "result_json": raw(task.result),
        "errors": errors,
        "trail": trail,
        "retained_until": instant(task.retained_until),
        "batches": list(task.batch_ids),
        "batch": batch,
        "dedupe_until": task.dedupe_until or LEFT_OUT,
        "last_progress_json": raw(task.last_progress) if task.lease_id else LEFT_OUT,
    }
