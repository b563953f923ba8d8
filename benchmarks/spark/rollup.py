"""The rollup of a change log that Spark makes up: lives of three changes each, over a day."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import TypeVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.results import Bar
from benchmarks.spark.figures import Figure, Measured
from headrace.spark.lake.frames import LakeFrames
from headrace.spark.lake.proof import proof
from headrace.spark.lake.rollup import rollup

T = TypeVar("T")

DAY = date(2026, 11, 21)
NEXT = date(2026, 11, 22)  # the day is over, and made as one
START = 1_795_219_200_000_000
SPAN = 82_800_000_000  # 23 hours, so that the last life ends on its day
QUEUES = 10
WARM_UP = 30_000
JUDGED = 1_000_000
SECONDS = 60  # of two processors, for so many changes
_FILES = 2  # of an hour


def measured(spark: SparkSession, folder: str, changes: int) -> Iterator[Measured]:
    """Measure a rollup, the next one with one more batch, and the proof; yield what was found."""
    warm = LakeFrames(spark, f"{folder}/warm")
    change_log(warm, WARM_UP)
    rollup(warm, today=NEXT)
    lake = LakeFrames(spark, f"{folder}/lake")
    seconds, _ = _timed(lambda: change_log(lake, changes))
    size = sum(file.size for file in lake.files.list("raw/"))
    yield f"{changes:,} changes made up in {seconds:.1f} s, {size / 1e6:.0f} MB gzipped"
    stages: list[tuple[float, str]] = []
    begin, used = time.monotonic(), cpu_seconds()
    seconds, rolled = _timed(
        lambda: rollup(lake, today=NEXT, say=lambda text: stages.append((time.monotonic(), text)))
    )
    ends = [at for at, _ in stages[1:]] + [begin + seconds]
    for (at, text), end in zip(stages, ends, strict=True):
        yield f"  {end - at:5.1f} s {text}"
    used = cpu_seconds() - used
    yield (
        f"rolled up {rolled.changes:,} in {seconds:.1f} s,"
        f" {rolled.changes / seconds:,.0f} a second, {used:.0f} s of CPU"
    )
    yield Figure("rollup, changes made into five tables", rolled.changes / seconds, "changes/s")
    if changes >= JUDGED:  # with fewer, what a run costs by itself is most of it
        limit = SECONDS * changes / JUDGED
        yield Bar(f"rollup of {changes:,} changes", seconds, limit, at_most=True, unit="s")
    table = sum(file.size for file in lake.files.list("tables/changes/"))
    yield f"changes take {table / 1e6:.0f} MB as Parquet"
    seconds, report = _timed(lambda: proof(lake))
    found = "nothing found" if report.holds else f"found {report.violations}"
    yield f"proof of {report.tasks:,} tasks in {seconds:.1f} s: {found}"
    yield Figure("proof", rolled.changes / seconds, "changes/s")


def cpu_seconds() -> float:
    """The CPU time of this process and all below it: Spark's Java, and the Pythons that it starts.

    A measure that others on the machine do not spoil.
    """
    parents, used = {}, {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            parents[int(process.name)] = int(fields[1])
            used[int(process.name)] = sum(map(int, fields[11:15]))  # ended children too
    ours, more = set[int](), {os.getpid()}
    while more:
        ours |= more
        more = {process for process, parent in parents.items() if parent in more}
    return sum(used.get(process, 0) for process in ours) / os.sysconf("SC_CLK_TCK")


def _timed(job: Callable[[], T]) -> tuple[float, T]:
    begin = time.monotonic()
    result = job()
    return time.monotonic() - begin, result


def change_log(lake: LakeFrames, changes: int, *, day: int = 0, queues: int = QUEUES) -> None:
    """Write raw lines as the recorder would, a few files for every hour of a *day*."""
    tasks, start = changes // 3, START + day * 86_400_000_000
    lives = lake.spark.range(0, tasks, 1, 8).select(
        f.format_string(f"tsk_{day:06d}%020d", "id").alias("task_id"),
        f.concat(f.lit("queue-"), f.pmod("id", f.lit(queues))).alias("queue"),
        (f.lit(start) + (f.col("id") * f.lit(SPAN // max(1, tasks)))).alias("born"),
        (f.exp(f.randn(1) + 11)).cast("bigint").alias("wait"),
        (f.exp(f.randn(2) + 13)).cast("bigint").alias("run"),
        f.substring(f.md5(f.col("id").cast("string")), 1, 16).alias("lease"),
    )
    moves = (_enqueued(lives), _dequeued(lives), _succeeded(lives))
    lines = moves[0].unionByName(moves[1], allowMissingColumns=True)
    lines = lines.unionByName(moves[2], allowMissingColumns=True)
    recorded = f.col("recorded_at")
    (
        lines.withColumn("sequence", f.expr("uuid()"))
        .select(
            f.to_json(f.struct("*")).alias("value"),
            f.to_date(f.timestamp_micros(recorded)).alias("dt"),
            f.date_format(f.timestamp_micros(recorded), "HH").alias("hh"),
            f.pmod(f.hash("task_id"), f.lit(_FILES)).alias("part"),
        )
        .repartition("dt", "hh", "part")
        .drop("part")
        .write.mode("overwrite")
        .option("compression", "gzip")
        .partitionBy("dt", "hh")
        .text(lake.path("raw"))
    )


def _line(lives: DataFrame, move: str, version: int, at: Column, **fields: Column) -> DataFrame:
    columns = {
        "format": f.lit(1),
        "shard": f.lit("shardId-00000001"),
        "recorded_at": (at / 1_000_000).cast("bigint") * 1_000_000,
        "at": at,
        "task_id": f.col("task_id"),
        "created_at": f.col("born"),
        "version": f.lit(version),
        "move": f.lit(move),
        "expires_at": f.col("born") + f.lit(1_209_600_000_000),
        "payload_bytes": f.lit(300),
        **fields,
    }
    return lives.select(*(column.alias(name) for name, column in columns.items()))


def _side(side: str, state: str, attempts: int, *, leased: bool = False) -> dict[str, Column]:
    columns = {
        "queue": f.col("queue"),
        "state": f.lit(state),
        "due": f.col("born"),
        "enqueued": f.col("born"),
        "attempts": f.lit(attempts),
        "hop": f.lit(0),
    }
    if leased:
        columns["lease"] = f.col("lease")
        columns["lease_end"] = f.col("born") + f.col("wait") + f.lit(30_000_000)
    return {f"{name}_{side}": column for name, column in columns.items()}


def _enqueued(lives: DataFrame) -> DataFrame:
    return _line(lives, "enqueue", 1, f.col("born"), **_side("to", "ENQUEUED", 0))


def _delivery() -> dict[str, Column]:
    started = f.col("born") + f.col("wait")
    return {"worker": f.lit("host-1:4711"), "started_at": started}


def _dequeued(lives: DataFrame) -> DataFrame:
    sides = {**_side("from", "ENQUEUED", 0), **_side("to", "INFLIGHT", 1, leased=True)}
    return _line(lives, "dequeue", 2, f.col("born") + f.col("wait"), **sides, **_delivery())


def _succeeded(lives: DataFrame) -> DataFrame:
    sides = {**_side("from", "INFLIGHT", 1, leased=True), **_side("to", "SUCCEEDED", 1)}
    end = f.col("born") + f.col("wait") + f.col("run")
    more = {"settled": f.col("lease"), "finished_at": end, **_delivery()}
    return _line(lives, "succeed", 3, end, **sides, **more)
