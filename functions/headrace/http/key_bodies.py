"""The body of requests about keys."""

from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, Field

from headrace.domain.access import Role
from headrace.http.fields import Body, text_within

KEY_NAME_BYTES: Final = 128
PATTERNS: Final = 100
PATTERN_BYTES: Final = 256

KeyName: TypeAlias = Annotated[str, AfterValidator(text_within(KEY_NAME_BYTES, 1))]
Pattern: TypeAlias = Annotated[str, AfterValidator(text_within(PATTERN_BYTES, 1))]


class CreateKeyBody(Body):
    """A new key: what it is called, what it is for, and where."""

    name: KeyName = Field(description="For people; the audit knows the key by it.")
    role: Annotated[Role, Field(strict=False)]
    queues: Annotated[list[Pattern], Field(min_length=1, max_length=PATTERNS)] = Field(
        description="Patterns of queues: `*` is any text, everything else is itself, and the whole "
        "name must match. `*` alone is every queue."
    )
