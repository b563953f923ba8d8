"""The claim log: what a batch has leased, written down before it is transformed.

A job that regroups tasks settles some while others are still to come.  Should Spark run a part of
it again, a new look at the queue would show only the unsettled ones, and a sum over them would be
another.  So such a job reads what was written down.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.domain.lease import is_group_id
from headrace.spark.session import SparkFiles
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
        SparkFiles(self.spark).remove(f"{self.folder}/{group_id}")

    def tidy(self, connection: StoreConnection, now: "datetime") -> None:
        """Remove what drivers that died have left: the claims of groups that are over."""
        files = SparkFiles(self.spark)
        for name in files.names(self.folder):
            group = store(connection).group(name) if is_group_id(name) else None
            if is_group_id(name) and (group is None or not group.holds(now)):
                files.remove(f"{self.folder}/{name}")
