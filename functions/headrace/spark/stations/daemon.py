"""The process from which Spark's Python workers are forked, with all imports that stations need.

Spark starts one on each machine (``spark.python.daemon.module``).  A worker that is forked from it
starts without importing, which else takes half a second of CPU, also for the new workers after a
part of a job has failed.
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
