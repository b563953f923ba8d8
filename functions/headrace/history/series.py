"""The series that charts of long ago are drawn from: one small file of the lake a queue and day.

Rollup writes them for whoever knows nothing of Spark or Parquet, beside its table
``queue_minutes``.  A day on which nothing happened in a queue has no file; which days are there at
all says the **span**, so that a day without a file is told from one that is not rolled up yet.

A file holds the hours of its day, each with the sum of its minutes and the minutes themselves, so
that whoever wants months reads two dozen sums of each day.  It holds at most 24 sums and 1,440
minutes, each a few hundred bytes, and is compressed; the same minutes are always the same bytes.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final

from headrace.history.tally import Activity

SERIES: Final = "series"
SPAN: Final = f"{SERIES}/span.json"
HOUR: Final = 60  # minutes
DAY: Final = 1440
_FORMAT: Final = 1
_EPOCH: Final = date(1970, 1, 1)
_LEVEL: Final = 6  # the highest takes nine times as long, for a twelfth less
_ODD: Final = (ValueError, KeyError, TypeError, AttributeError)  # JSON of another shape
_NOT_OURS: Final = (OSError, EOFError, zlib.error, *_ODD)

Minutes = Mapping[int, Activity]
"""What happened in each minute, counted since 1970."""


class Illegible(ValueError):
    """A file that is not what is written here."""


@dataclass(frozen=True, slots=True)
class Span:
    """The days that are rolled up: ``begin`` is the first, ``end`` the one after the last."""

    begin: date
    end: date

    @property
    def minutes(self) -> range:
        """Its minutes, counted since 1970."""
        return range(minute_of(self.begin), minute_of(self.end))

    def text(self) -> bytes:
        """Return it as it is kept."""
        return json.dumps({"begin": str(self.begin), "end": str(self.end)}).encode()

    @classmethod
    def of(cls, text: bytes) -> "Span":
        """Return the span that text() wrote.  Raises Illegible."""
        try:
            body = json.loads(text)
            return cls(date.fromisoformat(body["begin"]), date.fromisoformat(body["end"]))
        except _ODD as error:
            raise Illegible(SPAN) from error


def file_of(queue: str, day: date) -> str:
    """Return the name of a file in the lake; names of queues need no quoting."""
    return f"{SERIES}/queue={queue}/dt={day}.json.gz"


def minute_of(day: date) -> int:
    """Return the first minute of *day*, counted since 1970."""
    return (day - _EPOCH).days * DAY


def day_of(minute: int) -> date:
    """Return the day that *minute* is in."""
    return _EPOCH + timedelta(days=minute // DAY)


def content_of(minutes: Minutes) -> bytes:
    """Return the file of the *minutes* of one day."""
    hours: dict[str, Any] = {}
    sums: dict[str, Activity] = {}
    for minute in sorted(minutes):
        hour = str(minute // HOUR)
        sums.setdefault(hour, Activity()).merge(minutes[minute])
        hours.setdefault(hour, {})[str(minute % HOUR)] = minutes[minute].text()
    written = {hour: {"all": sums[hour].text(), "minutes": hours[hour]} for hour in hours}
    body = json.dumps({"format": _FORMAT, "hours": written}, separators=(",", ":"))
    return gzip.compress(body.encode(), _LEVEL, mtime=0)


def happened(
    content: bytes, together: Callable[[int, int], bool]
) -> Iterator[tuple[int, Activity]]:
    """Yield what a file's *content* says happened, by minute.

    An hour whose first and last minute *together* wants comes as one, at its first minute.
    Raises Illegible.
    """
    try:
        body = json.loads(gzip.decompress(content))
        if body["format"] != _FORMAT:
            raise Illegible(f"format {body['format']}")
        for name, hour in body["hours"].items():
            first = int(name) * HOUR
            if together(first, first + HOUR - 1):
                yield first, Activity.of(hour["all"])
                continue
            for place, text in hour["minutes"].items():
                yield first + int(place), Activity.of(text)
    except _NOT_OURS as error:
        raise Illegible(str(error)) from error
