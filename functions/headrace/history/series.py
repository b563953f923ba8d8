"""Series of points for charts, and the files in the lake that the older ones are read from.

The rollup writes at most 64 files a day beside its table ``queue_minutes``, so that a chart needs
neither Spark nor Parquet.  A day without activity in a queue is in no file; the **span** has the
days that are rolled up.

The series of a queue and day has the hours, each with the sum of its minutes and the minutes
themselves, so that a chart of months reads two dozen sums for each day: at most 24 sums and 1,440
minutes of a few hundred bytes each, compressed.  The same minutes always give the same bytes.
A file has the queues whose names share the last digits of a checksum, behind an index of their
places, so a reader needs the beginning of the file and then one part.  Index and series are members
of one gzip file, each a line of JSON, so ``zcat`` shows them all.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any, Final

from headrace.domain import limits
from headrace.domain.errors import InvalidRequest, Unavailable
from headrace.domain.offload import Lake
from headrace.domain.times import MICROSECOND, MINUTE, micros_of
from headrace.history.tally import Activity

POINTS: Final = 1_500
STEP_SECONDS: Final = 60
LONGEST_STEP_SECONDS: Final = 31_536_000  # a year
_MINUTE: Final = timedelta(minutes=1)
_HOUR: Final = timedelta(hours=1)
_DAY: Final = timedelta(days=1)
_AT_ONCE: Final = 8  # files, because S3 is slow for each
SERIES: Final = "series"
SPAN: Final = f"{SERIES}/span.json"
HOUR: Final = 60  # minutes
DAY: Final = 1440
FILES: Final = 64
"""The largest number of files of a day."""
_FORMAT: Final = 1
_IN_FILES_OF_MANY: Final = 2
_HEAD: Final = 65_536  # bytes: the index of some thousand queues, or all of a small file
_EPOCH: Final = date(1970, 1, 1)
_LEVEL: Final = 6  # level 9 takes nine times as long and saves a twelfth
_ODD: Final = (ValueError, KeyError, TypeError, AttributeError)  # JSON of another shape
_NOT_OURS: Final = (OSError, EOFError, zlib.error, *_ODD)

Minutes = Mapping[int, Activity]
"""Activity by minute since 1970."""


class Unreadable(ValueError):
    """A file in an unknown format."""


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
        """Return the span as stored."""
        return json.dumps({"begin": str(self.begin), "end": str(self.end)}).encode()

    @classmethod
    def of(cls, text: bytes) -> "Span":
        """Return the span that text() wrote.  Raises Unreadable."""
        try:
            body = json.loads(text)
            return cls(date.fromisoformat(body["begin"]), date.fromisoformat(body["end"]))
        except _ODD as error:
            raise Unreadable(SPAN) from error


def number_of(queue: str) -> int:
    """Return the number of the day's file that has the series of *queue*."""
    return zlib.crc32(queue.encode()) % FILES


def file_of(queue: str, day: date) -> str:
    """Return the name of the lake's file that has the series of *queue*."""
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
    """Return the file of some queues, given as pairs of name and content."""
    in_order = sorted(contents)
    places, end = {}, 0
    for queue, content in in_order:
        places[queue] = end, len(content)
        end += len(content)
    index = _zipped({"format": _IN_FILES_OF_MANY, "queues": places})
    return b"".join((index, *(content for _, content in in_order)))


def content_in(part: Callable[[range], bytes | None], queue: str) -> bytes | None:
    """Return the series of *queue* in a file; None without one.

    *part* returns a range of the file's bytes; None if there is no file.  Raises Unreadable.
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
                raise Unreadable("cut off")
            text, head, read = text + index.decompress(more), head + more, 2 * read
        place = json.loads(text)["queues"].get(queue)
        if place is None:
            return None
        begin, size = place
        begin += len(head) - len(index.unused_data)
        content = head[begin : begin + size]
        return content if len(content) == size else part(range(begin, begin + size))
    except _NOT_OURS as error:
        raise Unreadable(str(error)) from error


def happened(
    content: bytes, together: Callable[[int, int], bool]
) -> Iterator[tuple[int, Activity]]:
    """Yield the activity in the *content* of a queue, by minute.

    An hour comes as one, at its first minute, if *together* is true for its first and last minute.
    Raises Unreadable.
    """
    try:
        body = json.loads(gzip.decompress(content))
        if body["format"] != _FORMAT:
            raise Unreadable(f"format {body['format']}")
        for name, hour in body["hours"].items():
            first = int(name) * HOUR
            if together(first, first + HOUR - 1):
                yield first, Activity.of(hour["all"])
                continue
            for place, text in hour["minutes"].items():
                yield first + int(place), Activity.of(text)
    except _NOT_OURS as error:
        raise Unreadable(str(error)) from error


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """The activity of one step from ``at`` on; None if it is unknown.

    ``above`` is the largest number of waiting tasks within the step, minus the number at its end.
    """

    at: datetime
    activity: Activity | None
    above: int = 0


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """A series of points without gaps; ``staleness`` is seconds."""

    points: Sequence[MetricPoint]
    step_seconds: int
    as_of: datetime
    staleness: float


@dataclass(frozen=True, slots=True)
class Steps:
    """*count* steps of *minutes* each, from the minute *begin* on."""

    begin: datetime
    minutes: int
    count: int

    @classmethod
    def between(
        cls, since: datetime | None, until: datetime | None, step_seconds: int, now: datetime
    ) -> "Steps":
        """Return the steps from the minute of *since* up to *until*: the last hour by default.

        Raises InvalidRequest naming ``from`` or ``step_seconds``.
        """
        if not STEP_SECONDS <= step_seconds <= LONGEST_STEP_SECONDS or step_seconds % STEP_SECONDS:
            message = f"must be a multiple of {STEP_SECONDS}, up to {LONGEST_STEP_SECONDS}"
            raise InvalidRequest.of("step_seconds", message)
        end = until or now
        begin = _minute(end - MICROSECOND) + _MINUTE - _HOUR if since is None else since
        if begin >= end:
            raise InvalidRequest.of("from", "must be before to" if until else "must be before now")
        begin = _minute(begin)
        count = -(-(end - begin) // timedelta(seconds=step_seconds))
        if count > POINTS:
            least = -(-(end - begin) // (POINTS * _MINUTE)) * STEP_SECONDS
            message = f"must be at least {least} for this range: {POINTS} points are the most"
            raise InvalidRequest.of("step_seconds", message)
        if end - begin > timedelta(days=limits.METRIC_DAYS):
            message = f"must be at most {limits.METRIC_DAYS} days before {'to' if until else 'now'}"
            raise InvalidRequest.of("from", message)
        return cls(begin, step_seconds // STEP_SECONDS, count)

    @property
    def first(self) -> int:
        """The first minute since 1970."""
        return micros_of(self.begin) // MINUTE

    @property
    def last(self) -> int:
        """The last minute since 1970."""
        return self.first + self.count * self.minutes - 1

    def place(self, minute: int) -> int:
        """Return the number of the step, from 0, with a minute since 1970."""
        return (minute - self.first) // self.minutes

    def points(
        self, happened: Iterable[tuple[int, Activity]], unknown: Iterable[range] = ()
    ) -> Sequence[MetricPoint]:
        """Return a point for each step; *happened* are minutes of the range, in any order.

        A step with minutes in *unknown* is unknown.
        """
        activities: list[Activity | None] = [Activity() for _ in range(self.count)]
        for gap in filter(None, unknown):
            first, last = max(gap[0], self.first), min(gap[-1], self.last)
            for place in range(self.place(first), self.place(last) + 1):
                activities[place] = None
        backlogs: list[dict[int, int]] = [{} for _ in range(self.count)]
        for minute, activity in happened:
            place = self.place(minute)
            counted = activities[place]
            if counted is not None:
                counted.merge(activity)
                backlogs[place][minute] = backlogs[place].get(minute, 0) + activity.backlog
        return [
            MetricPoint(self.begin + number * self.minutes * _MINUTE, counted, _above(steps))
            for number, (counted, steps) in enumerate(zip(activities, backlogs, strict=True))
        ]


def _above(steps: Mapping[int, int]) -> int:
    """Return the largest sum of *steps*, by minute, minus the sum at their end.

    >>> _above({1: 5, 2: -5}), _above({1: 5, 2: 3}), _above({1: -4})
    (5, 0, 4)
    """
    most = level = 0
    for minute in sorted(steps):
        level += steps[minute]
        most = max(most, level)
    return most - level


def _minute(instant: datetime) -> datetime:
    return instant.replace(second=0, microsecond=0)


@dataclass(frozen=True, slots=True)
class Archive:
    """Reads the series of a lake."""

    lake: Lake

    def known(self) -> range:
        """Return the minutes that are rolled up; empty before the first rollup.

        Raises Unavailable.
        """
        text = self.lake.get(SPAN)
        if text is None:
            return range(0)
        try:
            return Span.of(text).minutes
        except Unreadable as error:
            raise _unavailable(SPAN) from error

    def minutes(self, queue: str, steps: Steps, within: range) -> Iterator[tuple[int, Activity]]:
        """Yield the activity of *queue* in the minutes of *steps* that are also in *within*.

        An hour inside one step comes as one.  One file is read for each day, in two parts if it is
        large.  Raises Unavailable.
        """
        first, last = max(steps.first, within.start), min(steps.last, within.stop - 1)
        if first > last:
            return

        def read(day: date) -> list[tuple[int, Activity]]:
            return [
                (minute, activity)
                for minute, activity in self._day(queue, day, steps, range(first, last + 1))
                if first <= minute <= last
            ]

        begin, end = day_of(first), day_of(last)
        days = [begin + number * _DAY for number in range((end - begin).days + 1)]
        with ThreadPoolExecutor(min(_AT_ONCE, len(days))) as pool:
            for found in pool.map(read, days):
                yield from found

    def _day(
        self, queue: str, day: date, steps: Steps, wanted: range
    ) -> Iterator[tuple[int, Activity]]:
        name = file_of(queue, day)

        def in_one_step(begin: int, end: int) -> bool:
            return begin in wanted and end in wanted and steps.place(begin) == steps.place(end)

        try:
            content = content_in(partial(self.lake.get, name), queue)
            if content is not None:
                yield from happened(content, in_one_step)
        except Unreadable as error:
            raise _unavailable(name) from error


def _unavailable(name: str) -> Unavailable:
    return Unavailable(f"the lake's {name} cannot be read; headrace lake rollup --all repairs it")
