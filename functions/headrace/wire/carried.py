"""The values that tasks carry: raw JSON in the answer, decoded when a program first reads them.

So one that cannot be read here costs nobody else anything, and the service decodes none.
"""

import json
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from headrace.wire.base import NULL, Answer

JsonValue: TypeAlias = Any
"""What JSON can hold, as Python has it: a program knows more of its own than a type can say."""

Decode: TypeAlias = Callable[[bytes], JsonValue]


class Unreadable(ValueError):
    """A payload or result that this codec cannot read."""


class Carrying(Answer, frozen=True, kw_only=True, dict=True):
    """The base of answers with such values; each is decoded once, then kept."""

    def decoded(self, name: str, text: msgspec.Raw) -> JsonValue:
        """The value of *text*, of the member *name*.  Raises Unreadable."""
        known = self.__dict__
        if name not in known:
            content = bytes(text)
            decode: Decode = known.get("decode", decode_json)
            known[name] = None if content == NULL else decode(content)
        return known[name]


def remember_decoder(answer: Carrying, decode: Decode) -> None:
    """Let what *answer* carries be decoded by *decode* from now on."""
    answer.__dict__["decode"] = decode


def decode_json(text: bytes) -> JsonValue:
    """The value of a JSON *text*.

    Raises Unreadable where Python has no room for it: numbers of thousands of digits, thousands of
    levels.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"not JSON that can be read here: {error}") from error
