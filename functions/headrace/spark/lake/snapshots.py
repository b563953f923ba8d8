"""Snapshots of the tasks that were open, and of the levels of the queues, when a day began.

Each rollup writes them for the next one, which counts minutes from there on.  So a rollup reads no
older day, even if a task has waited for weeks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from headrace.domain.task import State
from headrace.spark.lake.frames import LakeFrames
from headrace.spark.lake.schemas import CHANGES, DAY, OPEN_TASKS, QUEUE_LEVELS, QUEUE_MINUTES, Table

KEPT: Final = 5
"""Snapshots: late files are looked for in the last three days."""

_LIVE: Final = (str(State.ENQUEUED), str(State.INFLIGHT))
_LIFE: Final = ["task_id", "created_at"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The open tasks and the levels at the beginning of one day."""

    open: DataFrame
    levels: DataFrame


def snapshot_of(lake: LakeFrames, days: Sequence[date], day: date) -> Snapshot:
    """Return the snapshot of *day*.

    It is made of the latest stored one, of the stored *days*, and the changes since; else of all
    changes before *day*.
    """
    base = max((one for one in days if one <= day), default=None)
    before = f.col(DAY) < f.lit(day)
    changes = lake.read(CHANGES, base).where(before)
    minutes = lake.read(QUEUE_MINUTES, base).where(before)
    if base is None:
        return Snapshot(open_after(None, changes), levels_after(None, minutes))
    opened, levels = lake.days(OPEN_TASKS, [base]), lake.days(QUEUE_LEVELS, [base])
    return Snapshot(open_after(opened, changes), levels_after(levels, minutes))


def open_after(before: DataFrame | None, changes: DataFrame) -> DataFrame:
    """Return the tasks that are open after *changes*, of those *before* them and of new ones."""
    changed = changes.select(
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
    every = changed if before is None else before.drop(DAY).unionByName(changed)
    live = f.coalesce(f.col("state").isin(*_LIVE), f.expr("false"))
    # The greatest number is found without sorting, unlike the latest of whole rows.
    marked = f.max(f.col("version") * 2 + live.cast("int"))
    latest = every.groupBy(*_LIFE).agg(marked.alias("_last")).where("_last % 2 = 1")
    ends = latest.select(*_LIFE, f.expr("_last div 2").alias("version"))
    # Two changes of one version are one task all the same.
    return every.where(live).join(ends, [*_LIFE, "version"], "left_semi").dropDuplicates(_LIFE)


def ready(side: str) -> Column:
    """Return since when a change's task had been ready on one *side*; null if it did not wait."""
    waiting = f.col(f"state_{side}").eqNullSafe(str(State.ENQUEUED))
    return f.when(waiting, f.greatest(f"due_{side}", f"enqueued_{side}"))


def ready_since(tasks: DataFrame) -> DataFrame:
    """Return for each ``queue`` since when its longest due waiting task is ``ready``."""
    waiting = tasks.where(f.col("state") == str(State.ENQUEUED))
    return waiting.groupBy("queue").agg(f.min("ready_at").alias("ready"))


def levels_after(before: DataFrame | None, minutes: DataFrame) -> DataFrame:
    """Return how many tasks wait and are in flight in each queue after *minutes*."""
    steps = minutes.select(
        "queue",
        f.col("waiting_change").alias("backlog"),
        f.col("inflight_change").alias("inflight"),
    )
    every = steps if before is None else before.drop(DAY).unionByName(steps)
    return every.groupBy("queue").agg(
        f.sum("backlog").alias("backlog"), f.sum("inflight").alias("inflight")
    )


def open_at(lake: LakeFrames, days: Sequence[date], day: date) -> DataFrame | None:
    """Return the tasks that were open when *day* began, with the column names of ``changes``.

    None where no stored snapshot, of *days*, is as old.
    """
    if not any(one <= day for one in days):
        return None
    found = snapshot_of(lake, days, day).open
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


def write_open(lake: LakeFrames, day: date, tasks: DataFrame, keep: Sequence[date]) -> DataFrame:
    """Store the *tasks* open when *day* began; return them as stored.  Of others *keep* stay."""
    _write(lake, OPEN_TASKS, day, tasks, keep)
    return lake.days(OPEN_TASKS, [day])


def write_levels(lake: LakeFrames, day: date, levels: DataFrame, keep: Sequence[date]) -> None:
    """Store the *levels* of the queues when *day* began.  Of others *keep* stay."""
    _write(lake, QUEUE_LEVELS, day, levels, keep)


def _write(
    lake: LakeFrames, table: Table, day: date, rows: DataFrame, keep: Sequence[date]
) -> None:
    stored = {file.day for file in lake.log.files(table)}
    lake.write(rows.withColumn(DAY, f.lit(day)), table, {day, *(stored - set(keep))})
