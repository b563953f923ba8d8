"""The Spark session that every job here runs in."""

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from headrace.spark.java import prepare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # what all readers understand
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL: Final = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}


class SparkMissing(RuntimeError):
    """PySpark is not installed."""


def session(app_name: str, **conf: str) -> "SparkSession":
    """Return the session, started with *conf* on top of SETTINGS if there is none yet.

    Started by ``spark-submit`` it runs where that says, else on this machine.
    Raises SparkMissing or JavaMissing, each with one line that says what to install.
    """
    if find_spec("pyspark") is None:
        message = "PySpark is missing: pip install 'headrace[spark]'"
        raise SparkMissing(message)
    prepare(conf.get("spark.driver.memory"), conf.get("spark.driver.extraJavaOptions"))
    # Workers are started by name: without this they would be another Python, without our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

    from pyspark.sql import SparkSession  # noqa: PLC0415 (only now is it known to be there)

    builder = SparkSession.builder.appName(app_name)
    for name, value in {**SETTINGS, **({} if submitted else _LOCAL), **conf}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
