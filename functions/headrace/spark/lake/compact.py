"""Few large files instead of many small ones, sorted, day by day; no row changes.

To replace a day Spark removes it first, and a process can be killed at any time.  So the day is
written beside its place before, and the next job takes it from there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from headrace.spark.lake.frames import LakeFrames, struct_of
from headrace.spark.lake.schemas import DAY, TABLES, Table

SMALL: Final = 64 * 1024 * 1024
"""Files of fewer bytes are put together."""

_BESIDE: Final = "state/compact"
_WHOLE: Final = "_SUCCESS"  # which Spark writes last


@dataclass(frozen=True, slots=True)
class Compacted:
    """How many days of a table were written anew, and how many files that saved."""

    table: str
    days: int
    files_before: int
    files_after: int


def compact(lake: LakeFrames, *, say: Callable[[str], None] = lambda _: None) -> list[Compacted]:
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
    lake.write(lake.spark.read.schema(struct_of(table)).parquet(beside), table)
    lake.remove(_BESIDE, table.name, day)


def _scattered(sizes: Sequence[int]) -> bool:
    return sum(size < SMALL for size in sizes) > 1


def _files(lake: LakeFrames, table: Table) -> dict[date, list[int]]:
    """Return the sizes of each day's files."""
    found: dict[date, list[int]] = {}
    for file in lake.files.list(f"tables/{table.name}/{DAY}="):
        day = date.fromisoformat(file.name.split("/")[2].partition("=")[2])
        found.setdefault(day, []).append(file.size)
    return found
