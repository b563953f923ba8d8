"""All formats made known to a session by one call."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Make every format known to *spark*; may be called again.

    >>> register(spark)
    >>> spark.read.format("headrace").option("queue", "mail").load()
    """
    # Each module needs PySpark, and `import headrace.spark` must not.
    from headrace.spark.sources.enqueue import EnqueueSource  # noqa: PLC0415
    from headrace.spark.sources.export import ExportSource  # noqa: PLC0415
    from headrace.spark.sources.queue import QueueSource  # noqa: PLC0415
    from headrace.spark.sources.table import TableSource  # noqa: PLC0415

    for source in (QueueSource, EnqueueSource, TableSource, ExportSource):
        spark.dataSource.register(source)
