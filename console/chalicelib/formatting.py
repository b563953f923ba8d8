"""Numbers, lengths, sizes and times as people read them; the current time is an argument."""

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from headrace.domain.retry import RetryStrategy
from headrace.domain.task import TaskError
from headrace.domain.times import LENGTHS, about, duration_text

THIN: Final = "\u202f"  # a thin space that no line is broken at
_CUT: Final = 14  # letters of an id that are shown whole
_HEAD: Final = 6
_TAIL: Final = 6
_LEAST_RATE: Final = 0.01  # below it, a digit says nothing
_KIB: Final = 1024
_LONG: Final = 10**7  # a number that takes much room
_MINUTE: Final = 60
_TENTHS_MATTER: Final = 10  # seconds below which a tenth is shown


def number(value: float) -> str:
    """Return 1234567 as ``1 234 567``, with a fraction only where there is one."""
    if value != int(value):
        return f"{value:,.2f}".rstrip("0").rstrip(".").replace(",", THIN)
    return f"{int(value):,}".replace(",", THIN)


def short_number(value: int) -> str:
    """Return a short number: from ten million on three figures of it, rounded down.

    12345678 is ``12.3 M``.
    """
    if value < _LONG:
        return number(value)
    unit, size = ("G", 10**9) if value >= 10**9 else ("M", 10**6)
    places = max(0, 3 - len(str(value // size)))
    return f"{number(value * 10**places // size / 10**places)}{THIN}{unit}"


def round_number(value: float) -> str:
    """Return a short round number: 1500000 as ``1.5 M``."""
    value = round(value, 2)  # a third of something, three times
    for unit, size in (("G", 10**9), ("M", 10**6)):
        if value >= size:
            return f"{value / size:g}{THIN}{unit}"
    return number(value)


def rate(per_second: float) -> str:
    """Return events per second in three figures or so."""
    if per_second == 0:
        return "0"
    if per_second < _LEAST_RATE:
        return "< 0.01"
    if per_second >= _LONG:
        return short_number(int(per_second))
    places = max(0, 1 - math.floor(math.log10(per_second)))
    return number(round(per_second, min(2, places)))


def size(count: int) -> str:
    """Return bytes as B, KiB or MiB."""
    if count < _KIB:
        return f"{count} B"
    unit, per = ("KiB", _KIB) if count < _KIB**2 else ("MiB", _KIB**2)
    return f"{number(round(count / per, 1))} {unit}"


def duration(seconds: float) -> str:
    """Return a length of time in one or two units: 250 ms, 3.2 s, 5 min, 2 h 10 min, 3 d."""
    seconds = max(0.0, round(seconds, 3))
    if 0 < seconds < 1:
        return f"{round(seconds * 1000)} ms"
    if seconds < _TENTHS_MATTER and seconds != int(seconds):
        return f"{seconds:.1f} s"
    left = round(seconds)
    if left < _MINUTE:
        return f"{left} s"
    parts = []
    for length, unit in LENGTHS:
        if left >= length:
            parts.append(f"{left // length} {unit}")
            left %= length
        elif parts:
            break
    if not parts[1:] and left and parts[0].endswith("min"):
        parts.append(f"{left} s")
    return " ".join(parts[:2])


def age(seconds: float) -> str:
    """Return a length of time that grows, in whole minutes from a minute on."""
    whole = round(seconds)
    return duration(whole if whole < _MINUTE else whole // _MINUTE * _MINUTE)


def ago(at: datetime, now: datetime) -> str:
    """Return *at* as seen from *now*: ``in 3 min``, ``2 h ago``, ``now``."""
    seconds = (now - at).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{about(seconds)} ago" if seconds > 0 else f"in {about(-seconds)}"


def rfc3339(at: datetime) -> str:
    """Return *at* for a machine: RFC 3339, microseconds."""
    return f"{at.isoformat(timespec='microseconds')[:26]}Z"


def clock(at: datetime) -> str:
    """Return *at* for a person who wants to know exactly."""
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d} UTC"


def cut(text: str) -> str:
    """Return an id with its middle left out: its ends tell it from its neighbours."""
    return text if len(text) <= _CUT else f"{text[:_HEAD]}…{text[-_TAIL:]}"


def count_of(amount: int, one: str, many: str | None = None) -> str:
    """Return ``1 task`` or ``3 tasks``."""
    return f"{number(amount)} {one if amount == 1 else many or f'{one}s'}"


def retries(retry: RetryStrategy) -> str:
    """Return how often and when a failed task is retried."""
    if retry.max_retries == 0:
        return "none"
    few = min(3, retry.max_retries)
    if not any(retry.delay_seconds(n, 0.5) for n in range(1, few + 1)):
        return f"{retry.max_retries}, at once"
    shown = ", ".join(
        duration_text(round(retry.delay_seconds(n, 0.5), 3)) for n in range(1, few + 1)
    )
    more = ", …" if retry.max_retries > few else ""
    return f"{retry.max_retries}, after {shown}{more}"


def upon(verb: str, what: str) -> str:
    """Return a verb with its object: ``Restart 3 tasks``, and ``Run 3 tasks now``."""
    first, _, rest = verb.partition(" ")
    return " ".join(filter(None, (first, what, rest)))


def latest(errors: Sequence[TaskError], most: int) -> str:
    """Return the latest of a task's errors in a line of at most *most* letters."""
    return ": ".join(filter(None, (errors[-1].type, errors[-1].message)))[:most] if errors else ""


def sentence(text: str) -> str:
    """Return *text* as a sentence: a capital first, and something that ends it."""
    shown = text[:1].upper() + text[1:]
    return shown if shown.endswith((".", "?", "!")) else f"{shown}."
