"""What a field of a request may hold: types, sizes and ranges, each with a message for people.

Nothing is converted silently: ``"5"`` is no number, ``true`` is no number either, and an instant
without an offset is nobody's time.  Limits come from ``domain.limits``.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Final, LiteralString, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from headrace.domain import limits
from headrace.http.rawjson import JsonText

TOO_LARGE: Final = "too_large"
"""The type of error that is a 413; all others are a 400."""

_INSTANT: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_YEARS: Final = (1970, 9998)  # room for a year's expiry behind the latest


class Body(BaseModel):
    """The base of every body: exact types, no unknown fields."""

    model_config = ConfigDict(strict=True, extra="forbid")


def wrong(message: LiteralString, **values: str | float) -> PydanticCustomError:
    """Return the error that a check raises; *values* fill the braces of *message*."""
    return PydanticCustomError("wrong", message, values)


def contradiction(*errors: tuple[str, LiteralString]) -> ValidationError:
    """Return the error that a body raises for fields that do not go together."""
    return ValidationError.from_exception_data(
        "contradiction",
        [
            InitErrorDetails(type=PydanticCustomError("wrong", message), loc=(name,), input=None)
            for name, message in errors
        ],
    )


# ------------------------------------------------------------------------------------------ text


def text_within(most: int, least: int = 0) -> Callable[[str], str]:
    """Return a check that a text is *least* to *most* bytes of UTF-8."""

    def check(value: str) -> str:
        try:
            size = len(value) if value.isascii() else len(value.encode())
        except UnicodeEncodeError:
            raise wrong("must be text; it has half of a surrogate pair") from None
        if size > most:
            raise wrong("must be at most {most} bytes of UTF-8; it is {size}", most=most, size=size)
        if size < least:
            raise wrong("must not be empty")
        return value

    return check


def _tags(value: dict[str, str]) -> dict[str, str]:
    if len(value) > limits.TAGS:
        raise wrong("must have at most {most} tags; it has {count}", most=limits.TAGS, count=len(value))
    errors = []
    for key, text in value.items():
        for check, part in ((_tag_key, key), (_tag_value, text)):
            try:
                check(part)
            except PydanticCustomError as error:
                errors.append(InitErrorDetails(type=error, loc=(key,), input=None))
    if errors:
        raise ValidationError.from_exception_data("tags", errors)
    return value


_tag_key: Final = text_within(limits.TAG_KEY_BYTES, 1)
_tag_value: Final = text_within(limits.TAG_VALUE_BYTES)

Description: TypeAlias = Annotated[str, AfterValidator(text_within(limits.DESCRIPTION_BYTES))]
WorkerName: TypeAlias = Annotated[str, AfterValidator(text_within(limits.WORKER_BYTES))]
LeaseId: TypeAlias = Annotated[str, AfterValidator(text_within(limits.WORKER_BYTES))]
TagValue: TypeAlias = Annotated[str, AfterValidator(_tag_value)]
FreeText: TypeAlias = Annotated[str, AfterValidator(text_within(limits.BODY_BYTES))]
Name: TypeAlias = Annotated[str, Field(pattern=f"^{limits.NAME}$")]
TaskId: TypeAlias = Annotated[str, Field(pattern=f"^{limits.TASK_ID}$")]
Tags: TypeAlias = Annotated[
    dict[str, str],
    AfterValidator(_tags),
    Field(
        description=f"At most {limits.TAGS}, names of 1 to {limits.TAG_KEY_BYTES} bytes, "
        f"values of up to {limits.TAG_VALUE_BYTES}.",
    ),
]


# --------------------------------------------------------------------------------------- numbers


def _plain(value: float) -> int | float:
    """Give back a whole number as it was sent."""
    return int(value) if value.is_integer() else value


def _never_or(low: float) -> Callable[[int | float], int | float]:
    def check(value: float) -> int | float:
        if 0 < value < low:
            raise wrong("must be 0 (never) or at least {low}", low=low)
        return value

    return check


def _number(bounds: tuple[float, float], description: str | None = None) -> Any:  # noqa: ANN401  a type
    low, high = bounds
    field = Field(ge=low, le=high, allow_inf_nan=False, description=description)
    return Annotated[float, field, AfterValidator(_plain)]


def _count(bounds: tuple[int, int], description: str | None = None) -> Any:  # noqa: ANN401  a type
    return Annotated[int, Field(ge=bounds[0], le=bounds[1], description=description)]


Keepalive = _number(limits.KEEPALIVE_SECONDS)
Expiry = Annotated[
    _number((0, limits.EXPIRES_SECONDS[1]), "0: never."),
    AfterValidator(_never_or(limits.EXPIRES_SECONDS[0])),
]
Retention = _number(limits.RETENTION_SECONDS)
Delay = _number(limits.DELAY_SECONDS)
Wait = _number((0, limits.WAIT_SECONDS), "How long to wait for the first task.")
BaseSeconds = _number(limits.BASE_SECONDS)
RetryDelay = _number(limits.RETRY_DELAY_SECONDS)
Jitter = _number((0, 1), "0.1 spreads each wait between 90 % and 110 % of itself.")
PauseLength = Annotated[
    float,
    Field(gt=0, le=limits.PAUSE_SECONDS[1], allow_inf_nan=False),
    AfterValidator(_plain),
]
MaxRetries = _count(limits.MAX_RETRIES)
Shards = _count(limits.SHARDS)
Count = _count(limits.COUNT, "0: no limit.")
Tokens = _count((1, limits.COUNT[1]))
Interval = _count((1, 86_400))
Version = _count((1, 2**53))
BatchSize = _count((1, limits.BATCH))


# ------------------------------------------------------------------------------- instants, JSON


def _instant(value: object) -> datetime:
    if not isinstance(value, str) or not _INSTANT.fullmatch(value):
        raise wrong("must be an instant with an offset, like 2026-11-21T08:00:00Z (RFC 3339)")
    try:
        instant = datetime.fromisoformat(value.upper())
    except ValueError:
        raise wrong("must be an instant that exists") from None
    if not _YEARS[0] <= instant.year <= _YEARS[1]:
        raise wrong("must be in the years {first} to {last}", first=_YEARS[0], last=_YEARS[1])
    return instant.astimezone(UTC)


def _json_within(most: int) -> Callable[[object], JsonText]:
    def check(value: object) -> JsonText:
        if not isinstance(value, JsonText):
            raise wrong("must be a JSON value of the request's body")
        size = limits.utf8_bytes(value)
        if size > most:
            message: LiteralString = "must be at most {most} bytes of JSON text; it is {size}"
            raise PydanticCustomError(TOO_LARGE, message, {"most": most, "size": size})
        return value

    return check


def _json(most: int, what: str) -> Any:  # noqa: ANN401  a type
    description = f"Any JSON value, up to {most // limits.KIB} KiB; {what}."
    return Annotated[
        JsonText,
        PlainValidator(_json_within(most)),
        WithJsonSchema({"description": description}),
    ]


def _not_served(value: object) -> None:
    if value is not None and value != []:
        raise wrong("is not served by this version; leave it out")


Instant: TypeAlias = Annotated[
    datetime, PlainValidator(_instant), WithJsonSchema({"type": "string", "format": "date-time"})
]
Payload = _json(limits.PAYLOAD_BYTES, "it is stored and handed out exactly as written")
Result = _json(limits.RESULT_BYTES, "kept with the finished task")
Progress = _json(limits.PROGRESS_BYTES, "shown until the next delivery")
NotServed: TypeAlias = Annotated[
    None,
    PlainValidator(_not_served),
    WithJsonSchema({"type": "null", "description": "Reserved."}),
]
Ignored: TypeAlias = Annotated[Any, Field(description="Accepted and ignored.")]
