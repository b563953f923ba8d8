r"""JSON read so that a client's own values keep their text.

A payload belongs to its owner: ``1.10``, ``1E5``, ``"\u00e9"`` and integers of any length come
back as they were sent.  So the text of these values is cut out of the body, checked but not
converted; only what surrounds them is decoded.

The C scanner of the standard library does the work.  Python walks no further than the members of
the body, ``tasks[]``, ``reports[]`` and ``reports[].spawn[]``, where such values stand.
"""

import json
import re
from collections.abc import Callable, Mapping
from json.decoder import scanstring  # type: ignore[attr-defined]  # the C function
from json.encoder import encode_basestring
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

from headrace.domain.errors import FieldError, InvalidRequest

MEMBERS: Final = 100
"""The most members an object outside of payloads may have: far more than any we know."""


class JsonText(str):
    """The text of one JSON value, as it came in."""

    __slots__ = ()


NULL: Final = JsonText("null")

_T = TypeVar("_T")
_Reader: TypeAlias = Callable[[str, int], tuple[Any, int]]

_SPACE: Final = re.compile(r"[ \t\n\r]*").match
# A member up to its value; names with escapes take the long way.
_NAME: Final = re.compile(r'[ \t\n\r]*"([^"\\\x00-\x1f]*)"[ \t\n\r]*:[ \t\n\r]*').match
_AFTER: Final = re.compile(r"[ \t\n\r]*([,}\]])").match


def _no_constant(name: str) -> NoReturn:
    raise InvalidRequest(f"{name} is not JSON", errors=[FieldError("body", f"{name} is not JSON")])


def _bounded(members: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(members) > MEMBERS:
        raise _too_many_members()
    return dict(members)


_decode_value: Final[_Reader] = json.JSONDecoder(
    parse_constant=_no_constant, object_pairs_hook=_bounded
).raw_decode

# Checks without converting: a number stays the text it is.
_check_value: Final[_Reader] = json.JSONDecoder(
    parse_constant=_no_constant, parse_int=str, parse_float=str
).raw_decode


def decode(text: str) -> dict[str, Any]:
    """Return the object that *text* is, its payloads, results and progress as JsonText.

    Raises InvalidRequest for whatever is not one JSON object in the strict sense.
    """
    return _whole(text, lambda start: _object(text, start, _BODY))


def object_text(text: str) -> JsonText:
    """Return *text* without surrounding space.  Raises InvalidRequest if it is not one object."""
    return _whole(text, lambda start: _verbatim(text, start))


def _whole(text: str, read: Callable[[int], tuple[_T, int]]) -> _T:
    """Return the object that *text* is, read by *read*, with nothing behind it."""
    try:
        start = _space(text, 0)
        if text[start : start + 1] != "{":
            _check_value(text, start)  # what is no JSON at all gets its own message
            raise _refused("the body must be a JSON object")
        value, end = read(start)
        _at_end(text, end)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        message = f"the body is not JSON: {error.msg.lower()} at {where}"
        raise _refused(message) from None
    except ValueError:  # Python's own bound on the digits of an integer
        raise _refused("a number in the body has too many digits") from None
    except RecursionError:
        raise _refused("the body is nested too deeply") from None
    return value


def _at_end(text: str, end: int) -> None:
    if _space(text, end) != len(text):
        raise json.JSONDecodeError("Extra data", text, _space(text, end))


def member_text(text: str, name: str) -> JsonText | None:
    """Return the text of the member *name* of *text*, which is known to be JSON.

    None when it is no object, has no such member, or is nested too deeply to look.
    """
    start = _space(text, 0)
    if text[start : start + 1] != "{":
        return None
    try:
        found: JsonText | None = _object(text, start, {}, _verbatim, len(text))[0].get(name)
    except RecursionError:  # it was taken with more room on the stack
        return None
    return found


def shortest(text: JsonText, most: int) -> JsonText | None:
    """Return *text* without the space and the escapes that it can do without.

    None when that is longer than *most* characters, which is found out without going on to the
    end: what is refused costs by the limit, not by what was sent.
    """
    parts: list[str] = []
    length = at = 0
    for found in _SPACE_OR_STRING.finditer(text):
        parts += (text[at : found.start()], _shorter(found[1] or ""))
        length += found.start() - at + len(parts[-1])
        if length > most:
            return None
        at = found.end()
    parts.append(text[at:])
    return JsonText("".join(parts)) if length + len(parts[-1]) <= most else None


_SPACE_OR_STRING: Final = re.compile(r'[ \t\n\r]+|("[^"\\]*(?:\\.[^"\\]*)*")')


def _shorter(string: str) -> str:
    """Return a JSON *string* with the escapes only that it needs."""
    if "\\u" not in string and "\\/" not in string:
        return string
    plain: str = encode_basestring(scanstring(string, 1, True)[0])  # noqa: FBT003  strict; takes no keywords
    try:
        plain.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return string
    return plain


def _object(
    text: str,
    start: int,
    readers: Mapping[str, _Reader],
    other: _Reader = _decode_value,
    most: int = MEMBERS,
) -> tuple[dict[str, Any], int]:
    """Read the object at *start*, the members that *readers* names in their own way.

    *other* reads the rest; raises InvalidRequest for more than *most* members.
    """
    members: dict[str, Any] = {}
    at = _space(text, start + 1)
    if text[at : at + 1] == "}":
        return members, at + 1
    while True:
        found = _NAME(text, at)
        if found is not None:
            name, at = found[1], found.end()
        else:
            name, at = _name(text, at)
        members[name], at = readers.get(name, other)(text, at)
        if len(members) > most:
            raise _too_many_members()
        mark, at = _mark(text, at)
        if mark == "}":
            return members, at
        if mark != ",":
            raise json.JSONDecodeError("Expecting ',' delimiter", text, at - 1)


def _objects(readers: Mapping[str, _Reader]) -> _Reader:
    """Return a reader of an array of objects; what is something else is simply decoded."""

    def read(text: str, start: int) -> tuple[Any, int]:
        if text[start : start + 1] != "[":
            return _decode_value(text, start)
        values: list[Any] = []
        at = _space(text, start + 1)
        if text[at : at + 1] == "]":
            return values, at + 1
        while True:
            at = _space(text, at)
            if text[at : at + 1] == "{":
                value, at = _object(text, at, readers)
            else:
                value, at = _decode_value(text, at)
            values.append(value)
            mark, at = _mark(text, at)
            if mark == "]":
                return values, at
            if mark != ",":
                raise json.JSONDecodeError("Expecting ',' delimiter", text, at - 1)

    return read


def _verbatim(text: str, start: int) -> tuple[JsonText, int]:
    end = _check_value(text, start)[1]
    return JsonText(text[start:end]), end


def _name(text: str, start: int) -> tuple[str, int]:
    at = _space(text, start)
    if text[at : at + 1] != '"':
        message = "Expecting property name enclosed in double quotes"
        raise json.JSONDecodeError(message, text, at)
    name, at = scanstring(text, at + 1, True)  # noqa: FBT003  strict; takes no keywords
    at = _space(text, at)
    if text[at : at + 1] != ":":
        raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
    return name, _space(text, at + 1)


def _mark(text: str, start: int) -> tuple[str, int]:
    """Return the mark behind a value, ``,`` or a closing bracket, and where it ends."""
    found = _AFTER(text, start)
    if found is None:
        raise json.JSONDecodeError("Expecting ',' delimiter", text, _space(text, start))
    return found[1], found.end()


def _space(text: str, start: int) -> int:
    found = _SPACE(text, start)
    return found.end() if found else start


def _refused(message: str) -> InvalidRequest:
    return InvalidRequest(message, errors=[FieldError("body", message)])


def _too_many_members() -> InvalidRequest:
    return _refused(f"an object in the body has more than {MEMBERS} members")


_BODY: Final[Mapping[str, _Reader]] = {
    "payload": _verbatim,
    "tasks": _objects({"payload": _verbatim}),
    "reports": _objects(
        {
            "payload": _verbatim,
            "result": _verbatim,
            "progress": _verbatim,
            "spawn": _objects({"payload": _verbatim}),
        }
    ),
}
