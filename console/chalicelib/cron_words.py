"""Schedules in plain words: the common shapes of cron, and intervals.  All else stays as it is.

Nothing is decided by these words; the runs shown beside them are the truth.

The library cron-descriptor (2.2) describes every expression, and one in seven wrongly: ``*/7`` is
not "every 7 minutes" at a full hour, and ``1#1,3#1`` loses its numbers.  So this module has a list
of forms that it describes, and a test has examples of both kinds.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from headrace.domain.times import duration_text

_DAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_NTH: Final = ("first", "second", "third", "fourth", "fifth")
_ALONE: Final[Mapping[float, str]] = {
    1: "second", 60: "minute", 3600: "hour", 86_400: "day", 604_800: "week",
}  # fmt: skip
_MOST: Final = 6  # of a list that is spelled out
_NUMBER: Final = re.compile(r"[0-9]{1,2}")
_STEP: Final = re.compile(r"\*/([0-9]{1,2})")
_LAST_DAY: Final = re.compile(r"([0-7])L")
_NTH_DAY: Final = re.compile(r"([0-7])#([1-5])")
_NEAREST: Final = re.compile(r"([0-9]{1,2})W")


def spoken(cron: str | None, every_seconds: float | None, zone: str) -> str:
    """Return when a schedule runs, in words, or the expression itself."""
    if cron is None:
        return f"every {_length(every_seconds or 0)}"
    text = _cron(cron.upper().split())
    where = "" if zone == "UTC" else f", {zone} time"
    return f"{text or cron}{where}"


def _length(seconds: float) -> str:
    """Return a length without its one: ``every minute``, not ``every 1 min``."""
    return _ALONE.get(seconds) or duration_text(seconds)


def _cron(fields: list[str]) -> str | None:
    if fields[6:] in (["*"], ["?"]):  # any year
        fields = fields[:6]
    match ["*" if field == "?" else field for field in fields]:
        case ["0", minute, hour, day, month, weekday] | [minute, hour, day, month, weekday]:
            pass
        case [second, "*", "*", "*", "*", "*"]:
            return _seconds(second)
        case _:
            return None
    days = _days(day, month, weekday)
    if days is None:
        return None
    within = "" if days == "every day" else f", {days}"
    if hour == "*":
        text = _within_the_hour(minute)
        return text and f"{text}{within}"
    every = _step(hour, 24)
    if every and _is_number(minute, 59):
        past = f" at {int(minute)} min past" if int(minute) else ""
        return f"every {every} hours{past}{within}"
    clock = _clock(hour, minute)
    return clock and f"{days} at {clock}"


def _seconds(second: str) -> str | None:
    if second == "*":
        return "every second"
    step = _step(second, 60)
    return f"every {step} seconds" if step else None


def _within_the_hour(minute: str) -> str | None:
    if minute == "*":
        return "every minute"
    if step := _step(minute, 60):
        return f"every {step} minutes"
    found = _numbers(minute, 59)
    if not found:
        return None
    if found == [0]:
        return "every hour"
    return f"every hour at {_listed([str(one) for one in found])} min past"


def _clock(hour: str, minute: str) -> str | None:
    hours, minutes = _numbers(hour, 23), _numbers(minute, 59)
    if not hours or not minutes or len(hours) * len(minutes) > _MOST:
        return None
    return _listed([f"{h:02}:{m:02}" for h in hours for m in minutes])


def _days(day: str, month: str, weekday: str) -> str | None:
    """Return on which days; cron joins a day of the month and a weekday by "or": left as it is."""
    if weekday != "*":
        return _weekdays(weekday) if (day, month) == ("*", "*") else None
    if month != "*":
        return _dates(day, month)
    return "every day" if day == "*" else _days_of_month(day)


def _dates(day: str, month: str) -> str | None:
    months, days = _named(month, _MONTHS, first=1), _numbers(day, 31)
    if not months or not days or len(months) * len(days) > _MOST:
        return None
    return f"on {_listed([f'{one} {name}' for name in months for one in days])}"


def _days_of_month(day: str) -> str | None:
    special = {"L": "the last day", "LW": "the last weekday"}.get(day)
    if near := _NEAREST.fullmatch(day):
        special = f"the weekday nearest to day {int(near[1])}"
    elif days := _numbers(day, 31):
        special = f"day{'s' if days[1:] else ''} {_listed([str(one) for one in days])}"
    return special and f"on {special} of the month"


def _weekdays(text: str) -> str | None:
    if text in ("1-5", "MON-FRI"):
        return "Monday to Friday"
    if last := _LAST_DAY.fullmatch(text):
        return f"on the last {_DAYS[int(last[1]) % 7]} of the month"
    if nth := _NTH_DAY.fullmatch(text):
        return f"on the {_NTH[int(nth[2]) - 1]} {_DAYS[int(nth[1]) % 7]} of the month"
    names = _named(text, _DAYS, first=0)
    return f"every {_listed(names)}" if names else None


def _named(text: str, names: Sequence[str], *, first: int) -> list[str]:
    """Return the names that a list means, by number or the first letters; none if it is more."""
    short = {name[:3].upper(): name for name in names}
    found = []
    for term in text.split(","):
        if term in short:
            found.append(short[term])
        elif _NUMBER.fullmatch(term) and first <= int(term) < len(names) + 1:
            found.append(names[(int(term) - first) % len(names)])
        else:
            return []
    return found


def _numbers(text: str, most: int) -> list[int]:
    terms = text.split(",")
    if len(terms) > _MOST or not all(_is_number(term, most) for term in terms):
        return []
    return sorted({int(term) for term in terms})


def _is_number(text: str, most: int) -> bool:
    return bool(_NUMBER.fullmatch(text)) and int(text) <= most


def _step(text: str, of: int) -> int | None:
    """Return the step of ``*/5`` where it goes on evenly from one hour or day to the next."""
    match = _STEP.fullmatch(text)
    step = int(match[1]) if match else 0
    return step if step > 1 and of % step == 0 else None


def _listed(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
