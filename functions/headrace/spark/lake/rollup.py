"""The two jobs that write the lake's tables: rollup, hour by hour, and compact, day by day.

A rollup makes the tables of every hour that has something new in the raw changes.  An hour is
computed anew as a whole and replaces what was there, so a run may be repeated, or killed and run
again; it reads what is new, and the tables of no other hour.  A day that is over and is new in all
its hours is made as one, in few files.  Which raw files an hour was made from is written down last,
in ``state/rollup.json``; there it is unmade from before its first table is written.
Minutes are counted on from how things stood when an hour began (``standing``).
From the minutes a series is written for those who cannot read the tables (``queue_minutes``).

To compact is to make few large files of many small ones, sorted, day by day; no row changes.  To
replace a day Spark removes it first, and a process can be killed at any time.  So the day is
written beside its place before, and the next job takes it from there.

Long, because both jobs write the same tables by the same rules of what a killed one leaves.

One run at a time (``turn``): two that write the same hour would undo each other.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from hashlib import blake2b
from typing import Final
from urllib.parse import unquote

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f

from headrace.domain.errors import InvalidRequest
from headrace.history.changelog import RAW
from headrace.spark.lake import standing
from headrace.spark.lake.formats import chosen
from headrace.spark.lake.frames import LakeFrames
from headrace.spark.lake.queue_minutes import publish, queue_minutes
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
from headrace.spark.lake.turn import turn_of

STATE: Final = "state/rollup.json"
_DAY: Final = timedelta(days=1)
# A stream keeps its records for a day, so raw files come no later; one more for good measure.
_LATEST: Final = 3 * _DAY
_UNMADE: Final = ""
"""The mark of an hour whose tables a run has begun to replace."""
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
    form: str | None = None,
    say: Say = lambda _: None,
) -> Rolled:
    """Bring the tables up to the raw changes; *everything* makes every day anew.

    What came late is looked for in the last days and in *also*, unless *everything* is requested.
    The first rollup chooses the format of the tables: *form*, or what is usual for the lake's
    place.
    Raises InvalidRequest for a raw file that cannot be read, and names it, and for another *form*
    than that of the tables there are; Conflict while another job writes the tables.
    """
    with turn_of(lake.files, "rollup") as turn:
        chosen(lake.files, lake.address, form)
        return _rolled(lake.during(turn.check), today, also, everything=everything, say=say)


def _rolled(
    lake: LakeFrames, today: date, also: Iterable[date], *, everything: bool, say: Say
) -> Rolled:
    mend(lake)
    known, standing_of = ({}, []) if everything else _known(lake)
    found = _found(lake, known, today, also)
    changed = {at for at, mark in found.items() if known.get(at) != mark}
    batch = _Batch.of(lake, changed, found, today)
    new = batch.new
    if not new:
        say("nothing new")
        publish(lake, None if everything else (), today=today, say=say)
        return Rolled(())
    days = sorted({at.date() for at in new})
    kept = [at for at in standing_of if at <= min(new)]  # what stood later may have been otherwise
    _remember(lake, {**known, **dict.fromkeys(new, _UNMADE)}, kept)
    say(f"{_span(days)}: changes")
    rolled = _write_changes(lake, batch)
    fresh = lake.recorded(batch.days, batch.hours)
    for table, transform in _BY_DAY:
        say(f"{_span(days)}: {table.name}")
        _write(lake, transform(fresh), table, batch)
    hours = {**known, **found}
    kept = _write_minutes(lake, _StandingHours(kept, sorted(hours)), batch, today, say)
    publish(lake, None if everything else days, today=today, say=say)
    _remember(lake, hours, kept)
    return rolled


@dataclass(frozen=True, slots=True)
class _Batch:
    """The hours that a run makes anew: whole days that are over, and single hours of others."""

    days: tuple[date, ...]
    hours: tuple[datetime, ...]
    new: frozenset[datetime]

    @classmethod
    def of(
        cls, lake: LakeFrames, new: Iterable[datetime], every: Iterable[datetime], today: date
    ) -> "_Batch":
        """Return what is to be made for *new* hours: all of *every* hour of a day, or none else.

        A day whose tables are not in hours, because it was made or compacted as one, is made as
        one again.
        """
        of_day: dict[date, set[datetime]] = {}
        for at in every:
            of_day.setdefault(at.date(), set()).add(at)
        wanted, whole = set(new), set()
        for day in {at.date() for at in wanted}:
            over = day < today and of_day[day] <= wanted
            if over or _made_as_one(lake, day):
                whole.add(day)
                wanted |= of_day[day]
        single = (at for at in wanted if at.date() not in whole)
        return cls(tuple(sorted(whole)), tuple(sorted(single)), frozenset(wanted))

    @property
    def every_day(self) -> tuple[date, ...]:
        """All days, those of which only hours are made among them."""
        return tuple(sorted({*self.days, *(at.date() for at in self.hours)}))


def _write(lake: LakeFrames, frame: DataFrame, table: Table, batch: _Batch) -> None:
    """Replace what *table* has of the days and hours of *batch* by *frame*'s."""
    if batch.days and not batch.hours:
        lake.write(frame, table, batch.days)
    elif not batch.days:
        lake.write_hours(frame, table, batch.hours)
    else:
        whole = f.col(DAY).isin(list(batch.days))
        lake.write(frame.where(whole), table, batch.days)
        lake.write_hours(frame.where(~whole), table, batch.hours)


def _made_as_one(lake: LakeFrames, day: date) -> bool:
    """Whether a table has a file of *day* that is not one of an hour."""
    return any(
        not file.of_an_hour for table in TABLES for file in lake.files_of(table, day).get(day, ())
    )


def _write_changes(lake: LakeFrames, batch: _Batch) -> Rolled:
    raw, kept = Observation("raw"), Observation("kept")
    lines = lake.raw(batch.days, batch.hours)
    observed = lines.observe(
        raw,
        f.count(f.lit(1)).alias("lines"),
        f.count(f.when(~legible(lines), 1)).alias("illegible"),
    )
    once = changes(observed)
    if batch.days and batch.hours:
        once = once.cache()  # it is written in two parts
    gathered = once.observe(kept, f.count(f.lit(1)).alias("changes"))
    try:
        _write(lake, gathered, CHANGES, batch)
    except (Py4JError, PySparkException) as error:
        found = _UNREADABLE.search(str(error))
        if found is None:
            raise
        message = (
            f"{unquote(found[1])} cannot be read: make it whole or remove it, then roll up again"
        )
        raise InvalidRequest(message) from error
    finally:
        once.unpersist()
    read = raw.get
    return Rolled(batch.every_day, read["lines"], kept.get["changes"], read["illegible"])


_UNREADABLE: Final = re.compile(rf"\[FAILED_READ_FILE\b[^\n]*/({RAW}/{DAY}=[^\n]*?\.gz)")


@dataclass(frozen=True, slots=True)
class _StandingHours:
    """Of which hours it is kept how things stood, and which hours there are at all."""

    kept: Sequence[datetime]
    hours: Sequence[datetime]


def _write_minutes(
    lake: LakeFrames, known: _StandingHours, batch: _Batch, today: date, say: Say
) -> list[datetime]:
    """Make the minutes anew from the first new hour on; return which standings are kept.

    They are counted on from how things stood then.  How they stood when the last hour began is kept
    for the next run, which begins there or later.
    """
    start = min(batch.new)
    say(f"from {start:%Y-%m-%d %H:00}: {QUEUE_MINUTES.name}")
    before = standing.standing_at(lake, known.kept, start)
    gathered = lake.read(CHANGES, start.date()).where(f.col("recorded_at") >= f.lit(start))
    hours = [at for at in known.hours if at >= start]
    last = max((at for at in hours if at.date() <= today), default=None)
    opened, rest = before.open, gathered
    if last is not None and last not in known.kept:
        recorded = f.col("recorded_at")
        so_far = standing.open_after(opened, gathered.where(recorded < f.lit(last)))
        opened = standing.write_open(lake, last, so_far)
        rest = gathered.where(recorded >= f.lit(last))
    after = standing.Standing(standing.open_after(opened, rest), before.levels)
    minutes = queue_minutes(gathered, before.levels, after.ready())
    _write(lake, minutes, QUEUE_MINUTES, _Batch.of(lake, hours, known.hours, today))
    if last is None or last in known.kept:
        return list(known.kept)
    counted = lake.read(QUEUE_MINUTES, start.date()).where(
        (f.col("minute") >= f.lit(start)) & (f.col("minute") < f.lit(last))
    )
    standing.write_levels(lake, last, standing.levels_of(counted, before.levels))
    old = sorted(known.kept)[: -standing.KEPT]
    standing.remove(lake, old)
    return [*(at for at in known.kept if at not in old), last]


def _known(lake: LakeFrames) -> tuple[dict[datetime, str], list[datetime]]:
    """Return the mark of every hour that is made, and of which hours it is kept how things stood.

    What an older rollup wrote, which knew days only, is as good as nothing.
    """
    text = lake.files.get(STATE)
    state = json.loads(text) if text else {}
    hours = {_hour(text): mark for text, mark in state.get("hours", {}).items()}
    return hours, [_hour(text) for text in state.get("standing", ())]


def standings(lake: LakeFrames) -> list[datetime]:
    """Return the hours of which it is kept how things stood when they began."""
    return _known(lake)[1]


def _hour(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H").replace(tzinfo=UTC)


def _found(
    lake: LakeFrames, known: dict[datetime, str], today: date, also: Iterable[date]
) -> dict[datetime, str]:
    """Return for each hour that may have something new a mark of the raw files it has.

    A day to come, which came from a wrong clock, does not say how far the others are.
    """
    prefixes = [f"{RAW}/{DAY}="]
    made = [at.date() for at, mark in known.items() if at.date() <= today and mark != _UNMADE]
    if made:
        first = max(made) - _LATEST
        wanted = (today + _DAY - first).days + 1
        days = {first + number * _DAY for number in range(wanted)}
        days.update(also, {at.date() for at, mark in known.items() if mark == _UNMADE})
        days.update({at.date() for at in known} - set(made))
        prefixes = [f"{RAW}/{DAY}={day}/" for day in sorted(days)]
    marks: dict[datetime, str] = {}
    for prefix in prefixes:
        for at, files in lake.by_hour(prefix).items():
            text = "\n".join(f"{file.name} {file.size} {file.stamp}" for file in files)
            marks[at] = blake2b(text.encode(), digest_size=16).hexdigest()
    return marks


def _remember(lake: LakeFrames, marks: dict[datetime, str], standings: Sequence[datetime]) -> None:
    state = {
        "hours": {standing.name_of(at): mark for at, mark in sorted(marks.items())},
        "standing": [standing.name_of(at) for at in sorted(standings)],
    }
    lake.may_write()
    lake.files.put(STATE, json.dumps(state, indent=1).encode())


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

    Raises Conflict while a rollup runs: both write whole days.
    """
    with turn_of(lake.files, "compaction") as turn:
        return _compacted(lake.during(turn.check), say)


def _compacted(lake: LakeFrames, say: Say) -> list[Compacted]:
    mend(lake)
    done = []
    for table in TABLES:
        lake.tidy(table)
        before = _files(lake, table)
        crowded = [day for day, sizes in before.items() if _scattered(sizes)]
        if not crowded:
            continue
        say(f"{table.name}: {len(crowded)} days")
        for day in crowded:
            rows = lake.days(table, [day])
            parts = max(1, -(-sum(before[day]) // (4 * SMALL)))
            spread = rows.coalesce(1) if parts == 1 else rows.repartition(parts, *table.order[:1])
            if lake.log is not None:
                lake.write(spread, table, [day])
                continue
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
    """Finish what a job that was killed has begun, and remove what else it left.

    Where a log says which files there are, what a killed job left is none of them.
    """
    if lake.log is not None:
        return
    for table in TABLES:
        prefix = f"{_BESIDE}/{table.name}/"
        for day in sorted({file.name.split("/")[3] for file in lake.files.list(prefix)}):
            if lake.files.get(f"{prefix}{day}/{_WHOLE}") is not None:
                _put_in_place(lake, table, day)
        lake.remove(_BESIDE, table.name)
        lake.remove("tables", table.name, ".spark-staging-*")


def _put_in_place(lake: LakeFrames, table: Table, day: str) -> None:
    beside = lake.path(_BESIDE, table.name, day)
    rows = lake.spark.read.schema(table.ddl).parquet(beside)
    lake.write(rows, table, [date.fromisoformat(day)])
    lake.remove(_BESIDE, table.name, day)


def _scattered(sizes: Sequence[int]) -> bool:
    return sum(size < SMALL for size in sizes) > 1


def _files(lake: LakeFrames, table: Table) -> dict[date, list[int]]:
    """The sizes of each day's files."""
    found = lake.files_of(table)
    return {day: [file.size for file in files] for day, files in found.items()}
