"""Two stations in a row, as a pipeline has them; ``headrace station start`` finds them by name."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from headrace.spark import Station


def counted(tasks: DataFrame) -> DataFrame:
    """Write down one hop more."""
    hops = f.get_json_object("payload", "$.hops").cast("int") + 1
    number = f.get_json_object("payload", "$.n").cast("int")
    return tasks.withColumn("payload", f.struct(number.alias("n"), hops.alias("hops")))


first = Station(queue="in", to="middle", transform=counted, max_rows=2_000, lease_seconds=10)
second = Station(queue="middle", to="out", transform=counted, max_rows=2_000, lease_seconds=10)
