"""How payloads, results and progress become JSON text, and come back.

The default is plain JSON.  A codec of one's own can encrypt them end to end, so that the service
only ever sees ciphertext: `docs/guide/encryption.md` has one.
"""

import json
from typing import Final, Protocol, runtime_checkable

import msgspec

from headrace.wire.carried import JsonValue, Unreadable, decode_json

__all__ = ["PLAIN", "Codec", "JsonCodec", "JsonValue", "Unreadable"]


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
            return json.dumps(
                value,
                ensure_ascii=False,
                allow_nan=False,
                separators=(",", ":"),
                default=_plain,
            ).encode()
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


def _plain(value: object) -> JsonValue:
    """Say in JSON's words what the standard library has none for."""
    return msgspec.to_builtins(value)


PLAIN: Final = JsonCodec()
