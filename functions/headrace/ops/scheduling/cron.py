"""Cron expressions, read by cronsim; docs/decisions/0004-read-cron-with-cronsim.md says why.

cronsim knows five and six fields, names, lists, ranges, steps, ``L`` and ``#``.  Added are the
year, the nearest weekday (``15W``), and messages for people.
"""

import re
from calendar import SATURDAY, SUNDAY, monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Final, NoReturn

from cronsim import CronSim, CronSimError

from headrace.domain.errors import InvalidRequest

_LONGEST: Final = 256
_YEARS: Final = (1970, 2099)
_SECOND: Final = timedelta(seconds=1)
_NEAREST_WEEKDAY: Final = re.compile(r"(\d{1,2})W", re.ASCII)
_YEAR_TERM: Final = re.compile(r"(?:\*|(\d{4})(?:-(\d{4}))?)(?:/(\d{1,3}))?", re.ASCII)
_WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_HELP: Final = {
    "second": "0-59",
    "minute": "0-59",
    "hour": "0-23",
    "day-of-month": "1-31 (some month must have that day), L, LW or 15W",
    "month": "1-12 or JAN-DEC",
    "day-of-week": "0-7 (0 and 7 are Sunday), SUN-SAT, 5L or 5#2",
    "year": f"{_YEARS[0]}-{_YEARS[1]}",
}
_NAMES: Final = tuple(_HELP)
_SHAPE: Final = (
    "must have 5 fields (minute, hour, day of month, month, weekday), 6 with seconds before them, "
    "or 7 with the year behind them too"
)


class _Calendar(CronSim):
    """The local times of six fields; of the days nearest to those in *nearest* too."""

    def __init__(self, fields: tuple[str, ...], nearest: frozenset[int], after: datetime) -> None:
        second, minute, hour, day, *rest = fields
        super().__init__(" ".join((second, minute, hour, day or "1", *rest)), after)
        if not day:  # only the nearest weekdays were asked for
            self.days = set()
        self._nearest = nearest

    def match_dom(self, d: date) -> bool:
        """Return whether the day of the month matches."""
        return super().match_dom(d) or any(
            _nearest_weekday(d.year, d.month, day) == d.day for day in self._nearest
        )


@dataclass(frozen=True, slots=True)
class _CronExpression:
    """Implements ``headrace.domain.ticks.Cron``."""

    fields: tuple[str, ...]  # from the second to the weekday
    nearest: frozenset[int]
    years: tuple[int, ...] | None

    @property
    def by_the_clock(self) -> bool:
        _, minute, hour, *_ = self.fields
        return minute.startswith("*") or hour.startswith("*")

    def local_times(self, after: datetime) -> Iterator[datetime]:
        while True:
            for found in _Calendar(self.fields, self.nearest, after):
                if self.years is not None and found.year not in self.years:
                    break
                yield found
            else:
                return  # nothing in fifty years
            later = [year for year in self.years or () if year > found.year]
            if not later:
                return
            after = datetime(later[0], 1, 1) - _SECOND  # noqa: DTZ001  local time, in any zone


@lru_cache(maxsize=1024)
def read_cron(text: str) -> _CronExpression:
    """Read an expression.  Raises InvalidRequest naming ``cron`` and the field of it."""
    fields = text.upper().split()
    if len(text) > _LONGEST or not text.isascii():
        _refuse(f"must be at most {_LONGEST} characters of ASCII")
    if len(fields) not in (5, 6, 7):
        _refuse(f"{_SHAPE}; it has {len(fields)}")
    years = _years(fields.pop()) if len(fields) == 7 else None  # noqa: PLR2004  as above
    if len(fields) == 5:  # noqa: PLR2004  as above
        fields.insert(0, "0")
    given = dict(zip(_NAMES, fields, strict=False))
    for place in (3, 5):  # Quartz writes a question mark for "any day"
        fields[place] = "*" if fields[place] == "?" else fields[place]
    fields[5] = _weekdays(fields[5])
    fields[3], nearest = _days(fields[3])
    expression = _CronExpression(tuple(fields), nearest, years)
    try:
        _Calendar(expression.fields, nearest, datetime(2000, 1, 1))  # noqa: DTZ001  only to check it
    except CronSimError as error:
        name = str(error).removeprefix("Bad ")
        _refuse_field(name, given.get(name, text))
    return expression


def cron_in_words(text: str) -> str:
    """Return the times of an expression in words; *text* itself where cronsim has none."""
    found = read_cron(text)
    if found.years is not None or found.nearest:
        return text
    second, *others = found.fields
    given = " ".join(others if second == "0" else found.fields)
    words = CronSim(given, datetime(2000, 1, 1)).explain()  # noqa: DTZ001  only to read it
    return words[:1].lower() + words[1:]


def _days(text: str) -> tuple[str, frozenset[int]]:
    """Take the terms like ``15W`` out of a list."""
    terms = text.split(",")
    found = {term: match for term in terms if (match := _NEAREST_WEEKDAY.fullmatch(term))}
    nearest = frozenset(int(match[1]) for match in found.values())
    if "" in terms or any(not 1 <= day <= 31 for day in nearest):  # noqa: PLR2004  of a month
        _refuse_field("day-of-month", text)
    return ",".join(term for term in terms if term not in found), nearest


def _weekdays(text: str) -> str:
    """Write ``FRIL`` as ``5L``, and the Sunday that ends a range as 7."""
    text = re.sub(r"(?<!SUN)-SUN", "-7", text)
    for number, name in enumerate(_WEEKDAYS):
        text = text.replace(f"{name}L", f"{number}L")
    return text


def _years(text: str) -> tuple[int, ...] | None:
    if text in ("*", "?"):
        return None
    years: set[int] = set()
    for term in text.split(","):
        match = _YEAR_TERM.fullmatch(term)
        if match is None:
            _refuse_field("year", text)
        first, last, step = match.groups()
        start = int(first or _YEARS[0])
        end = int(last) if last else start if first and not step else _YEARS[1]
        if not _YEARS[0] <= start <= end <= _YEARS[1] or step in ("0", "00", "000"):
            _refuse_field("year", text)
        years.update(range(start, end + 1, int(step or 1)))
    return tuple(sorted(years))


def _nearest_weekday(year: int, month: int, day: int) -> int | None:
    """Return the weekday nearest to a day, in its month; None if the month has no such day."""
    last = monthrange(year, month)[1]
    if day > last:
        return None
    weekday = date(year, month, day).weekday()
    if weekday == SATURDAY:
        return day - 1 if day > 1 else day + 2
    if weekday == SUNDAY:
        return day + 1 if day < last else day - 2
    return day


def _refuse_field(name: str, text: str) -> NoReturn:
    _refuse(f"has {text[:80]} as its {name}, which takes {_HELP[name]}, with lists, ranges, steps")


def _refuse(message: str) -> NoReturn:
    raise InvalidRequest.of("cron", message)
