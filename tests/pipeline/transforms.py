"""What the stations of the tests do with tasks; workers import it by name."""

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import IntegerType

from headrace.spark.stations.outcomes import (
    Fail,
    Move,
    Outcome,
    Release,
    Retry,
    Spawn,
    Succeed,
    Taken,
    guard,
)

POISON = 13


def number() -> Any:
    return f.get_json_object("payload", "$.n").cast("int")


def same(tasks: DataFrame) -> DataFrame:
    return tasks


def mistaken(tasks: DataFrame) -> DataFrame:
    """Fail by itself, whatever the tasks are."""
    settings: dict[str, str] = {}
    return tasks.where(settings["nix"])


def without_some(tasks: DataFrame) -> DataFrame:
    """Drop what cannot be divided by three, as a filter does."""
    return tasks.where(number() % 3 == 0)


def as_struct(tasks: DataFrame) -> DataFrame:
    """Give the payload as a struct, which becomes JSON."""
    return tasks.withColumn("payload", f.struct((number() * 10).alias("n")))


def poisoned(tasks: DataFrame) -> DataFrame:
    """Raise an error at every number that ends as POISON does."""
    return tasks.withColumn("payload", f.struct(_raising(_checked)(number()).alias("n")))


def poisoned_often(tasks: DataFrame) -> DataFrame:
    """Raise an error at every fiftieth number, far from each other."""
    return tasks.withColumn("payload", f.struct(_raising(_fiftieth)(number()).alias("n")))


def unnamed(tasks: DataFrame) -> DataFrame:
    """Drop the column that says of which queue a task is."""
    return tasks.drop("queue")


def always_failing(tasks: DataFrame) -> DataFrame:
    return tasks.withColumn("payload", f.struct(_raising(_broken)(number()).alias("n")))


def _raising(function: Any) -> Any:
    # By the hints of a function it would become one of another kind.
    return f.udf(lambda n: function(n), IntegerType())  # noqa: PLW0108


def _checked(n: int) -> int:
    if n % 100 == POISON:
        raise ValueError(f"{n} cannot be worked on")
    return n


def _fiftieth(n: int) -> int:
    if n % 50 == POISON:
        raise ValueError(f"{n} cannot be worked on")
    return n


def _broken(n: int) -> int:
    raise KeyError(f"a typing error, whatever {n} is")


def fan_out(tasks: DataFrame) -> DataFrame:
    """Give two children to each, and the parent's own row, far apart."""
    children = tasks.select(
        "id",
        "lease",
        f.lit("spawn").alias("action"),
        f.explode(f.array(f.lit(1), f.lit(2))).alias("n"),
    )
    rows = children.select("id", "lease", "action", f.struct("n").alias("payload"))
    ends = tasks.select(
        "id", "lease", f.lit("succeed").alias("action"), f.lit(None).alias("payload")
    )
    return rows.withColumn("payload", f.to_json("payload")).unionByName(ends)


def summed(tasks: DataFrame) -> DataFrame:
    """Move one task of each remainder by two with the sum of all of them; the others succeed."""
    numbers = tasks.select("id", "lease", number().alias("n"))
    groups = numbers.groupBy((f.col("n") % 2).alias("remainder")).agg(
        f.sum("n").alias("sum"), f.sort_array(f.collect_list(f.struct("id", "lease"))).alias("of")
    )
    each = groups.select("sum", f.posexplode("of").alias("place", "task"))
    return each.select(
        "task.id",
        "task.lease",
        f.when(f.col("place") == 0, "move").otherwise("succeed").alias("action"),
        f.to_json(f.struct(f.col("sum").alias("n"))).alias("payload"),
    )


@guard(retry_on=(TimeoutError,))
def by_number(task: Taken) -> Outcome | list[Outcome] | None:
    """Do with each of eight numbers another thing."""
    n: int = task.payload["n"]
    if n == 4:
        raise TimeoutError("no answer")
    if n == 5:
        raise ZeroDivisionError("by nothing")
    given: dict[int, Outcome | list[Outcome] | None] = {
        0: Move({"n": 100}),
        1: Succeed(),
        2: Fail("Refused: not wanted"),
        3: Retry("later", delay_seconds=60),
        6: None,
        7: [Spawn({"n": 107}), Move()],
        8: Release(delay_seconds=60),
    }
    return given[n]


def dying_once(mark: str) -> Any:
    """Return a transform whose worker process dies while the file *mark* is there."""

    def transform(tasks: DataFrame) -> DataFrame:
        def mapped(batches: Iterable[Any]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                if Path(mark).exists():
                    Path(mark).unlink(missing_ok=True)
                    os._exit(1)
                yield batch

        return tasks.mapInArrow(mapped, tasks.schema)

    return transform


def slow(seconds: float) -> Any:
    """Return a transform that takes its time for every record batch."""

    def transform(tasks: DataFrame) -> DataFrame:
        def mapped(batches: Iterable[Any]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                time.sleep(seconds)
                yield batch

        return tasks.mapInArrow(mapped, tasks.schema)

    return transform
