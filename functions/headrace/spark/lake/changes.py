"""Raw lines to the table ``changes``: instants, days, and each change once."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from headrace.history.changelog import FILLED
from headrace.spark.lake.schemas import CHANGES, DAY

SAME: Final = ("move", "queue_to", "state_to", "lease_to", "lease_from", "settled")
"""What two lines of one change agree on, besides its key.

Lines that tell two stories of one version both stay: the proof is there to find them.
"""


def filled_in() -> Column:
    """Whether a line was made up from an export."""
    return f.coalesce(f.col("shard").startswith(FILLED), f.expr("false"))


def legible(raw: DataFrame) -> Column:
    """Whether lines hold what a change cannot be without."""
    needed = (*CHANGES.key, "recorded_at", "move")
    legible_line = f.expr("true")
    for name in needed:
        legible_line = legible_line & raw[name].isNotNull()
    return legible_line


def changes(raw: DataFrame) -> DataFrame:
    """Return the changes that *raw* lines tell, each once however often it came.

    A version from an export counts only where no stream has it, and once.
    """
    instants = {
        column.name: f.timestamp_micros(column.name).alias(column.name)
        for column in CHANGES.columns
        if column.type == "timestamp"
    }
    recorded = f.timestamp_micros("recorded_at")
    lines = (
        raw.where(legible(raw))
        .withColumn("at", f.coalesce("at", "recorded_at"))
        .select(
            *(instants.get(name, f.col(name)) for name in raw.columns),
            f.to_date(recorded).alias(DAY),
        )
    )
    in_order = Window.partitionBy(*CHANGES.key).orderBy(
        filled_in(), *SAME, "recorded_at", "shard", "sequence"
    )
    story = f.struct(*SAME)
    copy = f.lag(story).over(in_order).eqNullSafe(story)
    surplus = f.when(filled_in(), f.row_number().over(in_order) > 1).otherwise(copy)
    once = lines.withColumn("_surplus", surplus).where("NOT _surplus")
    return once.select(*(column.name for column in CHANGES.columns))
