"""What a payload asks for in a line, and how far a task is by its progress."""

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from .formatting import number

_ARGUMENTS: Final = 80  # letters of all of them
_VALUE: Final = 24  # letters of one
_NAME: Final = 80  # letters of a function's name
_TOTALS: Final = ("of", "total", "count", "max")
_PERCENTS: Final = ("percent", "percentage", "pct")


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
    """Return the line for a payload; None for an empty payload."""
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


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a task is, from 0 to 1, and the same in words."""

    share: float
    words: str


def progress_of(text: str | None) -> Progress | None:
    """Return how far a task is, or None for a progress of an unknown form.

    Known are a percentage, a fraction such as 0.25, ``{"percent": 25}``,
    ``{"rows": 3, "of": 12}`` and ``{"part": 3, "parts": 12}``.
    """
    try:
        value: Any = msgspec.json.decode(str(text)) if text else None
    except (msgspec.DecodeError, RecursionError):
        return None
    if _is_number(value):
        return _percent(value * 100 if isinstance(value, float) and value <= 1 else value)
    if not isinstance(value, dict):
        return None
    numbers = {name: number for name, number in value.items() if _is_number(number)}
    for name in _PERCENTS:
        if name in numbers:
            return _percent(numbers[name])
    for total in (*_TOTALS, *(f"{name}s" for name in numbers)):
        rest = [name for name in numbers if name != total]
        if total in numbers and rest and 0 <= numbers[rest[0]] <= numbers[total]:
            done, most = numbers[rest[0]], numbers[total]
            words = f"{number(done)} of {number(most)}"
            what = "" if rest[0] in ("done", "current", "completed") else f" {rest[0]}"
            return Progress(done / most, f"{words}{what}") if most else None
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _percent(value: float) -> Progress | None:
    return Progress(value / 100, f"{number(round(value))} %") if 0 <= value <= 100 else None  # noqa: PLR2004
