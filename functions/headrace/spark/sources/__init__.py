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

_KNOWN: Final = "DATA_SOURCE_ALREADY_EXISTS"
_SOURCES: Final = {
    "queue": "QueueSource",
    "enqueue": "EnqueueSource",
    "table": "TableSource",
    "export": "ExportSource",
}
"""By the module of each, imported only here: it needs PySpark, and some need DynamoDB."""


def register(spark: "SparkSession") -> None:
    """Make every format known to *spark*, and tell its streams of commits; may be called again.

    Where this package is installed, Spark knows the formats by ``pyspark_headrace`` already.

    >>> register(spark)
    >>> spark.read.format("headrace").option("queue", "mail").load()
    """
    from pyspark.errors import AnalysisException  # noqa: PLC0415  only in a driver

    for module, source in _SOURCES.items():
        made = getattr(import_module(f"{__name__}.{module}"), source)
        try:
            spark.dataSource.register(made)
        except AnalysisException as error:
            if error.getCondition() != _KNOWN:  # Spark 4.0 has found it by itself
                raise
    listen(spark)
