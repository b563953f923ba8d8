"""What happened in a queue before the recorder's week: the lake's series, as rollup wrote them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from headrace.domain.errors import Unavailable
from headrace.history import series
from headrace.history.metrics import Steps
from headrace.history.series import Illegible, Span
from headrace.history.tally import Activity
from headrace.store.base import Lake

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

        Hours that fall into one step come as one.  One file is read for each day.
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
        content = self.lake.get(name)
        if content is None:
            return

        def together(begin: int, end: int) -> bool:
            return begin in wanted and end in wanted and steps.place(begin) == steps.place(end)

        try:
            yield from series.happened(content, together)
        except Illegible as error:
            raise _illegible(name) from error


def _illegible(name: str) -> Unavailable:
    return Unavailable(f"the lake's {name} cannot be read; headrace lake rollup --all mends it")
