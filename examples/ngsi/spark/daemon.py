"""What Spark forks its Python workers from: it has imported already what they all need."""

from pyspark.daemon import manager

import examples.ngsi.spark.play
import headrace.spark.stations.jobs

__all__ = ["examples", "headrace"]

if __name__ == "__main__":
    manager()
