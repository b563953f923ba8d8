"""One Spark session for all tests of the pipeline, and lakes in folders.

Collected only where PySpark is: ``make test-spark``.
"""

import dataclasses
import os
import shutil
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.local.engine import Engine
from headrace.local.tables import TableNames
from headrace.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.spark.lake.frames import LakeFrames
    from tests.pipeline.harness import Again, PipelineHarness

collect_ignore_glob = [] if find_spec("pyspark") else ["*.py"]

QUICK = {
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    # To compile a query takes longer than to run it on rows as few as these.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Nor does a plan's every column need the line of Python that it came from.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.python.daemon.module": "headrace.spark.stations.daemon",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
}


def pytest_configure(config: pytest.Config) -> None:
    """Let PySpark 4.0 and 4.1 leave their own sockets to the garbage collector."""
    config.addinivalue_line(
        "filterwarnings",
        "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning",
    )


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """Start Spark once; it takes longer than all the rest."""
    warehouse = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    os.environ["TZ"] = "UTC"  # rows come back as this machine's local time
    time.tzset()
    running = session("headrace tests", **QUICK, **warehouse)
    running.sparkContext.setLogLevel("OFF")
    yield running
    running.stop()


@pytest.fixture
def lake(spark: "SparkSession", tmp_path: Path) -> "LakeFrames":
    """Give an empty lake in a folder."""
    from headrace.spark.lake.frames import LakeFrames  # noqa: PLC0415 (not without PySpark)

    return LakeFrames(spark, str(tmp_path / "lake"))


@pytest.fixture
def again(tmp_path: Path) -> "Again":
    """Give a copy of a lake that several tests begin with, for one of them to change."""

    def copy(lake: "LakeFrames") -> "LakeFrames":
        folder = shutil.copytree(lake.address, tmp_path / "again")
        return dataclasses.replace(lake, address=str(folder))

    return copy


@pytest.fixture
def harness(engine: Engine, tables: TableNames) -> "PipelineHarness":
    """Give empty tables on the engine that all tests share."""
    from headrace.spark.sources.connect import StoreConnection  # noqa: PLC0415 (not without PyArrow)
    from tests.pipeline.harness import PipelineHarness  # noqa: PLC0415 (likewise)

    return PipelineHarness(StoreConnection(tables.tasks, tables.control, engine.url, "us-east-1"))
