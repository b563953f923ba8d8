"""Instants as numbers, and lengths of time as people type them: ``90s``, ``2m``, ``1h30m``."""

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Final

from headrace.domain.limits import Bounds

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
MINUTE: Final = 60_000_000  # microseconds


def micros_of(instant: datetime) -> int:
    """Return *instant* in microseconds since 1970."""
    return (instant - EPOCH) // MICROSECOND


def instant_of(micros: float) -> datetime:
    """Return the instant so many microseconds after 1970 began."""
    return EPOCH + micros * MICROSECOND


_UNITS: Final = {
    "w": 604_800.0,
    "d": 86_400.0,
    "h": 3_600.0,
    "m": 60.0,
    "s": 1.0,
    "ms": 0.001,
}
_ORDER: Final = tuple(_UNITS)
_ALIASES: Final = {"min": "m"}
_NUMBER: Final = r"\d+(?:\.\d*)?(?:e\d+)?"
_PLAIN: Final = re.compile(_NUMBER, re.ASCII)
_PART: Final = re.compile(rf"({_NUMBER})\s*([a-z]+)\s*", re.ASCII)
_MINUTE: Final = 60
_WRITTEN: Final = (("d", 86_400), ("h", 3_600), ("m", _MINUTE))
_SHORT: Final = 120  # seconds below which they are duration_text as such
_LONGEST: Final = 64  # letters of a length of time

DURATION_EXAMPLES: Final = "90s, 2m, 1h30m or 14d"


def read_duration(text: str) -> int | float:
    """Return the seconds of a length of time; a plain number is seconds, ``min`` is ``m``.

    Units may be put together, the largest first.  Raises ValueError for anything else.
    """
    given = text.strip().lower()
    if len(given) <= _LONGEST:
        if _PLAIN.fullmatch(given):
            return _whole(float(given))
        total, at, before = 0.0, 0, -1
        while part := _PART.match(given, at):
            unit = _ALIASES.get(part[2], part[2])
            place = _ORDER.index(unit) if unit in _UNITS else -1
            if place <= before:
                break
            # In decimals: 0.1 of a minute is 6 seconds, and 1.1 of an hour no hair more than that.
            total += float(part[1]) / 1_000 if unit == "ms" else float(part[1]) * _UNITS[unit]
            at, before = part.end(), place
        if given and at == len(given):
            return _whole(round(total, 9))
    raise ValueError(f"{text!r:.80} must be a duration, for example {DURATION_EXAMPLES}")


def duration_fault(text: str, within: Bounds, *, whole: bool = False) -> str | None:
    """Return the duration_fault of *text* as a length of time *within* bounds of seconds.

    With *whole* it must be whole seconds.
    """
    try:
        seconds = read_duration(text)
    except ValueError:
        seconds = math.nan
    low, high = within
    if low <= seconds <= high and (not whole or isinstance(seconds, int)):
        return None
    seconds_ = "in whole seconds " if whole else ""
    span = f"{seconds_}from {duration_text(low)} to {duration_text(high)}"
    return f"must be a length of time {span}, such as {DURATION_EXAMPLES}, not {text!r:.80}"


LENGTHS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))
"""The units of a length of time in a sentence, in seconds."""


def about(seconds: float) -> str:
    """Return a length of time in one unit, rounded down: for text like "3 min ago"."""
    for length, unit in LENGTHS:
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds)} s"


def duration_text(seconds: float) -> str:
    """Return a length of time as it is typed; ``read_duration`` returns the same seconds for it."""
    if seconds == 0:
        return "0"
    if 0 < seconds < 1 and seconds * 1000 == round(seconds * 1000):
        return f"{round(seconds * 1000)}ms"
    if seconds < _SHORT and seconds != _MINUTE:
        return f"{_digits(seconds)}s"
    parts, left = [], seconds
    for unit, length in _WRITTEN:
        if left >= length:
            parts.append(f"{int(left // length)}{unit}")
            left = round(left % length, 9)
    if left:
        parts.append(f"{_digits(left)}s")
    return "".join(parts)


def _digits(number: float) -> str:
    return f"{number:.9f}".rstrip("0").rstrip(".") if number != int(number) else str(int(number))


def _whole(number: float) -> int | float:
    if not math.isfinite(number):
        raise ValueError("there is no end of it")
    return int(number) if number == int(number) else number


def whole_second(instant: datetime) -> datetime:
    """Return *instant* rounded up: DynamoDB's time to live has whole seconds."""
    past = instant.microsecond
    return instant + (timedelta(seconds=1) - past * MICROSECOND) if past else instant
