"""Paths into a payload: ``order``, ``customer.id``, ``items.0."odd key"``.

A path leads to one value, as its text: a string as it is, a number letter by letter as it was
sent, true, false and null as these words.  Lists and objects have no text.
"""

import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

QUOTED: Final = r'"(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|[^"\\])*+"'
"""A text in quotes, as JSON has it; control characters may stand as they are."""

_PLAIN: Final = r'[^\s".:=,\\]++'
PATH: Final = rf"(?:{QUOTED}|{_PLAIN})(?:\.(?:{QUOTED}|{_PLAIN}))*"

_PART: Final = re.compile(rf"({QUOTED}|{_PLAIN})(?:\.|\Z)")
_PATH_RE: Final = re.compile(PATH)
_PLAIN_RE: Final = re.compile(_PLAIN)
_PLACE: Final = re.compile("[0-9]{1,6}", re.ASCII)


def unquoted(word: str) -> str:
    """Return the text of *word*, which may stand in quotes."""
    return str(json.loads(word, strict=False)) if word.startswith('"') else word


def quoted(word: str) -> str:
    """Return *word* in quotes, as JSON has it; what is not seen, or turns text round, escaped."""
    return "".join(
        sign if sign.isprintable() else json.dumps(sign)[1:-1]
        for sign in json.dumps(word, ensure_ascii=False)
    )


@lru_cache(256)
def parts_of(path: str) -> tuple[str, ...] | None:
    """Return the names that *path* consists of, None where it is no path."""
    if _PATH_RE.fullmatch(path) is None:
        return None
    return tuple(unquoted(found[1]) for found in _PART.finditer(path))


def path_of(parts: tuple[str, ...]) -> str:
    """Return the path of these names, each in quotes only where it must be."""
    return ".".join(
        one if _PLAIN_RE.fullmatch(one) and one.isprintable() else quoted(one) for one in parts
    )


def read_payload(payload: str | None) -> Any:  # noqa: ANN401  JSON
    """Return *payload* for ``text_at``, its numbers as texts; None where it is no JSON."""
    if payload is None:
        return None
    try:
        return json.loads(payload, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError):
        return None


def text_at(content: object, path: str) -> str | None:
    """Return the text to which *path* leads in *content*; None where there is none."""
    parts = parts_of(path)
    if parts is None or content is None:
        return None
    at = content
    for part in parts:
        step = _STEPS.get(type(at))
        if step is None:
            return None
        at = step(at, part)
    if at is None or isinstance(at, bool):
        return json.dumps(at)
    return at if isinstance(at, str) else None


_NOWHERE: Final = object()


def _in_list(values: list[Any], part: str) -> object:
    if not _PLACE.fullmatch(part) or int(part) >= len(values):
        return _NOWHERE
    return values[int(part)]


_STEPS: Final[dict[type, Callable[[Any, str], Any]]] = {
    dict: lambda content, part: content.get(part, _NOWHERE),
    list: _in_list,
}
