"""The lake's tables as frames: read with their declared columns, written in whole days."""

import uuid
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headrace.domain.offload import Lake, LakeObject
from headrace.history.changelog import RAW
from headrace.spark.lake.schemas import CHANGES, DAY, TABLES, Table
from headrace.spark.lake.table_log import (
    DATA,
    DAY_OF_FILES,
    DataFile,
    TableLog,
    log_of,
    name_of_write,
)
from headrace.store.lake import lake_at

ROWS_OF_A_FILE: Final = 2_000_000
_RAW_DDL: Final = ", ".join(
    f"{one.name} {'bigint' if one.type == 'timestamp' else one.type}"
    for one in CHANGES.columns
    if one.name != DAY
)
"""The schema of a raw line: the columns of ``changes``, instants in microseconds."""


@dataclass(frozen=True, slots=True)
class LakeFrames:
    """A lake as Spark sees it: ``address`` is a folder's path or ``s3://bucket/prefix``."""

    spark: SparkSession
    address: str
    log_of_job: TableLog | None = None

    def pinned(self) -> "LakeFrames":
        """Return the same lake for one job: it reads every table as of now, and its own commits.

        Its commit is refused if another job has committed to the table.
        """
        return replace(self, log_of_job=self.log.pinned())

    @property
    def log(self) -> TableLog:
        """The log that knows the files of the tables."""
        return self.log_of_job or log_of(self.address)

    @property
    def files(self) -> Lake:
        """The files of the lake, for what is small and no table."""
        return lake_at(self.address)

    def path(self, *parts: str) -> str:
        """Return the address of a file or folder of the lake."""
        return "/".join((self.address.rstrip("/"), *parts))

    def read(self, table: Table, since: date | None = None) -> DataFrame:
        """Return all rows of *table*, or those of its days from *since* on.

        The frame has the rows of this moment, whatever is written to the table later.
        """
        paths = [file.path for file in self.log.files(table, since)]
        if not paths:
            return self.spark.createDataFrame([], table.ddl)
        return self.spark.read.schema(table.ddl).parquet(*paths)

    def days(self, table: Table, days: Iterable[date]) -> DataFrame:
        """Return the rows of some *days*."""
        wanted = sorted(days)
        since = wanted[0] if wanted else None
        return self.read(table, since).where(f.col(DAY).isin(wanted))

    def raw(self, days: Iterable[date]) -> DataFrame:
        """Return the raw lines of *days*, for each of which there must be some."""
        paths = [self.path(RAW, f"{DAY}={day}") for day in sorted(days)]
        reader = self.spark.read.schema(_RAW_DDL).option("basePath", self.path(RAW))
        return reader.json(paths).select(*(name for name in CHANGES.names if name != DAY))

    def raw_files(self, prefix: str = "") -> dict[date, list[LakeObject]]:
        """Return the raw files by day; only those below ``raw/`` and *prefix*."""
        found: dict[date, list[LakeObject]] = {}
        for file in self.files.list(f"{RAW}/{DAY}={prefix}"):
            day = date.fromisoformat(file.name.partition(f"/{DAY}=")[2].partition("/")[0])
            found.setdefault(day, []).append(file)
        return found

    def write(self, frame: DataFrame, table: Table, days: Collection[date]) -> None:
        """Replace the rows of *days* by *frame*, whose rows must be of these days.

        Raises Conflict if another job has written the table since this one read it.
        """
        log, write = self.log, name_of_write(datetime.now(UTC), uuid.uuid4().hex)
        name = f"tables/{table.name}/{DATA}/{write}"
        columns = frame.select(*table.names, f.col(DAY).alias(DAY_OF_FILES))
        if len(days) > 1:  # else each part of the frame has a small file of each day
            columns = columns.hint("rebalance", DAY_OF_FILES)
        ordered = columns.sortWithinPartitions(DAY_OF_FILES, *table.order)
        writer = ordered.write.option("maxRecordsPerFile", ROWS_OF_A_FILE)
        writer.option("compression", "zstd").partitionBy(DAY_OF_FILES).parquet(self.path(name))
        new = [DataFile(self.path(one.name), one.size) for one in self.files.list(f"{name}/")]
        old = [file for file in log.files(table, min(days)) if file.day in days]
        if old or new:
            log.replace(table, old, new)

    def views(self) -> None:
        """Give SQL the tables by their names."""
        for table in TABLES:
            self.read(table).createOrReplaceTempView(table.name)


def absolute(address: str) -> str:
    """Return *address* as Spark and every other reader understand it the same way."""
    return address if urlsplit(address).scheme else str(Path(address).absolute())
