"""The lake's tables as frames: read with their declared columns, written day by day."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.history.changelog import RAW
from headrace.spark.lake.schemas import CHANGES, DAY, TABLES, Table, Type
from headrace.store.base import Lake
from headrace.store.lake import lake_at

_TYPES: Final[dict[Type, DataType]] = {
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "date": DateType(),
    "map<int,bigint>": MapType(IntegerType(), LongType()),
    "array<string>": ArrayType(StringType()),
}
ROWS_OF_A_FILE: Final = 2_000_000


def struct_of(table: Table) -> StructType:
    """Return the columns of *table* as Spark wants them."""
    return StructType([StructField(one.name, _TYPES[one.type]) for one in table.columns])


def raw_struct() -> StructType:
    """The schema of a raw line: the columns of ``changes``, instants in microseconds."""
    fields = [
        StructField(one.name, LongType() if one.type == "timestamp" else _TYPES[one.type])
        for one in CHANGES.columns
        if one.name != DAY
    ]
    return StructType(fields)


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
        struct = struct_of(table)
        try:
            return self.spark.read.schema(struct).parquet(self.path("tables", table.name))
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return self.spark.createDataFrame([], struct)

    def days(self, table: Table, days: Iterable[date]) -> DataFrame:
        """Return the rows of some *days*."""
        return self.read(table).where(f.col(DAY).isin(sorted(days)))

    def raw(self, days: Iterable[date]) -> DataFrame:
        """Return the raw lines of *days*, which must be there."""
        paths = [self.path(RAW, f"{DAY}={day}") for day in sorted(days)]
        struct = raw_struct()
        reader = self.spark.read.schema(struct).option("basePath", self.path(RAW))
        return reader.json(paths).select(*struct.names)

    def write(self, frame: DataFrame, table: Table) -> None:
        """Replace the days that *frame* has rows of; other days stay as they are."""
        names = [column.name for column in table.columns]
        ordered = frame.select(*names).sortWithinPartitions(DAY, *table.order)
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
        context = self.spark.sparkContext
        java: Any = context._jvm  # noqa: SLF001 (no other way)
        pattern = java.org.apache.hadoop.fs.Path(self.path(*parts))
        files = pattern.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001 (likewise)
        for found in files.globStatus(pattern) or ():
            files.delete(found.getPath(), True)  # noqa: FBT003 (Hadoop's own: and all below)

    def views(self) -> None:
        """Give SQL the tables by their names."""
        for table in TABLES:
            self.read(table).createOrReplaceTempView(table.name)


def absolute(address: str) -> str:
    """Return *address* as Spark and everyone else understand it the same way."""
    return address if urlsplit(address).scheme else str(Path(address).absolute())
