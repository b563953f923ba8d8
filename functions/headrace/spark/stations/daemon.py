"""What Spark's Python workers are forked from: with everything imported that stations need.

Spark starts one of these on each machine (``spark.python.daemon.module``).  A worker that is forked
from it begins at once, where one of Spark's own would first import us for half a second of CPU; and
whenever a part of a job fails, its workers are begun anew.
"""

import gc

import pandas as pd  # noqa: F401 (PyArrow looks for it in every process that makes an array)
from pyspark.daemon import manager

import headrace.spark.stations.jobs
import headrace.spark.stations.outcomes  # noqa: F401 (so that the workers have it)

if __name__ == "__main__":
    gc.freeze()  # a worker looks for garbage after each part of a job: not among what stays
    manager()
