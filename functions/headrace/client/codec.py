"""How payloads, results and progress become JSON text, and come back.

The default is plain JSON.  A codec of one's own can encrypt them end to end, so that the service
only ever sees ciphertext: `docs/how-to/encryption.md` has one.
"""

import json
import secrets
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

import msgspec

from headrace.wire.base import (
    Answer,
    Carrying,
    JsonValue,
    Unreadable,
    decode_json,
    remember_decoder,
    without_halves,
)

__all__ = ["PLAIN", "Codec", "JsonCodec", "JsonValue", "Unreadable", "decoded", "remember_codec"]


@runtime_checkable
class Codec(Protocol):
    """Turns values into JSON text and back; used for payloads, results and progress alike.

    ``private`` True says that what is encoded must not be seen in clear anywhere: workers then
    keep messages and tracebacks of errors to themselves.
    """

    private: bool

    def encode(self, value: object) -> bytes:
        """Return *value* as JSON text.  Raises TypeError or ValueError if that is impossible."""
        ...

    def decode(self, text: bytes) -> JsonValue:
        """Return the value of a JSON *text*.  Raises Unreadable."""
        ...


_written: Final = json.JSONEncoder(
    ensure_ascii=False,
    allow_nan=False,
    separators=(",", ":"),
    default=msgspec.to_builtins,
).encode


class JsonCodec:
    """JSON as the standard library writes it, whole numbers of any size included.

    Dataclasses, datetimes, UUIDs, enums, decimals and sets are written as `msgspec` would.
    """

    private = False

    def encode(self, value: object) -> bytes:
        """Return *value* as JSON text.

        Raises TypeError for what JSON has no word for, ValueError for NaN, infinities, and
        structures that contain themselves.
        """
        try:
            return _written(value).encode()
        except RecursionError as error:
            raise ValueError("the value is nested too deeply for JSON") from error
        except UnicodeEncodeError as error:
            raise ValueError("text holds half of a surrogate pair") from error

    def decode(self, text: bytes) -> JsonValue:
        """Return the value of a JSON *text*.

        Raises Unreadable where Python has no room for it: numbers of thousands of digits,
        thousands of levels.
        """
        return decode_json(text)


PLAIN: Final = JsonCodec()


def remember_codec(answer: Carrying, codec: Codec) -> None:
    """Let what *answer* carries, a task or a schedule, be read by *codec* from now on."""
    remember_decoder(answer, codec.decode)


# ------------------------------------------------------------- answers with half a surrogate pair

# ``"\ud800"`` is JSON by its grammar, so the service takes it in a payload and hands it out as it
# was written.  msgspec refuses a whole answer for it; here it is taken out before, and put back
# into the payload's own text after, so that it is the business of one task only.
T = TypeVar("T")
_CARRIED: Final = ("payload_json", "result_json", "progress_json", "last_progress_json")


def decoded(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Decode *body*, halves of pairs left where they are in payloads.

    Raises msgspec.DecodeError.
    """
    mark = secrets.token_hex(8).encode()
    answer = decoder.decode(without_halves(body, mark))
    put_back: T = _put_back(answer, mark)
    return put_back


def _put_back(value: JsonValue, mark: bytes) -> JsonValue:
    if isinstance(value, list):
        return [_put_back(entry, mark) for entry in value]
    if not isinstance(value, Answer):
        return value
    changed: dict[str, Any] = {
        name: _put_back(getattr(value, name), mark)
        for name in ("tasks", "results", "task")
        if hasattr(value, name)
    }
    if isinstance(value, Carrying):
        for name in _CARRIED:
            text = bytes(getattr(value, name, b""))
            if mark in text:
                changed[name] = msgspec.Raw(text.replace(mark, rb"\u"))
    return msgspec.structs.replace(value, **changed)
