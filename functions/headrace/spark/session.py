"""The Spark session that every job here runs in."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path
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
_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_QUIET: Final = f'"-Dlog4j2.configurationFile={_LOGGING}"'  # in quotes: a folder may have blanks
_LOCAL: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "",
}


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
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    settings = {**SETTINGS, **({} if submitted else _LOCAL), **conf}
    if not submitted:
        java = "spark.driver.extraJavaOptions"
        settings[java] = f"{_QUIET} {settings[java]}".strip()
        prepare(conf.get("spark.driver.memory"), settings[java])
    # Workers are started by name: without this they would be another Python, without our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if not submitted:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

    from pyspark.sql import SparkSession  # noqa: PLC0415 (only now is it known to be there)

    builder = SparkSession.builder.appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
