"""The lake's tables as frames: read with their declared columns, written day by day."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headrace.history.changelog import RAW
from headrace.spark.lake.schemas import CHANGES, DAY, TABLES, Table
from headrace.spark.session import SparkFiles
from headrace.store.base import Lake, LakeObject
from headrace.store.lake import lake_at

ROWS_OF_A_FILE: Final = 2_000_000


def _raw_ddl() -> str:
    """The schema of a raw line: the columns of ``changes``, instants in microseconds."""
    return ", ".join(
        f"{one.name} {'bigint' if one.type == 'timestamp' else one.type}"
        for one in CHANGES.columns
        if one.name != DAY
    )


@dataclass(frozen=True, slots=True)
class LakeFrames:
    """A lake as Spark sees it: ``address`` is a folder's path or ``s3://bucket/prefix``."""

    spark: SparkSession
    address: str

    @property
    def files(self) -> Lake:
        """The same lake, file by file: for what is small and no table."""
        return lake_at(self.address)

    def path(self, *parts: str) -> str:
        """Return where something is in the lake."""
        return "/".join((self.address.rstrip("/"), *parts))

    def read(self, table: Table) -> DataFrame:
        """Return all rows of *table*; none if it was never written."""
        try:
            return self.spark.read.schema(table.ddl).parquet(self.path("tables", table.name))
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return self.spark.createDataFrame([], table.ddl)

    def by_day(self, prefix: str) -> dict[date, list[LakeObject]]:
        """The files below *prefix* by the day whose folder they are in."""
        found: dict[date, list[LakeObject]] = {}
        for file in self.files.list(prefix):
            day = date.fromisoformat(file.name.partition(f"/{DAY}=")[2].partition("/")[0])
            found.setdefault(day, []).append(file)
        return found

    def days(self, table: Table, days: Iterable[date]) -> DataFrame:
        """Return the rows of some *days*."""
        return self.read(table).where(f.col(DAY).isin(sorted(days)))

    def raw(self, days: Iterable[date]) -> DataFrame:
        """Return the raw lines of *days*, which must be there."""
        paths = [self.path(RAW, f"{DAY}={day}") for day in sorted(days)]
        reader = self.spark.read.schema(_raw_ddl()).option("basePath", self.path(RAW))
        return reader.json(paths).select(*(name for name in CHANGES.names if name != DAY))

    def write(self, frame: DataFrame, table: Table) -> None:
        """Replace the days that *frame* has rows of; other days stay as they are."""
        ordered = frame.select(*table.names).sortWithinPartitions(DAY, *table.order)
        (
            ordered.write.mode("overwrite")
            .option("partitionOverwriteMode", "dynamic")
            .option("maxRecordsPerFile", ROWS_OF_A_FILE)
            .option("compression", "zstd")
            .partitionBy(DAY)
            .parquet(self.path("tables", table.name))
        )

    def remove(self, *parts: str) -> None:
        """Remove what is there, and all below it; a star stands for any name."""
        SparkFiles(self.spark).remove_matching(self.path(*parts))

    def views(self) -> None:
        """Give SQL the tables by their names."""
        for table in TABLES:
            self.read(table).createOrReplaceTempView(table.name)


def absolute(address: str) -> str:
    """Return *address* as Spark and everyone else understand it the same way."""
    return address if urlsplit(address).scheme else str(Path(address).absolute())
