"""``queue_minutes`` for those without Spark: the files of ``headrace.history.series``."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date
from itertools import groupby
from typing import Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from headrace.history.histogram import Histogram
from headrace.history.series import SPAN, Illegible, Span, content_of, file_of
from headrace.history.tally import COUNTED, Activity
from headrace.spark.lake.frames import LakeFrames
from headrace.spark.lake.schemas import DAY, QUEUE_MINUTES

_EVENTS: Final = tuple(event.value for event in COUNTED)


def publish(
    lake: LakeFrames, days: Sequence[date] | None, *, today: date, say: Callable[[str], None]
) -> None:
    """Write the series of *days*; of all days if that is None, or none was ever written.

    Then every day before *today* counts as rolled up, from the first there ever was.
    """
    minutes, before = lake.read(QUEUE_MINUTES), _span(lake)
    if before is None or days is None:
        say("series of all days")
        rolled = set(_written(lake, minutes))
    else:
        rolled = {before.begin, *days}
        if days:
            say(f"series of {len(days)} days")
            rolled |= set(_written(lake, minutes.where(f.col(DAY).isin(sorted(days)))))
    if rolled:
        begin = min(rolled)
        lake.files.put(SPAN, Span(begin, max(begin, today)).text())


def _span(lake: LakeFrames) -> Span | None:
    text = lake.files.get(SPAN)
    with suppress(Illegible):
        return None if text is None else Span.of(text)
    return None


def _written(lake: LakeFrames, minutes: DataFrame) -> Iterator[date]:
    """Write a file for each queue and day of *minutes*; yield the days."""
    in_order = minutes.select(
        "queue",
        DAY,
        f.expr("unix_seconds(minute) div 60").alias("minute"),
        *_EVENTS,
        "wait",
        "run",
        "waiting_change",
    ).orderBy("queue", DAY, "minute")
    files = lake.files
    for (queue, day), rows in groupby(in_order.toLocalIterator(), lambda row: (row[0], row[1])):
        files.put(file_of(queue, day), content_of(dict(_activities(rows))))
        yield day


def _activities(rows: Iterable[Row]) -> Iterator[tuple[int, Activity]]:
    for row in rows:
        numbers = [row[event] for event in _EVENTS]
        wait, run = Histogram(dict(row["wait"] or {})), Histogram(dict(row["run"] or {}))
        yield row["minute"], Activity(numbers, wait, run, row["waiting_change"])
