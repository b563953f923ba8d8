"""The bodies of requests about keys."""

from datetime import timedelta
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, Field

from headrace.domain import limits
from headrace.domain.access import Role, key_name_fault
from headrace.http.fields import Body, Instant, Overlap, text_within, wrong


def _key_name(name: str) -> str:
    fault = key_name_fault(name)
    if fault:
        raise wrong("{fault}", fault=fault)
    return name


KeyName: TypeAlias = Annotated[
    str, AfterValidator(text_within(limits.KEY_NAME_BYTES, 1)), AfterValidator(_key_name)
]
Pattern: TypeAlias = Annotated[str, AfterValidator(text_within(limits.PATTERN_BYTES, 1))]


class CreateKeyBody(Body):
    """A new key: what it is called, what it is for, and where."""

    name: KeyName = Field(
        description="For people; the audit knows the key by it, so no two living keys have the "
        "same."
    )
    role: Annotated[Role, Field(strict=False)]
    queues: Annotated[
        list[Pattern], Field(min_length=limits.PATTERNS[0], max_length=limits.PATTERNS[1])
    ] = Field(
        description="Patterns of queues: `*` is any text, everything else is itself, and the whole "
        "name must match. `*` alone is every queue."
    )
    expires_at: Instant | None = Field(
        default=None, description="When it stops working, in the future; null: never."
    )


class RotateKeyBody(Body):
    """How a key gets another secret."""

    overlap_seconds: Overlap = Field(
        default=0, description="How long the secret before works beside the new one."
    )

    @property
    def overlap(self) -> timedelta:
        """The same, as a length of time."""
        return timedelta(seconds=self.overlap_seconds)
