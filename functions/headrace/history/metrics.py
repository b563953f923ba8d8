"""A series of points for charts: the steps wanted, and what happened in each.

What is older than the counters keep comes from the lake's series, as rollup wrote them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from typing import Final

from headrace.domain import limits
from headrace.domain.errors import InvalidRequest, Unavailable
from headrace.domain.instants import MICROSECOND, MINUTE, micros_of
from headrace.history import series
from headrace.history.series import Illegible, Span
from headrace.history.tally import Activity
from headrace.store.base import Lake

POINTS: Final = 1_500
STEP_SECONDS: Final = 60
LONGEST_STEP_SECONDS: Final = 31_536_000  # a year
_MINUTE: Final = timedelta(minutes=1)
_HOUR: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """What happened from ``at`` on, for one step; None where that is not known.

    ``above`` is by how many more tasks waited at the most than at the end of the step: of what rose
    and fell within it, its end tells nothing.
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
        """Return which step a minute since 1970 is in, from 0."""
        return (minute - self.first) // self.minutes

    def points(
        self, happened: Iterable[tuple[int, Activity]], unknown: Iterable[range] = ()
    ) -> Sequence[MetricPoint]:
        """Return a point for each step; *happened* are minutes of the range, in any order.

        A step with minutes in *unknown* says nothing: what there is of it is not the whole.
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
    """Return how far above its end the sum of *steps*, by minute, was before it or at any of them.

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


_AT_ONCE: Final = 8  # files; a bucket takes its time for each
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Archive:
    """Reads the series of a lake."""

    lake: Lake

    def known(self) -> range:
        """Return the minutes that are rolled up; none before the first rollup.

        Raises Unavailable.
        """
        text = self.lake.get(series.SPAN)
        if text is None:
            return range(0)
        try:
            return Span.of(text).minutes
        except Illegible as error:
            raise _illegible(series.SPAN) from error

    def minutes(self, queue: str, steps: Steps, within: range) -> Iterator[tuple[int, Activity]]:
        """Yield what happened in *queue* in those minutes of *steps* that are *within* too.

        Hours that fall into one step come as one.  One file is read for each day, in two parts if
        it is large.
        Raises Unavailable.
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

        begin, end = series.day_of(first), series.day_of(last)
        days = [begin + number * _DAY for number in range((end - begin).days + 1)]
        with ThreadPoolExecutor(min(_AT_ONCE, len(days))) as pool:
            for found in pool.map(read, days):
                yield from found

    def _day(
        self, queue: str, day: date, steps: Steps, wanted: range
    ) -> Iterator[tuple[int, Activity]]:
        name = series.file_of(queue, day)

        def together(begin: int, end: int) -> bool:
            return begin in wanted and end in wanted and steps.place(begin) == steps.place(end)

        try:
            content = series.content_in(partial(self.lake.get, name), queue)
            if content is not None:
                yield from series.happened(content, together)
        except Illegible as error:
            raise _illegible(name) from error


def _illegible(name: str) -> Unavailable:
    return Unavailable(f"the lake's {name} cannot be read; headrace lake rollup --all mends it")
