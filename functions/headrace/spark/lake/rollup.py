"""The rollup: the lake's tables made of the raw changes, day by day.

A rollup makes the tables of every day that has new raw files.  It computes a day as a whole and
replaces what was there, so a run may be repeated, or killed and run again.  It writes down last, in
``state/rollup.json``, which raw files each day was made of; before it writes the first table it
marks these days there as unmade.
It counts minutes on from a snapshot of how many tasks there were when a day began.
From the minutes it writes the series for readers without Spark (``queue_minutes``).

Of two jobs that write the same table at once the log refuses the second.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import unquote

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f

from headrace.domain.errors import InvalidRequest
from headrace.history.changelog import RAW
from headrace.spark.lake import snapshots
from headrace.spark.lake.frames import LakeFrames
from headrace.spark.lake.queue_minutes import publish, queue_minutes
from headrace.spark.lake.schemas import (
    ATTEMPTS,
    CHANGES,
    DAY,
    EVERY_TABLE,
    FAILURES,
    QUEUE_MINUTES,
    TASKS,
    Table,
)
from headrace.spark.lake.tables import attempts, changes, failures, legible, tasks

STATE: Final = "state/rollup.json"
VERSIONS_KEPT: Final = timedelta(days=3)
"""For so long a reader may go on with a version of a table that is not the latest."""
_DAY: Final = timedelta(days=1)
# A stream keeps its records for a day, so raw files come no later; two more for good measure.
_LATEST: Final = 3 * _DAY
_UNMADE: Final = ""
"""The mark of a day whose tables a run has begun to replace."""
_BY_DAY: Final[Sequence[tuple[Table, Callable[[DataFrame], DataFrame]]]] = (
    (ATTEMPTS, attempts),
    (TASKS, tasks),
    (FAILURES, failures),
)

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Rolled:
    """The outcome of a run: which days it made, from how many raw lines, to how many changes.

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


@dataclass(frozen=True, slots=True)
class RollupState:
    """The mark of the raw files that each day was made of, and the days with a snapshot."""

    marks: Mapping[date, str]
    snapshots: Sequence[date]

    @classmethod
    def of(cls, lake: LakeFrames) -> "RollupState":
        """Read the state of *lake*; it is empty before the first rollup."""
        text = lake.files.get(STATE)
        state: dict[str, Any] = json.loads(text) if text else {}
        marks = {date.fromisoformat(day): mark for day, mark in state.get("days", {}).items()}
        return cls(marks, [date.fromisoformat(day) for day in state.get("snapshots", ())])

    def write(self, lake: LakeFrames) -> None:
        """Store the state."""
        state = {
            "days": {str(day): mark for day, mark in sorted(self.marks.items())},
            "snapshots": [str(day) for day in sorted(self.snapshots)],
        }
        lake.files.put(STATE, json.dumps(state, indent=1).encode())


def rollup(
    lake: LakeFrames,
    *,
    today: date,
    everything: bool = False,
    also: Iterable[date] = (),
    say: Say = lambda _: None,
) -> Rolled:
    """Bring the tables up to the raw changes; *everything* makes every day again.

    It looks for late files in the last days and in *also*, unless *everything* is requested.
    Raises InvalidRequest for a raw file that cannot be read, and names it; Conflict if another job
    has written one of the tables since.
    """
    lake = lake.pinned()
    state = RollupState({}, ()) if everything else RollupState.of(lake)
    found = _marks(lake, state.marks, today, also)
    days = sorted(day for day, mark in found.items() if state.marks.get(day) != mark)
    if not days:
        say("nothing new")
        publish(lake, None if everything else (), today=today, say=say)
        return Rolled(())
    valid = [day for day in state.snapshots if day <= days[0]]  # later ones lack the new changes
    RollupState({**state.marks, **dict.fromkeys(days, _UNMADE)}, valid).write(lake)
    say(f"{_span(days)}: {CHANGES.name}")
    rolled = _write_changes(lake, days)
    fresh = lake.days(CHANGES, days)
    for table, transform in _BY_DAY:
        say(f"{_span(days)}: {table.name}")
        lake.write(transform(fresh), table, days)
    marks = {**state.marks, **found}
    following = [day for day in marks if day >= days[0]]
    stored = _write_minutes(lake, state.snapshots, following, today, say)
    publish(lake, None if everything else days, today=today, say=say)
    if days[-1] not in state.marks:  # a new day: once a day is often enough
        for table in EVERY_TABLE:
            lake.log.remove_versions(table, datetime.now(UTC) - VERSIONS_KEPT)
    RollupState(marks, stored).write(lake)
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
        lake.write(gathered, CHANGES, days)
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


def _write_minutes(
    lake: LakeFrames, stored: Sequence[date], days: Sequence[date], today: date, say: Say
) -> list[date]:
    """Make the minutes of *days* again; return the days that have a snapshot now.

    *days* are all from the first new one on, because the levels of each follow from the day before.
    A snapshot of the last one is written for the next run, which begins there or later.
    """
    start = min(days)
    say(f"from {start}: {QUEUE_MINUTES.name}")
    valid = sorted(day for day in stored if day <= start)
    before = snapshots.snapshot_of(lake, valid, start)
    gathered = lake.read(CHANGES, start)
    last = max((day for day in days if day <= today), default=None)
    if last in valid:
        last = None
    keep = valid[-snapshots.KEPT :]
    opened, rest = before.open, gathered
    if last is not None:
        until_last = gathered.where(f.col(DAY) < f.lit(last))
        tasks_then = snapshots.open_after(opened, until_last)
        opened = snapshots.write_open(lake, last, tasks_then, keep)
        rest = gathered.where(f.col(DAY) >= f.lit(last))
    ready = snapshots.ready_since(snapshots.open_after(opened, rest))
    lake.write(queue_minutes(gathered, before.levels, ready), QUEUE_MINUTES, days)
    if last is None:
        return valid
    counted = lake.read(QUEUE_MINUTES, start).where(f.col(DAY) < f.lit(last))
    snapshots.write_levels(lake, last, snapshots.levels_after(before.levels, counted), keep)
    return [*keep, last]


def _marks(
    lake: LakeFrames, known: Mapping[date, str], today: date, also: Iterable[date]
) -> dict[date, str]:
    """Return for each day that may have something new a mark of the raw files it has.

    A day after *today*, which came from a wrong clock, is looked at but does not move the others.
    """
    made = [day for day, mark in known.items() if day <= today and mark != _UNMADE]
    prefixes = [""]
    if made:
        first = max(made) - _LATEST
        days = {first + number * _DAY for number in range((today + _DAY - first).days + 1)}
        days.update(also, (day for day in known if day not in made))
        prefixes = [f"{day}/" for day in sorted(days)]
    marks: dict[date, str] = {}
    for prefix in prefixes:
        for day, files in lake.raw_files(prefix).items():
            text = "\n".join(f"{file.name} {file.size} {file.stamp}" for file in files)
            marks[day] = blake2b(text.encode(), digest_size=16).hexdigest()
    return marks


def _span(days: Sequence[date]) -> str:
    return str(days[0]) if len(days) == 1 else f"{days[0]} to {days[-1]} ({len(days)} days)"
