"""The two jobs that write the lake's tables, whole days at a time: rollup and compact.

A rollup makes the tables of every day that has something new in the raw changes.  A day is computed
anew as a whole and replaces what was there, so a run may be repeated, or killed and run again.
Which raw files a day was made from is written down last, in ``state/rollup.json``; there it is
unmade from before its first table is written.
From the minutes a series is written for those who cannot read the tables (``queue_minutes``).

To compact is to make few large files of many small ones, sorted, day by day; no row changes.  To
replace a day Spark removes it first, and a process can be killed at any time.  So the day is
written beside its place before, and the next job takes it from there.

One run at a time: two that write the same day would undo each other.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from hashlib import blake2b
from typing import Final
from urllib.parse import unquote

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f

from headrace.domain.errors import InvalidRequest
from headrace.history.changelog import RAW
from headrace.spark.lake.frames import LakeFrames
from headrace.spark.lake.queue_minutes import levels_of, publish, queue_minutes, waited_since
from headrace.spark.lake.schemas import (
    ATTEMPTS,
    CHANGES,
    DAY,
    FAILURES,
    QUEUE_MINUTES,
    TABLES,
    TASKS,
    Table,
)
from headrace.spark.lake.tables import attempts, changes, failures, legible, tasks

STATE: Final = "state/rollup.json"
_DAY: Final = timedelta(days=1)
# A stream keeps its records for a day, so raw files come no later; one more for good measure.
_LATEST: Final = 3 * _DAY
_WAITS: Final = 7 * _DAY
"""How far back the minutes count those who waited and only now leave."""
_UNMADE: Final = ""
"""The mark of a day whose tables a run has begun to replace."""
_BY_DAY: Final[Sequence[tuple[Table, Callable[[DataFrame], DataFrame]]]] = (
    (ATTEMPTS, attempts),
    (TASKS, tasks),
    (FAILURES, failures),
)

SMALL: Final = 64 * 1024 * 1024
"""Files of fewer bytes are put together."""
_BESIDE: Final = "state/compact"
_WHOLE: Final = "_SUCCESS"  # which Spark writes last

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Rolled:
    """What a run did: which days it made, from how many raw lines, to how many changes.

    ``illegible`` lines are no changes and were left out.
    """

    days: tuple[date, ...]
    lines: int = 0
    changes: int = 0
    illegible: int = 0

    @property
    def duplicates(self) -> int:
        """How many lines repeated another."""
        return self.lines - self.illegible - self.changes


def rollup(
    lake: LakeFrames,
    *,
    today: date,
    everything: bool = False,
    also: Iterable[date] = (),
    say: Say = lambda _: None,
) -> Rolled:
    """Bring the tables up to the raw changes; *everything* makes every day anew.

    What came late is looked for in the last days and in *also*, unless *everything* is requested.
    Raises InvalidRequest for a raw file that cannot be read, and names it.
    """
    mend(lake)
    known = {} if everything else _known(lake)
    found = _found(lake, known, today, also)
    days = sorted(day for day, mark in found.items() if known.get(day) != mark)
    if not days:
        say("nothing new")
        publish(lake, None if everything else (), today=today, say=say)
        return Rolled(())
    _remember(lake, {**known, **dict.fromkeys(days, _UNMADE)})
    say(f"{_span(days)}: changes")
    rolled = _write_changes(lake, days)
    fresh = lake.days(CHANGES, days)
    for table, transform in _BY_DAY:
        say(f"{_span(days)}: {table.name}")
        lake.write(transform(fresh), table)
    _write_minutes(lake, fresh, days[0], say)
    publish(lake, None if everything else days, today=today, say=say)
    _remember(lake, {**known, **found})
    return rolled


def _write_changes(lake: LakeFrames, days: Sequence[date]) -> Rolled:
    raw, kept = Observation("raw"), Observation("kept")
    lines = lake.raw(days)
    observed = lines.observe(
        raw,
        f.count(f.lit(1)).alias("lines"),
        f.count(f.when(~legible(lines), 1)).alias("illegible"),
    )
    gathered = changes(observed).observe(kept, f.count(f.lit(1)).alias("changes"))
    try:
        lake.write(gathered, CHANGES)
    except (Py4JError, PySparkException) as error:
        found = _UNREADABLE.search(str(error))
        if found is None:
            raise
        message = (
            f"{unquote(found[1])} cannot be read: make it whole or remove it, then roll up again"
        )
        raise InvalidRequest(message) from error
    read = raw.get
    return Rolled(tuple(days), read["lines"], kept.get["changes"], read["illegible"])


_UNREADABLE: Final = re.compile(rf"\[FAILED_READ_FILE\b[^\n]*/({RAW}/{DAY}=[^\n]*?\.gz)")


def _write_minutes(lake: LakeFrames, fresh: DataFrame, first: date, say: Say) -> None:
    """Make the minutes anew for *fresh* changes, of *first* and later days.

    What leaves a queue today says how long it had waited on the days before; and every later day
    begins with as many tasks as the one before has left.
    """
    since = waited_since(fresh) or first
    start = max(min(since, first - _DAY), first - _WAITS)
    say(f"from {start}: {QUEUE_MINUTES.name}")
    gathered = lake.read(CHANGES).where(f.col(DAY) >= f.lit(start))
    minutes = lake.read(QUEUE_MINUTES).where(f.col(DAY) < f.lit(start))
    # Read before it is written beside: what is written must not depend on it any more.
    before = lake.spark.createDataFrame(levels_of(minutes).collect(), _LEVELS)
    lake.write(queue_minutes(gathered, before), QUEUE_MINUTES)


_LEVELS: Final = "queue string, backlog bigint, inflight bigint"


def _known(lake: LakeFrames) -> dict[date, str]:
    text = lake.files.get(STATE)
    days = json.loads(text)["days"] if text else {}
    return {date.fromisoformat(day): mark for day, mark in days.items()}


def _found(
    lake: LakeFrames, known: dict[date, str], today: date, also: Iterable[date]
) -> dict[date, str]:
    """Return for each day that may have something new a mark of the raw files it has.

    A day to come, which came from a wrong clock, does not say how far the others are.
    """
    prefixes = [f"{RAW}/{DAY}="]
    made = [day for day, mark in known.items() if day <= today and mark != _UNMADE]
    if made:
        first = max(made) - _LATEST
        wanted = (today + _DAY - first).days + 1
        days = {first + number * _DAY for number in range(wanted)}
        days.update(also, known.keys() - made)
        prefixes = [f"{RAW}/{DAY}={day}/" for day in sorted(days)]
    marks: dict[date, str] = {}
    for prefix in prefixes:
        for day, files in lake.by_day(prefix).items():
            text = "\n".join(f"{file.name} {file.size} {file.stamp}" for file in files)
            marks[day] = blake2b(text.encode(), digest_size=16).hexdigest()
    return marks


def _remember(lake: LakeFrames, marks: dict[date, str]) -> None:
    days = {str(day): mark for day, mark in sorted(marks.items())}
    lake.files.put(STATE, json.dumps({"days": days}, indent=1).encode())


def _span(days: Sequence[date]) -> str:
    return str(days[0]) if len(days) == 1 else f"{days[0]} to {days[-1]} ({len(days)} days)"


@dataclass(frozen=True, slots=True)
class Compacted:
    """How many days of a table were written anew, and how many files that saved."""

    table: str
    days: int
    files_before: int
    files_after: int


def compact(lake: LakeFrames, *, say: Say = lambda _: None) -> list[Compacted]:
    """Put the small files of every day together, in every table that has such days.

    Not while a rollup runs: both write whole days.
    """
    mend(lake)
    done = []
    for table in TABLES:
        before = _files(lake, table)
        crowded = [day for day, sizes in before.items() if _scattered(sizes)]
        if not crowded:
            continue
        say(f"{table.name}: {len(crowded)} days")
        for day in crowded:
            rows = lake.days(table, [day])
            parts = max(1, -(-sum(before[day]) // (4 * SMALL)))
            spread = rows.coalesce(1) if parts == 1 else rows.repartition(parts, *table.order[:1])
            spread.write.mode("overwrite").parquet(lake.path(_BESIDE, table.name, str(day)))
            _put_in_place(lake, table, str(day))
        after = _files(lake, table)
        done.append(
            Compacted(
                table.name,
                len(crowded),
                sum(len(before[day]) for day in crowded),
                sum(len(after[day]) for day in crowded),
            )
        )
    return done


def mend(lake: LakeFrames) -> None:
    """Finish what a job that was killed has begun, and remove what else it left."""
    for table in TABLES:
        prefix = f"{_BESIDE}/{table.name}/"
        for day in sorted({file.name.split("/")[3] for file in lake.files.list(prefix)}):
            if lake.files.get(f"{prefix}{day}/{_WHOLE}") is not None:
                _put_in_place(lake, table, day)
        lake.remove(_BESIDE, table.name)
        lake.remove("tables", table.name, ".spark-staging-*")


def _put_in_place(lake: LakeFrames, table: Table, day: str) -> None:
    beside = lake.path(_BESIDE, table.name, day)
    lake.write(lake.spark.read.schema(table.ddl).parquet(beside), table)
    lake.remove(_BESIDE, table.name, day)


def _scattered(sizes: Sequence[int]) -> bool:
    return sum(size < SMALL for size in sizes) > 1


def _files(lake: LakeFrames, table: Table) -> dict[date, list[int]]:
    """The sizes of each day's files."""
    found = lake.by_day(f"tables/{table.name}/{DAY}=")
    return {day: [file.size for file in files] for day, files in found.items()}
