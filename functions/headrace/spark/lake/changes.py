"""Raw lines to the table ``changes``: instants, days, and each change once."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from headrace.spark.lake.schemas import CHANGES, DAY

SAME: Final = (*CHANGES.key, "move", "queue_to", "state_to", "lease_to")
"""What two lines of one change agree on.

Lines that tell two stories of one version both stay: the proof is there to find them.
"""


def legible(raw: DataFrame) -> Column:
    """Tell which lines say what a change cannot be without."""
    needed = (*CHANGES.key, "recorded_at", "move")
    told = f.expr("true")
    for name in needed:
        told = told & raw[name].isNotNull()
    return told


def changes(raw: DataFrame) -> DataFrame:
    """Return the changes that *raw* lines tell, each once however often it came."""
    instants = {
        column.name: f.timestamp_micros(column.name).alias(column.name)
        for column in CHANGES.columns
        if column.type == "timestamp"
    }
    recorded = f.timestamp_micros("recorded_at")
    told = (
        raw.where(legible(raw))
        .withColumn("at", f.coalesce("at", "recorded_at"))
        .select(
            *(instants.get(name, f.col(name)) for name in raw.columns),
            f.to_date(recorded).alias(DAY),
        )
    )
    same = Window.partitionBy(*SAME).orderBy("recorded_at", "shard", "sequence")
    first = told.withColumn("_copy", f.row_number().over(same)).where("_copy = 1")
    return first.select(*(column.name for column in CHANGES.columns))
