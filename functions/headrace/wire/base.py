"""What all answers share: their base, how instants and raw JSON are written, and schema details.

The OpenAPI document is made from the same structs (``headrace.http.openapi``): the docstring of a
struct and the descriptions of its members are what the document says of them.
"""

import re
from datetime import datetime
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta

from headrace.domain.task import State

NULL: Final = b"null"
LEFT_OUT: Final[Any] = msgspec.UNSET
"""Given for a member of whatever type, it keeps the member out of the answer."""

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


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The base of every answer.  The service writes every member; an older one may not know all."""


def words_of(name: str) -> Meta:
    """Lets the document list the words of a member, by the *name* of their enum's schema.

    There may be more of them some day: programs that are older take any text.
    """
    return Meta(extra_json_schema={"$ref": REFERENCE.format(name=name)})


def nothing() -> msgspec.Raw:
    """The JSON of a payload, result or progress that is not in the answer."""
    return msgspec.Raw(NULL)


def raw(text: str | None) -> msgspec.Raw:
    """The JSON *text* as a member that is written exactly so; None is null."""
    return msgspec.Raw(text.encode() if text else NULL)


def word(value: str | None) -> Any:  # noqa: ANN401  a struct lists the words, msgspec writes the enum's
    """The word *value*, one of an enum's, as a member that has a list of them takes it."""
    return value


def instant(at: datetime | None) -> Any:  # noqa: ANN401  text where a struct has a datetime
    """The instant *at*, which is UTC, as an answer has it: with six digits for the microseconds.

    msgspec leaves them out where they are all 0, so such an instant goes in as text.
    """
    return at if at is None or at.microsecond else instant_text(at)


def instant_text(at: datetime) -> str:
    """The text of the instant *at*, which is UTC, as every answer writes it."""
    return f"{at.isoformat(timespec='microseconds')[:26]}Z"


_encode: Final = msgspec.json.Encoder().encode


def without_halves(text: bytes, mark: bytes) -> bytes:
    r"""The JSON *text* with *mark* for the backslash and the ``u`` of half a surrogate pair.

    ``"\ud800"`` is JSON by its grammar, so the service takes it in a payload and hands it out as it
    was written, but msgspec refuses all that surrounds it.
    """
    return _HALF_PAIR.sub(lambda found: mark + found[1] if found[1] else found[0], text)


def to_json(answer: object) -> str:
    """The text of *answer*."""
    return _encode(answer).decode()
