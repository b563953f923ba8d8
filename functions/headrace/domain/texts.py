"""Texts from outside: names in quotes, paths into payloads, and what a terminal must not obey.

Task names, error texts and tags come from producers and workers.  A terminal would obey their
control characters, and bidirectional ones make a line read as another.
"""

import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

_UNSEEN: Final = re.compile(
    "\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # controls, but for tabs and new lines
    "\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"  # what reorders text, hides in it, or is half a pair
)


def amount(number: float, noun: str) -> str:
    """Return a number and its noun in the right form: ``1 second``, ``2,000 seconds``."""
    whole = int(number) if number == int(number) else number
    return f"{whole:,} {noun}" if whole == 1 else f"{whole:,} {noun}s"


def _backslashed(sign: str) -> str:
    return repr(sign)[1:-1]


def escape_unseen(text: str, spell: Callable[[str], str] = _backslashed) -> str:
    r"""Return *text* with each control, bidirectional or invisible character as *spell* writes it.

    By default as Python does: ``\x1b``, ``\u202e``.  Tabs, new lines and the joiners of scripts
    and emoji stay.
    """
    return _UNSEEN.sub(lambda found: spell(found[0]), text)


def json_escape(sign: str) -> str:
    r"""Return *sign* as a string of JSON may contain it: ``\u202e``."""
    units = sign.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


QUOTED: Final = r'"(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|[^"\\])*+"'
"""A text in quotes, as JSON has it; control characters may stand as they are."""

_PLAIN: Final = r'[^\s".:=,\\]++'
PATH: Final = rf"(?:{QUOTED}|{_PLAIN})(?:\.(?:{QUOTED}|{_PLAIN}))*"

_PART: Final = re.compile(rf"({QUOTED}|{_PLAIN})(?:\.|\Z)")
_PATH_RE: Final = re.compile(PATH)
_PLAIN_RE: Final = re.compile(_PLAIN)
_PLACE: Final = re.compile("[0-9]{1,6}", re.ASCII)


def unquoted(word: str) -> str:
    """Return the text of *word*, with or without quotes."""
    return str(json.loads(word, strict=False)) if word.startswith('"') else word


def quoted(word: str) -> str:
    """Return *word* in quotes, as JSON has it; invisible and reordering characters are escaped."""
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
    """Return the text at *path* in *content*, or None."""
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
