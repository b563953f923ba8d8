"""How things stood when an hour began: the tasks that were open, and how many a queue had.

Two small tables, written by each rollup for the next one.  With them a run counts minutes from
there on and reads nothing that lies before, be it that a task has waited for weeks.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from headrace.domain.task import State
from headrace.spark.lake.frames import LakeFrames
from headrace.spark.lake.schemas import CHANGES, QUEUE_MINUTES

STANDING: Final = "state/standing"
"""The folder of the lake where they are, one for each hour that is kept."""

OPEN: Final = (
    "task_id string, created_at timestamp, version bigint, queue string, state string,"
    " ready_at timestamp, attempts int, lease string, lease_end timestamp, lease_group string,"
    " expires_at timestamp, at timestamp"
)
"""Tasks that were waiting or in flight: as of their latest version."""

LEVELS: Final = "queue string, backlog bigint, inflight bigint"
"""How many tasks were waiting and in flight in each queue."""

KEPT: Final = 80
"""Hours: late files are looked for in the last three days."""

_LIVE: Final = (str(State.ENQUEUED), str(State.INFLIGHT))
_LIFE: Final = ["task_id", "created_at"]


@dataclass(frozen=True, slots=True)
class Standing:
    """The open tasks and the levels at one time."""

    open: DataFrame
    levels: DataFrame

    def ready(self) -> DataFrame:
        """Return for each ``queue`` since when its longest due waiting task is ``ready``."""
        waiting = self.open.where(f.col("state") == str(State.ENQUEUED))
        return waiting.groupBy("queue").agg(f.min("ready_at").alias("ready"))


def standing_at(lake: LakeFrames, hours: Sequence[datetime], at: datetime) -> Standing:
    """Return how things stood *at* some time.

    From the latest of *hours*, of which it is kept, and what happened since; else from all changes
    before.
    """
    base = latest_before(hours, at)
    since = None if base is None else base.date()
    changes = lake.read(CHANGES, since).where(f.col("recorded_at") < f.lit(at))
    minutes = lake.read(QUEUE_MINUTES, since).where(f.col("minute") < f.lit(at))
    opened = levels = None
    if base is not None:
        changes = changes.where(f.col("recorded_at") >= f.lit(base))
        minutes = minutes.where(f.col("minute") >= f.lit(base))
        opened = lake.spark.read.schema(OPEN).parquet(_place(lake, base, "open"))
        levels = lake.spark.read.schema(LEVELS).parquet(_place(lake, base, "levels"))
    # Read before the minutes are written: what is written must not depend on them.
    found = levels_of(minutes, levels).collect()
    return Standing(open_after(opened, changes), lake.spark.createDataFrame(found, LEVELS))


def _place(lake: LakeFrames, hour: datetime, name: str) -> str:
    return lake.path(STANDING, name_of(hour), name)


def open_after(before: DataFrame | None, changes: DataFrame) -> DataFrame:
    """Return the tasks that are open after *changes*, of those *before* them and of new ones."""
    told = changes.select(
        "task_id",
        "created_at",
        "version",
        f.col("queue_to").alias("queue"),
        f.col("state_to").alias("state"),
        ready("to").alias("ready_at"),
        f.col("attempts_to").alias("attempts"),
        f.col("lease_to").alias("lease"),
        f.col("lease_end_to").alias("lease_end"),
        "lease_group",
        "expires_at",
        "at",
    )
    every = told if before is None else before.unionByName(told)
    live = f.coalesce(f.col("state").isin(*_LIVE), f.expr("false"))
    # The greatest number is found without sorting, unlike the latest of whole rows.
    marked = f.max(f.col("version") * 2 + live.cast("int"))
    latest = every.groupBy(*_LIFE).agg(marked.alias("_last")).where("_last % 2 = 1")
    ends = latest.select(*_LIFE, f.expr("_last div 2").alias("version"))
    # Two stories of one version are one task all the same.
    return every.where(live).join(ends, [*_LIFE, "version"], "left_semi").dropDuplicates(_LIFE)


def ready(side: str) -> Column:
    """Return since when a change's task had been ready on one *side*; null if it did not wait."""
    waiting = f.col(f"state_{side}").eqNullSafe(str(State.ENQUEUED))
    return f.when(waiting, f.greatest(f"due_{side}", f"enqueued_{side}"))


def levels_of(minutes: DataFrame, before: DataFrame | None = None) -> DataFrame:
    """Return how many tasks wait and are in flight in each queue after *minutes*."""
    steps = minutes.select(
        "queue",
        f.col("waiting_change").alias("backlog"),
        f.col("inflight_change").alias("inflight"),
    )
    every = steps if before is None else before.unionByName(steps)
    return every.groupBy("queue").agg(
        f.sum("backlog").alias("backlog"), f.sum("inflight").alias("inflight")
    )


def open_at(lake: LakeFrames, hours: Sequence[datetime], at: datetime) -> DataFrame | None:
    """Return the tasks that were open at some time, in the words of ``changes``.

    None where for no time before it is kept how things stood; *hours* are those for which it is.
    """
    if latest_before(hours, at) is None:
        return None
    found = standing_at(lake, hours, at).open
    return found.select(
        "task_id",
        "created_at",
        "version",
        *(f.col(name).alias(f"{name}_to") for name in ("queue", "state", "attempts", "lease")),
        f.col("lease_end").alias("lease_end_to"),
        "lease_group",
        "expires_at",
        "at",
    )


def write_open(lake: LakeFrames, hour: datetime, tasks: DataFrame) -> DataFrame:
    """Keep which *tasks* were open at *hour*; return them, as they are kept."""
    return _written(lake, hour, "open", tasks, OPEN)


def write_levels(lake: LakeFrames, hour: datetime, levels: DataFrame) -> None:
    """Keep the *levels* of the queues at *hour*."""
    _written(lake, hour, "levels", levels, LEVELS)


def _written(
    lake: LakeFrames, hour: datetime, name: str, frame: DataFrame, columns: str
) -> DataFrame:
    # Read as a whole while it is written: nothing of it is in the place that is written to.
    place = _place(lake, hour, name)
    frame.write.mode("overwrite").parquet(place)
    return lake.spark.read.schema(columns).parquet(place)


def remove(lake: LakeFrames, hours: Iterable[datetime]) -> None:
    """Remove what is kept of some *hours*."""
    for hour in hours:
        lake.remove(STANDING, name_of(hour))


def name_of(hour: datetime) -> str:
    """Return the name of an hour's folder, which no file system minds."""
    return f"{hour:%Y-%m-%dT%H}"


def latest_before(hours: Sequence[datetime], first: datetime) -> datetime | None:
    """Return the latest of *hours* that is not after *first*."""
    return max((hour for hour in hours if hour <= first), default=None)
