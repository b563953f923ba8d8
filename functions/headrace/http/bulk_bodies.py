"""The bodies of bulk actions: by ids, or by filter."""

from typing import Annotated, Final, LiteralString

from pydantic import ConfigDict, Field, JsonValue, model_validator

from headrace.domain import limits
from headrace.http.fields import CURSOR_LENGTH, Body, Name, TaskId, contradiction
from headrace.http.filters import FilterBody

_MOST: Final = 1_000_000
_NULL: Final[dict[str, JsonValue]] = {"type": "null"}
_ONE_OF_TWO: Final[dict[str, JsonValue]] = {
    "oneOf": [
        {
            "required": ["ids"],
            "properties": {
                "ids": {"type": "array"},
                "filter": _NULL,
                "limit": _NULL,
                "cursor": _NULL,
            },
        },
        {
            "required": ["filter"],
            "properties": {"filter": {"type": "object"}, "ids": _NULL},
        },
    ]
}
"""What the validator below says, for the OpenAPI document."""


class BulkBody(Body):
    """The tasks that are meant: either those named, or exactly the filtered set."""

    model_config = ConfigDict(json_schema_extra=_ONE_OF_TWO)

    ids: Annotated[list[TaskId], Field(min_length=1, max_length=limits.BULK_IDS)] | None = Field(
        default=None, description="One result for each, in their order."
    )
    filter: FilterBody | None = Field(
        default=None, description="Instead of ids; `{}` is every task the action takes."
    )
    limit: Annotated[int, Field(ge=1, le=_MOST)] | None = Field(
        default=None, description="With a filter: the most tasks to act on."
    )
    cursor: Annotated[str, Field(max_length=CURSOR_LENGTH)] | None = Field(
        default=None, description="With a filter: as the call before gave it."
    )
    dry_run: bool = Field(default=False, description="Only tell what would be done.")

    @model_validator(mode="after")
    def _goes_together(self) -> "BulkBody":
        if (self.ids is None) == (self.filter is None):
            message: LiteralString = "give exactly one of ids and filter"
            raise contradiction(("ids", message), ("filter", message))
        if self.filter is not None:
            return self
        misplaced = [name for name in ("limit", "cursor") if getattr(self, name) is not None]
        if misplaced:
            only: LiteralString = "has no meaning with ids"
            raise contradiction(*((name, only) for name in misplaced))
        return self


class MoveBody(BulkBody):
    """The tasks that are meant, and where they go."""

    to_queue: Name = Field(description="Another queue.")
