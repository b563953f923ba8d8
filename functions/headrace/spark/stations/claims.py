"""The claim log: what a batch has leased, written down before it is transformed.

A job that regroups tasks settles some while others are still to come.  Should Spark run a part of
it again, a new look at the queue would show only the unsettled ones, and a sum over them would be
another.  So such a job reads what was written down.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.domain.group import is_group_id
from headrace.spark.sources.connect import StoreConnection, store
from headrace.spark.sources.leasing import SCHEMA

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class ClaimLog:
    """A folder that the driver and all executors reach, by a path as Spark knows it."""

    spark: "SparkSession"
    folder: str

    def written(self, frame: "DataFrame", group_id: str, job: int) -> "DataFrame":
        """Write down what *frame* leases for one job of a group; return it as it was written."""
        place = f"{self.folder}/{group_id}/{job}"
        frame.write.mode("overwrite").parquet(place)
        return self.spark.read.schema(SCHEMA).parquet(place)

    def forget(self, group_id: str) -> None:
        """Remove what was written for a group."""
        path, files = self._path(f"{self.folder}/{group_id}")
        files.delete(path, True)  # noqa: FBT003 (Hadoop's own: and all that is in it)

    def tidy(self, connection: StoreConnection, now: "datetime") -> None:
        """Remove what drivers that died have left: the claims of groups that are over."""
        path, files = self._path(self.folder)
        if not files.exists(path):
            return
        for entry in files.listStatus(path):
            name = entry.getPath().getName()
            group = store(connection).group(name) if is_group_id(name) else None
            if is_group_id(name) and (group is None or not group.holds(now)):
                files.delete(entry.getPath(), True)  # noqa: FBT003 (likewise)

    def _path(self, name: str) -> tuple[Any, Any]:
        context = self.spark.sparkContext
        java: Any = context._jvm  # noqa: SLF001 (no other way)
        path = java.org.apache.hadoop.fs.Path(name)
        return path, path.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001 (likewise)
