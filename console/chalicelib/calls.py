"""What a payload asks for, in a line: the function and its arguments, as they were written."""

from dataclasses import dataclass
from typing import Final

import msgspec

_ARGUMENTS: Final = 80  # letters of all of them
_VALUE: Final = 24  # letters of one
_NAME: Final = 80  # letters of a function's name


@dataclass(frozen=True, slots=True)
class CallLine:
    """A function, empty where a payload is no call, and short arguments or the payload itself."""

    function: str
    arguments: str


class _Call(msgspec.Struct):
    """A payload as the SDK writes it; values stay letter by letter as they are."""

    task: str
    args: dict[str, msgspec.Raw] = {}


_reads: Final = msgspec.json.Decoder(_Call)


def call_line(payload: str | None) -> CallLine | None:
    """Return the line for a payload; None without one, or where it says nothing."""
    if payload is None:
        return None
    try:
        call = _reads.decode(str(payload))  # msgspec takes no subclass of str
    except (msgspec.DecodeError, RecursionError):
        said = _cut(" ".join(payload[: 4 * _ARGUMENTS].split()), _ARGUMENTS)
        return CallLine("", said) if said not in ("null", "{}") else None
    given = ", ".join(f"{name}={_cut(bytes(raw).decode(), _VALUE)}" for name, raw in _few(call))
    return CallLine(_cut(call.task, _NAME), f"({_cut(given, _ARGUMENTS)})")


def _few(call: _Call) -> list[tuple[str, msgspec.Raw]]:
    return list(call.args.items())[:_ARGUMENTS]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
