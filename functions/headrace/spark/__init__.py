"""The data pipeline on Spark, with ``pip install headrace[spark]``; no other package imports it.

>>> from headrace.spark import Station, register
>>> from headrace.spark.session import session

``session(name)`` starts Spark with the right settings, ``register(spark)`` makes the
formats ``headrace``, ``headrace.enqueue``, ``headrace.table`` and ``headrace.export`` known, and a
``Station`` moves tasks from one queue to the next:

>>> def cleaned(tasks):
...     value = f.get_json_object("payload", "$.value").cast("double")
...     return tasks.withColumn("action", f.when(value.isNull(), "fail").otherwise("move"))
>>> Station(queue="raw", to="clean", transform=cleaned).run(session("cleaning"), drain=True)
"""

from importlib import import_module
from typing import TYPE_CHECKING

from headrace import needing

if TYPE_CHECKING:
    from headrace.spark.sources import register
    from headrace.spark.stations.station import Station

__all__ = ["Station", "register"]

_PLACES = {
    "Station": "headrace.spark.stations.station",
    "register": "headrace.spark.sources",
}


def __getattr__(name: str) -> object:
    """Import a name only on first use: the lake's jobs need neither boto3 nor a queue."""
    if name not in _PLACES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    with needing("pyspark", f"headrace.spark.{name}", "spark"):
        return getattr(import_module(_PLACES[name]), name)
