"""The series that charts of long ago are drawn from: at most 64 files of the lake a day.

Rollup writes them for whoever knows nothing of Spark or Parquet, beside its table
``queue_minutes``.  A day on which nothing happened in a queue is in no file; which days are there
at all says the **span**, so that such a day is told from one that is not rolled up yet.

The series of a queue and day holds the hours, each with the sum of its minutes and the minutes
themselves, so that whoever wants months reads two dozen sums of each day.  It holds at most 24 sums
and 1,440 minutes, each a few hundred bytes, and is compressed; the same minutes are always the same
bytes.  A file holds those of all queues whose names share a checksum's last digits, behind an index
of where each begins: who wants one reads the beginning of the file, and then that.  Index and
series are members of one gzip file, each a line of JSON, so ``zcat`` shows them all.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final

from headrace.history.tally import Activity

SERIES: Final = "series"
SPAN: Final = f"{SERIES}/span.json"
HOUR: Final = 60  # minutes
DAY: Final = 1440
FILES: Final = 64
"""Of a day, at most."""
_FORMAT: Final = 1
_IN_FILES_OF_MANY: Final = 2
_HEAD: Final = 65_536  # bytes: an index of some thousand queues, or all of a small file
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


def number_of(queue: str) -> int:
    """Return in which of the FILES of a day the series of *queue* is."""
    return zlib.crc32(queue.encode()) % FILES


def file_of(queue: str, day: date) -> str:
    """Return the name of the file in the lake that has the series of *queue*."""
    return named(day, number_of(queue))


def named(day: date, number: int) -> str:
    """Return the name of one of the files of *day*."""
    return f"{SERIES}/dt={day}/{number:02}.json.gz"


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
    return _zipped({"format": _FORMAT, "hours": written})


def _zipped(body: object) -> bytes:
    text = json.dumps(body, separators=(",", ":")) + "\n"
    return gzip.compress(text.encode(), _LEVEL, mtime=0)


def put_together(contents: Iterable[tuple[str, bytes]]) -> bytes:
    """Return the file of some queues, given as names and *contents*, each once."""
    in_order = sorted(contents)
    places, end = {}, 0
    for queue, content in in_order:
        places[queue] = end, len(content)
        end += len(content)
    index = _zipped({"format": _IN_FILES_OF_MANY, "queues": places})
    return b"".join((index, *(content for _, content in in_order)))


def content_in(part: Callable[[range], bytes | None], queue: str) -> bytes | None:
    """Return what a file has of *queue*; None if that is nothing.

    *part* returns those bytes of the file that are within a range, None if there is no file.
    Raises Illegible.
    """
    head = part(range(_HEAD))
    if head is None:
        return None
    try:
        index = zlib.decompressobj(zlib.MAX_WBITS | 16)  # a gzip member
        text, read = index.decompress(head), _HEAD
        while not index.eof:
            more = part(range(read, 2 * read))
            if not more:
                raise Illegible("cut off")
            text, head, read = text + index.decompress(more), head + more, 2 * read
        place = json.loads(text)["queues"].get(queue)
        if place is None:
            return None
        begin, size = place
        begin += len(head) - len(index.unused_data)
        content = head[begin : begin + size]
        return content if len(content) == size else part(range(begin, begin + size))
    except _NOT_OURS as error:
        raise Illegible(str(error)) from error


def happened(
    content: bytes, together: Callable[[int, int], bool]
) -> Iterator[tuple[int, Activity]]:
    """Yield what the *content* of a queue says happened, by minute.

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
