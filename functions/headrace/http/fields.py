"""Types of the fields of requests: what they may hold, with error messages for people.

Values are not converted: ``"5"`` and ``true`` are no numbers, and an instant needs an offset.
Limits come from ``domain.limits``.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Final, LiteralString, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
    create_model,
)
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails, PydanticCustomError, core_schema

from headrace.domain import limits
from headrace.domain.settings import Kind, Setting, own_settings
from headrace.domain.task import Priority
from headrace.domain.task_fields import SetBy, TaskField, texts
from headrace.wire.base import JsonValue

TOO_LARGE: Final = "too_large"
"""The type of error that is a 413; all others are a 400."""

_INSTANT: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_YEARS: Final = (1970, 9998)  # room for a year's expiry behind the latest
CURSOR_LENGTH: Final = 8192  # of the longest we write: one position for each of 64 shards


Examples: TypeAlias = dict[str, Any]
"""Example bodies for the OpenAPI document; a test sends each of them."""


def example(summary: str, value: JsonValue) -> dict[str, Any]:
    return {"summary": summary, "value": value}


class RequestBody(BaseModel):
    """The base of every body: exact types, no unknown fields."""

    model_config = ConfigDict(strict=True, extra="forbid", defer_build=True)

    queue_fields: ClassVar[frozenset[str]] = frozenset({"queue", "to_queue", "queues"})
    """The fields that hold names or patterns of queues, which the key must be for."""

    @property
    def is_safe_to_repeat(self) -> bool:
        """Whether a repeat of the request needs no record of the first answer."""
        return False

    def __repr__(self) -> str:
        """Keep payloads out of logs."""
        return f"<{type(self).__name__}>"

    __str__ = __repr__


class QueryFields(RequestBody):
    """The base of models whose fields are parameters of the query, in the form of text."""

    model_config = ConfigDict(strict=False, validate_by_name=False, validate_by_alias=True)


class HeaderFields(QueryFields):
    """The base of models whose fields are headers of the request, by their aliases."""


def wrong(message: LiteralString, **values: str | float) -> PydanticCustomError:
    """Return the error that a check raises; *values* fill the braces of *message*."""
    return PydanticCustomError("wrong", message, values)


def contradiction(message: LiteralString, *fields: str) -> ValidationError:
    """Return the error of a body whose *fields* exclude each other."""
    return refusal(*((name, wrong(message)) for name in fields))


def refusal(*errors: tuple[str | int | None, PydanticCustomError]) -> ValidationError:
    """Return the error that names the faults in several places; None is the whole value."""
    return ValidationError.from_exception_data(
        "refusal",
        [
            InitErrorDetails(type=error, loc=() if place is None else (place,), input=None)
            for place, error in errors
        ],
    )


def faultless(find: Callable[[str], str | None]) -> Callable[[str], str]:
    """Return a check that raises the fault that *find* returns for a text."""

    def check(value: str) -> str:
        fault = find(value)
        if fault:
            raise wrong("{fault}", fault=fault)
        return value

    return check


def too_large(message: LiteralString, **values: str | float) -> PydanticCustomError:
    """Return the error of a value over its size; *values* fill the braces of *message*."""
    return PydanticCustomError(TOO_LARGE, message, values)


# ------------------------------------------------------------------------------------------ text


@dataclass(frozen=True, slots=True)
class TextWithin:
    """Annotate a text that has *least* to *most* bytes of UTF-8.

    OpenAPI counts characters, of which a text never has more than bytes.
    """

    most: int
    least: int = 0

    def __call__(self, value: str) -> str:
        """Return *value*. Raise the error that names its limit."""
        fault = limits.text_fault(value, self.most, self.least)
        if fault:
            raise wrong("{fault}", fault=fault)
        return value

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Check the text after its type."""
        return core_schema.no_info_after_validator_function(self, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Add the limits to the OpenAPI document."""
        least = {"minLength": 1} if self.least else {}
        return {**handler(schema), **least, "maxLength": self.most}


def _tags(value: object) -> object:
    """Check names, values and number together, so that the error names all faults."""
    if not isinstance(value, dict):
        return value  # its type is checked next
    faults = list(limits.tags_faults(value))
    if faults:
        raise refusal(*((key, wrong("{fault}", fault=fault)) for key, fault in faults))
    return value


TagValue: TypeAlias = Annotated[str, TextWithin(limits.TAG_VALUE_BYTES)]
GroupKey: TypeAlias = Annotated[
    str,
    TextWithin(limits.GROUP_KEY_BYTES[1], limits.GROUP_KEY_BYTES[0]),
]
Name: TypeAlias = Annotated[str, Field(pattern=f"^{limits.NAME}$")]
TaskId: TypeAlias = Annotated[str, Field(pattern=f"^{limits.TASK_ID}$")]
BatchId: TypeAlias = Annotated[str, Field(pattern=f"^{limits.TASK_ID}$")]
Tags: TypeAlias = Annotated[
    dict[str, str],
    BeforeValidator(_tags),
    Field(
        description=f"At most {limits.TAGS}, names of 1 to {limits.TAG_KEY_BYTES} bytes, "
        f"values of up to {limits.TAG_VALUE_BYTES}.",
        json_schema_extra={
            "maxProperties": limits.TAGS,
            "additionalProperties": {"type": "string", "maxLength": limits.TAG_VALUE_BYTES},
        },
    ),
]


# --------------------------------------------------------------------------------------- numbers


def _plain(value: float) -> int | float:
    """Return a whole number as int."""
    return int(value) if value.is_integer() else value


def zero_or(low: float, zero: str) -> Callable[[int | float], int | float]:
    """Return a check that a number is 0, which means *zero*, or at least *low*."""

    def check(value: float) -> int | float:
        if 0 < value < low:
            raise wrong("must be 0 ({zero}) or at least {low}", zero=zero, low=low)
        return value

    return check


def within(bounds: tuple[float, float], description: str | None = None) -> FieldInfo:
    """Return the limits of a number, with its description in the OpenAPI document."""
    made: FieldInfo = Field(
        ge=bounds[0], le=bounds[1], allow_inf_nan=False, description=description
    )
    return made


PLAIN: Final = AfterValidator(_plain)

Keepalive: TypeAlias = Annotated[float, within(limits.KEEPALIVE_SECONDS), PLAIN]
Delay: TypeAlias = Annotated[float, within(limits.DELAY_SECONDS), PLAIN]
UndoFor: TypeAlias = Annotated[
    float,
    within(
        limits.UNDO_SECONDS,
        "For how long `POST /v1/undos/{id}` may bring back what this deletes; 0: it is gone.",
    ),
    PLAIN,
]
Reason: TypeAlias = Annotated[
    str,
    TextWithin(limits.REASON_BYTES),
    WithJsonSchema({"type": "string", "maxLength": limits.REASON_BYTES}),
    Field(description="Why, in your words, for others to read."),
]
Level: TypeAlias = Annotated[Priority, Field(strict=False)]


# -------------------------------------------------------------------------------------- instants


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


Instant: TypeAlias = Annotated[
    datetime, PlainValidator(_instant), WithJsonSchema({"type": "string", "format": "date-time"})
]


Ignored: TypeAlias = Annotated[Any, Field(description="Accepted and ignored.")]


# --------------------------------------------------------- declarations of tasks and queue settings

_Body = TypeVar("_Body", bound=RequestBody)


def with_settings_of(shape: type) -> Callable[[type[_Body]], type[_Body]]:
    """Add the settings that *shape* declares to a body, except those that the body has itself."""

    def add(body: type[_Body]) -> type[_Body]:
        settings: dict[str, Any] = {
            one.name: _field(one)
            for one in own_settings(shape)
            if one.name not in body.model_fields
        }
        return _extended(body, settings)

    return add


def with_texts_of(request: SetBy) -> Callable[[type[_Body]], type[_Body]]:
    """Add the texts of a task that *request* may set, except those that the body has itself."""

    def add(body: type[_Body]) -> type[_Body]:
        return _extended(
            body,
            {
                one.api_name: (_text(one), None)
                for one in texts(request)
                if one.api_name not in body.model_fields
            },
        )

    return add


def _text(field: TaskField) -> Any:  # noqa: ANN401 (a type, with what checks it)
    low, high = field.within or (0, 0)
    description = f"{field.help[0].upper()}{field.help[1:]}. Up to {high} bytes."
    return Annotated[
        Annotated[str, TextWithin(int(high), int(low))] | None, Field(description=description)
    ]


def _extended(body: type[_Body], declared: dict[str, Any]) -> type[_Body]:
    return create_model(
        body.__name__,
        __base__=body,
        __module__=body.__module__,
        __doc__=body.__doc__,
        **declared,
    )


def _field(setting: Setting) -> tuple[Any, Any]:
    """Return the type and the default of *setting* in a body."""
    checked: Any = Annotated[(_type_of(setting), Field(description=setting.hint))]
    default: Any = ... if setting.required else setting.default
    return (checked | None if setting.nullable else checked), default


def _type_of(setting: Setting) -> Any:  # noqa: ANN401 (a type, with what checks it)
    low, high = setting.about.within
    match setting.kind:
        case Kind.TEXT:
            return Annotated[str, TextWithin(int(high), int(low))]
        case Kind.FLAG:
            return bool
        case Kind.WORD:
            return Annotated[(setting.words, Field(strict=False))]
        case Kind.WHOLE:
            return Annotated[int, within(setting.within)]
    number = Annotated[float, within(setting.within), PLAIN]
    if setting.within[0] < low:
        return Annotated[number, AfterValidator(zero_or(low, setting.about.zero))]
    return number
