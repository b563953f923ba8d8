"""The table of readings: Parquet in folders by entity type, day, and the batch that wrote them.

A batch replaces what it has written before, and no other's files.  So one that is run again adds
nothing.  Tasks that come again in another batch, because a station died between writing and
settling, leave readings twice in the files; whoever reads by ``read`` sees each once.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from examples.ngsi.spark.readings import COLUMNS, KEY, checked, once, readings, verdicts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLDERS: Final = ("entity_type", "day", "batch")


@dataclass(frozen=True, slots=True)
class Loading:
    """The transform of the second station: write the rows of a batch, then settle its tasks."""

    folder: str

    def __call__(self, tasks: "DataFrame") -> "DataFrame":
        """Write what *tasks* bring; return what becomes of them."""
        seen = checked(tasks)
        batch = batch_of(tasks)
        if batch is not None:
            write(once(readings(seen)), self.folder, batch)
        return verdicts(seen)


def batch_of(tasks: "DataFrame") -> str | None:
    """Return a name for these very tasks, whatever their order; None if there are none."""
    found = tasks.agg(f.count("id"), f.bit_xor(f.xxhash64("id"))).first()
    number, digest = found or (0, 0)
    return f"{number}-{digest % 2**64:016x}" if number else None


def write(frame: "DataFrame", folder: str, batch: str) -> None:
    """Write readings, each once, as what *batch* brings; its earlier files are replaced."""
    (
        frame.withColumn("batch", f.lit(batch))
        .repartition("entity_type", "day")  # a file for each
        .sortWithinPartitions(*KEY)
        .write.mode("overwrite")
        .option("partitionOverwriteMode", "dynamic")
        .partitionBy(*FOLDERS)
        .parquet(folder)
    )


def read(spark: "SparkSession", folder: str) -> "DataFrame":
    """Return each reading of the table once."""
    return once(spark.read.schema(f"{COLUMNS}, batch string").parquet(folder).drop("batch"))
