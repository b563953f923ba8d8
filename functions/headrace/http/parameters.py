"""Parameters that several routes have: names in paths, pages, filters and queries of lists."""

from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from headrace.domain import limits
from headrace.domain.access import Permission, as_seen_by
from headrace.domain.errors import InvalidRequest
from headrace.domain.filters import STATE_WORDS, TaskFilter
from headrace.domain.list_query import EVERY_ROW, ListLanguage, ListQuery
from headrace.domain.query import narrow
from headrace.domain.query_grammar import FIELD
from headrace.domain.task import Task
from headrace.http.fields import (
    CURSOR_LENGTH,
    GroupKey,
    Instant,
    Level,
    QueryFields,
    RequestBody,
    Tags,
    TextWithin,
    refusal,
    wrong,
)
from headrace.http.request import principal
from headrace.ops.tasks.enqueue import missing_task
from headrace.runtime.wiring import current_service

QueueInPath: TypeAlias = Annotated[str, Field(description="The name of the queue.")]
TaskInPath: TypeAlias = Annotated[str, Field(description="The id of the task.")]
Limit: TypeAlias = Annotated[
    int, Field(ge=1, le=limits.LIST_PAGE, description="The most entries on a page.")
]
Cursor: TypeAlias = Annotated[
    str | None, Field(max_length=CURSOR_LENGTH, description="The cursor of the previous page.")
]
Flag: TypeAlias = Literal["true", "false"]
PayloadFlag: TypeAlias = Annotated[
    Literal["true", "false"] | None,
    Field(description="Viewers may not set it, and see neither results nor progress."),
]


def own_task(id: str) -> Task:
    """Return the task named in a path, as the key may see it.

    Raises NotFound, or Forbidden for a key that may not know whether it exists.
    """
    return as_seen_by(principal(), current_service().tasks.get(task_id(id)))


def task_id(id: str) -> str:
    """Return *id*.  Raises as own_task() for a text that cannot be an id."""
    if not limits.TASK_ID_RE.fullmatch(id):
        raise missing_task(id)
    return id


def shows_payload(value: str | None, *, by_default: bool) -> bool:
    """Tell whether to show payloads.

    Raises Forbidden if a key asks for payloads that it may not see.
    """
    if value == "true":
        principal().require(Permission.DETAILS)
    if value is None:
        return by_default and principal().may(Permission.DETAILS)
    return value == "true"


# -------------------------------------------------------------------------------- filters of tasks

_STATE_LENGTH: Final = 200


def _state_words(value: str) -> str:
    if any(word not in STATE_WORDS for word in value.split(",")):
        raise wrong("must be one or more of {words}, with commas between", words=_WORDS)
    return value


_WORDS: Final = ", ".join(STATE_WORDS)
_ONE: Final = f"({'|'.join(STATE_WORDS)})"
_TAG_SCHEMA: Final = {
    "type": "object",
    "propertyNames": {"pattern": r"^tag\..+$", "maxLength": 4 + limits.TAG_KEY_BYTES},
    "additionalProperties": {"type": "string", "maxLength": limits.TAG_VALUE_BYTES},
    "maxProperties": limits.TAGS,
    "example": {"tag.service": "smartcity"},
}
_STATES: Final = (
    "One or more with commas between: ENQUEUED, INFLIGHT, SUCCEEDED, DEAD, SCHEDULED, "
    "READY, pending (ENQUEUED and INFLIGHT), failed (DEAD), running (INFLIGHT)."
)
_TIME: Final = "by the time of its state: the due time, the first end of the lease, or the finish."

_QUERY: Final = (
    "The filter in the language of the console's search boxes, and more: `state:dead "
    'tag:tenant=acme tag:"a b"="c=d" error:Timeout payload.order:77 id:tsk_01 attempts:2 '
    "payload:acme task:mail.send version:2.1 worker:w1 group:acme priority:high "
    "fingerprint:0123456789abcdef after:1h before:2026-11-21T08:00Z`. A task must match all "
    "terms, and all other filters; a "
    "condition may not be given twice. `a OR b` matches either term, `-a` excludes one. Only keys "
    "that may see payloads can compare payloads."
)

_ANY_QUERY: Final = WithJsonSchema({"type": "string", "maxLength": limits.QUERY})
_States: TypeAlias = Annotated[
    str,
    Field(max_length=_STATE_LENGTH),
    AfterValidator(_state_words),
    WithJsonSchema(
        {"type": "string", "pattern": f"^{_ONE}(,{_ONE})*$", "maxLength": _STATE_LENGTH}
    ),
]
_Worker: TypeAlias = Annotated[str, TextWithin(limits.WORKER_BYTES, 1)]
_Error: TypeAlias = Annotated[str, TextWithin(limits.ERROR_BYTES, 1)]
_Attempts: TypeAlias = Annotated[int, Field(ge=limits.COUNT[0], le=limits.COUNT[1])]


class _Conditions(RequestBody):
    """The conditions that queries and bodies name alike."""

    state: _States | None = Field(default=None, description=_STATES)
    worker: _Worker | None = Field(
        default=None, description="The name of the worker of the last delivery."
    )
    scheduled_after: Instant | None = Field(default=None, description=f"Later than this, {_TIME}")
    scheduled_before: Instant | None = Field(
        default=None, description=f"Earlier than this, {_TIME}"
    )
    min_attempts: _Attempts | None = Field(
        default=None, description="Only tasks with at least this number of deliveries."
    )
    error: _Error | None = Field(
        default=None,
        description="A part of the type, message or detail of the last error, in any case.",
    )
    priority: Level | None = Field(default=None, description="Only tasks of this priority.")
    group_key: GroupKey | None = Field(default=None, description="Only tasks of this group.")

    def task_filter(self, queue: str | None = None) -> TaskFilter:
        """Return the filter of the domain, for *queue* or for several queues.

        Raises InvalidRequest that names ``query``.
        """
        named = dict(self)
        text, state, tags = named.pop(FIELD), named.pop("state"), named.pop("tags") or {}
        where = TaskFilter(
            states=tuple(state.split(",")) if state is not None else (),
            tags=dict(sorted(tags.items())),  # a cursor is valid for any order of them
            **named,
        )
        return where if text is None else narrow(text, where, queue)


class FilterQuery(_Conditions, QueryFields):
    """The tasks of a list or a count."""

    tags: Annotated[Tags, WithJsonSchema(_TAG_SCHEMA)] | None = Field(
        default=None,
        alias="tag.<key>",  # TAG_PARAMETER, which the plugin of mypy must see
        description="Has the tag `<key>` with exactly this value, for example "
        "`tag.service=smartcity`; any number of them, for different keys.",
    )
    query: Annotated[str, _ANY_QUERY] | None = Field(
        default=None,
        description=_QUERY,
        examples=["tag:tenant=acme error:Timeout payload.order:77"],
    )

    def of_queue(self, queue: str) -> TaskFilter:
        """Return the filter of the domain.

        Raises Forbidden if the query names a payload and the key may not see payloads.
        """
        where = self.task_filter(queue)
        if where.needs_payload:
            principal().require(Permission.DETAILS)
        return where


class FilterBody(_Conditions):
    """The tasks that match all conditions; `{}` is every task that the action can take."""

    tags: Tags | None = Field(default=None, description="Tasks that have all of these tags.")
    query: Annotated[str, _ANY_QUERY] | None = Field(
        default=None,
        description=f"{_QUERY} It may not name a queue, because the request does.",
    )

    @model_validator(mode="after")
    def _understood(self) -> "FilterBody":
        try:
            self.task_filter()
        except InvalidRequest as error:
            message = error.errors[0].message
            raise refusal((FIELD, wrong("{fault}", fault=message))) from None
        return self


# Queries of the other lists.

Row = TypeVar("Row")

_OF_A_LIST: Final = (
    "In the language of the console's search boxes, with the keys named above. A row must match "
    "all terms. A word without a key matches any text of a row, in any case. A page may be short "
    "or empty and still have a cursor."
)

ListQueryText: TypeAlias = Annotated[
    Annotated[str, _ANY_QUERY] | None,
    Field(description=_OF_A_LIST),
]


def asked(language: ListLanguage[Row], text: str | None) -> ListQuery[Row]:
    """Return the query *text* of a list. Raises InvalidRequest that names ``query``."""
    return EVERY_ROW if text is None else language.read(text)


def keys_of(language: ListLanguage[Any]) -> str:
    """Return a sentence that names the keys of a list's queries."""
    return f"`query` has the keys {', '.join(f'`{key}:`' for key in language.keys)}."
