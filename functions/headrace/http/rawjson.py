"""JSON that is read so that payloads keep their text.

A payload comes back exactly as it was sent: ``1.10``, ``1E5``, a backslash escape, integers of any
length. So the text of payloads, results and progress is cut out of the body (``msgspec.Raw``),
checked, and not converted. Only the rest of the body is decoded.
"""

import json
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from json.decoder import scanstring  # type: ignore[attr-defined]  # the C function
from json.encoder import encode_basestring
from typing import Annotated, Any, Final, TypeAlias, TypeVar, get_args, get_origin

import msgspec
from pydantic import AfterValidator, PlainValidator, WithJsonSchema

from headrace.domain import limits
from headrace.domain.errors import FieldError, InvalidRequest
from headrace.domain.limits import WEIGHTS, check_json
from headrace.http.fields import RequestBody, refusal, too_large, wrong
from headrace.wire.base import JsonValue, without_halves

MEMBERS: Final = 2 * WEIGHTS
"""The most members of an object outside of payloads: more than any body has."""

MEMBERS_IN_ALL: Final = 100_000
"""The most members of all objects outside of payloads: each of them may be an error."""

_NESTED: Final = 10_000
"""The most objects and arrays in a member outside of payloads: each takes a microsecond."""


class JsonText(str):
    """The text of one JSON value, as it came in."""

    __slots__ = ()


NULL: Final = JsonText("null")


@dataclass(slots=True)
class _BodyScan:
    """The state of reading one body.

    ``mark`` takes the place of the start of an escaped half of a surrogate pair; "" if there is
    none.
    """

    mark: str = ""
    members: int = 0


_T = TypeVar("_T")
_Source: TypeAlias = bytes | msgspec.Raw
_Reader: TypeAlias = Callable[[msgspec.Raw, _BodyScan], Any]

_members_of: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_entries_of: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_string_of: Final = msgspec.json.Decoder(str).decode
_whole_of: Final = msgspec.json.Decoder(msgspec.Raw).decode


def _bounded(members: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(members) > MEMBERS:
        raise _too_many_members()
    return dict(members)


_decode_value: Final = json.JSONDecoder(object_pairs_hook=_bounded).decode


def decode(text: str, model: type[RequestBody]) -> dict[str, Any]:
    """Return the object in *text*; what *model* declares as JsonText keeps its text.

    Raises InvalidRequest unless the text is exactly one JSON object.
    """
    return _object_of(text, lambda source, reading: _object(source, reading, _readers(model)))


def object_text(text: str) -> JsonText:
    """Return *text* without surrounding space. Raises InvalidRequest unless it is one object."""
    return _object_of(text, lambda source, reading: _text(_whole_of(source), reading))


def member_text(text: str, name: str) -> JsonText | None:
    """Return the text of the member *name* of *text*, which must be JSON.

    None if it is no object, has no such member, or is nested too deeply.
    """
    if not _is_object(text):
        return None

    def read(source: bytes, reading: _BodyScan) -> JsonText | None:
        found = _members_of(source).get(name)
        return None if found is None else _text(found, reading)

    try:
        return _read(text, read)
    except RecursionError:  # it was taken with more room on the stack
        return None


def _object_of(text: str, read: Callable[[bytes, _BodyScan], _T]) -> _T:
    """Return the only object in *text*, read with *read*."""
    try:
        if not _is_object(text):
            raise _no_object(text)
        return _read(text, read)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        message = f"the body is not JSON: {error.msg.lower()} at {where}"
        raise _refused(message) from None
    except RecursionError:
        raise _refused("the body is nested too deeply") from None


def _read(text: str, read: Callable[[bytes, _BodyScan], _T]) -> _T:
    r"""Return the value of *text*, read with *read*.

    msgspec does not report lines and columns, and refuses ``"\ud800"``, which is valid JSON.  So
    the standard library checks what msgspec refuses.  Halves of pairs are replaced before the text
    is read again, and restored in the values.

    Raises json.JSONDecodeError, RecursionError, and InvalidRequest for words like NaN.
    """
    source = text.encode(errors="backslashreplace")
    try:
        return read(source, _BodyScan())
    except msgspec.DecodeError:
        _judge(text)
    mark = secrets.token_hex(8)
    return read(without_halves(source, mark.encode()), _BodyScan(mark))


def _judge(text: str) -> None:
    """Raise json.JSONDecodeError if *text* is no JSON, InvalidRequest for words like NaN."""
    try:
        check_json(text)
    except json.JSONDecodeError:
        raise
    except ValueError as error:
        raise _refused(str(error)) from None


def _no_object(text: str) -> InvalidRequest:
    """Return the error for *text*, which is no object.

    Raises json.JSONDecodeError if it does not start with JSON.
    """
    try:
        _judge(text)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise
    return _refused("the body must be a JSON object")


def _is_object(text: str) -> bool:
    return text.lstrip(" \t\n\r").startswith("{")


def _object(source: _Source, reading: _BodyScan, readers: Mapping[str, _Reader]) -> dict[str, Any]:
    """Read an object; *readers* read the members with their names.

    Raises InvalidRequest if it, or all objects together, have too many members.
    """
    members = _members_of(source)
    if len(members) > MEMBERS:
        raise _too_many_members()
    reading.members += len(members)
    if reading.members > MEMBERS_IN_ALL:
        raise _refused(f"the objects in the body have more than {MEMBERS_IN_ALL:,} members")
    if not reading.mark:  # as nearly always
        return {name: readers.get(name, _value)(value, reading) for name, value in members.items()}
    return {
        _name(name, reading.mark): readers.get(name, _value)(value, reading)
        for name, value in members.items()
    }


@cache
def _readers(model: type[RequestBody]) -> Mapping[str, _Reader]:
    """Return the readers of the fields of *model* that keep their text, or whose parts do."""
    found = {name: _reader(field.annotation) for name, field in model.model_fields.items()}
    return {name: reader for name, reader in found.items() if reader is not None}


def _reader(annotation: object) -> _Reader | None:
    """Return the reader of a type, None for a type that is decoded as usual."""
    if annotation is JsonText:
        return _text
    if isinstance(annotation, type) and issubclass(annotation, RequestBody):
        readers = _readers(annotation)
        return partial(_one_object, readers=readers) if readers else None
    inner = next(filter(None, map(_reader, get_args(annotation))), None)
    return inner if inner is None or get_origin(annotation) is not list else partial(_array, inner)


def _one_object(
    value: msgspec.Raw, reading: _BodyScan, readers: Mapping[str, _Reader]
) -> JsonValue:
    """Read an object; other values are decoded."""
    return _object(value, reading, readers) if _begins(value, _OBJECT) else _value(value, reading)


def _array(read: _Reader, value: msgspec.Raw, reading: _BodyScan) -> JsonValue:
    """Read an array, each entry with *read*; other values are decoded."""
    if not _begins(value, _ARRAY):
        return _value(value, reading)
    entries = _entries_of(value)[: MEMBERS + 1]  # enough to be refused for their number
    return [read(entry, reading) for entry in entries]


_ARRAY, _OBJECT, _STRING = b'[{"'


def _begins(value: msgspec.Raw, sign: int) -> bool:
    return memoryview(value)[0] == sign  # there is no JSON of no signs


def _text(value: msgspec.Raw, reading: _BodyScan) -> JsonText:
    text = str(value, "utf-8")
    return JsonText(text.replace(reading.mark, r"\u") if reading.mark else text)


def _value(value: msgspec.Raw, reading: _BodyScan) -> JsonValue:
    if not reading.mark and memoryview(value)[0] == _STRING:
        return _string_of(value)
    text = _text(value, reading)
    if text.count("{") + text.count("[") > _NESTED:
        raise _refused(f"a member of the body has more than {_NESTED:,} objects and arrays")
    try:
        return _decode_value(text)
    except ValueError:  # Python's own bound on the digits of an integer
        raise _refused("a number in the body has too many digits") from None


def _name(name: str, mark: str) -> str:
    return re.sub(f"{mark}([0-9a-fA-F]{{4}})", lambda found: chr(int(found[1], 16)), name)


def shortest(text: JsonText, most: int) -> JsonText | None:
    """Return *text* without needless space and escapes, None if that is over *most* characters.

    It stops at *most*: the cost of refusing a text depends on the limit, not on the text.
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


_SPACE_OR_STRING: Final = re.compile(r'[ \t\n\r]++|("[^"\\]*+(?:\\.[^"\\]*+)*+")')


def _shorter(string: str) -> str:
    """Return a JSON *string* without needless escapes."""
    if "\\u" not in string and "\\/" not in string:
        return string
    plain: str = encode_basestring(scanstring(string, 1, True)[0])  # noqa: FBT003  strict; takes no keywords
    try:
        plain.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return string
    return plain


def _refused(message: str) -> InvalidRequest:
    return InvalidRequest(message, errors=[FieldError("body", message)])


def _too_many_members() -> InvalidRequest:
    return _refused(f"an object in the body has more than {MEMBERS} members")


# ---------------------------------------------------------------------------- types of fields


def _json_within(most: int, *, refused_alone: bool = False) -> Callable[[object], JsonText]:
    """Return a check that a value takes *most* bytes, written as short as it can be.

    With *refused_alone* one that takes more is let through: its entry is refused, and no other.
    """

    def check(value: object) -> JsonText:
        if not isinstance(value, JsonText):
            raise wrong("must be a JSON value of the request's body")
        size = limits.utf8_bytes(value)
        if size <= most:
            return value
        short = shortest(value, most)
        if short is not None and limits.utf8_bytes(short) <= most:
            return short
        if refused_alone:
            return value
        raise too_large("{fault}", fault=str(limits.json_fault(size, most)))

    return check


def _any_json(most: int, what: str) -> WithJsonSchema:
    return WithJsonSchema(
        {"description": f"Any JSON value, up to {most // limits.KIB} KiB; {what}."}
    )


def _calls_no_reserved_task(payload: JsonText) -> JsonText:
    if limits.reserved_task(payload):
        raise refusal(("task", wrong("{fault}", fault=limits.RESERVED_TASK)))
    return payload


Payload: TypeAlias = Annotated[
    JsonText,
    PlainValidator(_json_within(limits.PAYLOAD_BYTES)),
    AfterValidator(_calls_no_reserved_task),
    _any_json(
        limits.PAYLOAD_BYTES,
        "it is stored and handed out exactly as written, or where only that makes it fit, "
        "without needless spaces and escapes",
    ),
]
Result: TypeAlias = Annotated[
    JsonText,
    PlainValidator(_json_within(limits.RESULT_BYTES, refused_alone=True)),
    _any_json(
        limits.RESULT_BYTES, "kept with the finished task. A larger one makes its report INVALID"
    ),
]
Progress: TypeAlias = Annotated[
    JsonText,
    PlainValidator(_json_within(limits.PROGRESS_BYTES)),
    _any_json(limits.PROGRESS_BYTES, "shown until the next delivery"),
]
