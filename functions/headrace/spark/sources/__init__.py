"""The formats of the data pipeline: queues and tables, to read from and write to with Spark."""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from headrace.spark.sources.committed import listen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUEUE: Final = "headrace"
ENQUEUE: Final = "headrace.enqueue"
TABLE: Final = "headrace.table"
EXPORT: Final = "headrace.export"

_SOURCES: Final = {
    "queue": "QueueSource",
    "enqueue": "EnqueueSource",
    "table": "TableSource",
    "export": "ExportSource",
}
"""By the module of each, imported only here: it needs PySpark, and some need DynamoDB."""


def register(spark: "SparkSession") -> None:
    """Make every format known to *spark*; may be called again.

    >>> register(spark)
    >>> spark.read.format("headrace").option("queue", "mail").load()
    """
    for module, source in _SOURCES.items():
        spark.dataSource.register(getattr(import_module(f"{__name__}.{module}"), source))
    listen(spark)
