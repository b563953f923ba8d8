"""What Spark's Python workers are forked from: with everything imported that stations need.

Spark starts one of these on each machine (``spark.python.daemon.module``).  A worker that is forked
from it begins at once, where one of Spark's own would first import us for half a second of CPU; and
whenever a part of a job fails, its workers are begun anew.
"""

import gc

import pandas as pd
from pyspark.daemon import manager

import headrace.spark.stations.jobs
import headrace.spark.stations.outcomes

__all__ = ["headrace", "pd"]
"""What the workers have: ours, and pandas, for which PyArrow looks when it makes an array."""

if __name__ == "__main__":
    gc.freeze()  # a worker looks for garbage after each part of a job: not among what stays
    manager()
