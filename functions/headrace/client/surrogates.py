r"""Answers with half a surrogate pair in them.

``"\ud800"`` is JSON by its grammar, so the service takes it in a payload and hands it out as it
was written.  msgspec refuses a whole answer for it; here it is taken out before, and put back into
the payload's own text after, so that it is the business of one task only.
"""

import re
import secrets
from typing import Any, Final

import msgspec

from headrace.wire.base import Answer
from headrace.wire.carried import Carrying

_ESCAPE: Final = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair
    rb"|\\u([dD][89a-fA-F][0-9a-fA-F]{2})"  # half of one
    rb"|\\."
)
_CARRIED: Final = ("payload_json", "result_json", "progress_json")


def decoded(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:  # noqa: ANN401 (as asked for)
    """Decode *body*, halves of pairs left where they are in payloads.

    Raises msgspec.DecodeError.
    """
    mark = secrets.token_hex(8).encode()

    def taken_out(found: re.Match[bytes]) -> bytes:
        return found[0] if found[1] is None else mark + found[1]

    answer = decoder.decode(_ESCAPE.sub(taken_out, body))
    return _put_back(answer, mark)


def _put_back(value: Any, mark: bytes) -> Any:  # noqa: ANN401 (any part of an answer)
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
