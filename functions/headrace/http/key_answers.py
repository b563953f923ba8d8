"""The shapes of answers about keys."""

from typing import Annotated

from pydantic import Field

from headrace.domain.access import Role
from headrace.http.answers import Answer, At, Cursor


class BareKey(Answer):
    """What a key and a new key have in common."""

    id: str
    name: str
    role: Role
    queues: Annotated[list[str], Field(description="Patterns of the queues it is for.")]
    prefix: Annotated[str, Field(description="How the secret begins, to know it by.")]
    created_at: At
    expires_at: Annotated[At | None, Field(description="When it stops working; null: never.")]


class NewKey(BareKey):
    """A key just made or rotated."""

    secret: Annotated[str, Field(description="The key itself, shown this once.")]


class Key(BareKey):
    """A key."""

    last_used_at: Annotated[At | None, Field(description="Right to the hour; null: never.")]


class Keys(Answer):
    """A page of keys, in the order they were made."""

    keys: list[Key]
    cursor: Cursor


SHOWN: tuple[type[Answer], ...] = (NewKey, Keys)
"""What routes name in their documented answers."""
