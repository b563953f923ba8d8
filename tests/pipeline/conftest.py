"""One Spark session for all tests of the pipeline, and lakes in folders.

Collected only where PySpark is: ``make test-spark``.
"""

import dataclasses
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from botocore.session import Session

from headrace.local.tables import TableNames, create_tables, table_requests
from headrace.spark.session import session
from headrace.store.sqlite import SqliteStore
from tests.engine import EngineMissing, dynamodb_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.spark.lake.frames import LakeFrames
    from headrace.spark.sources.connect import StoreConnection
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
}

# Without a library of its own, Hadoop starts `chmod` for each file and folder that it makes.
_ANY_MODE = """
public class AnyMode extends org.apache.hadoop.fs.RawLocalFileSystem {
    public void setPermission(
        org.apache.hadoop.fs.Path path, org.apache.hadoop.fs.permission.FsPermission mode) {}
}
"""

# Java ends before what its second compiler makes of it has paid off: here, and in every command.
# What is in the jars of PySpark's release needs no look at whether its bytecode is sound.  With one
# compiler Java has 48 MB for what is compiled, which a few rollups fill: it throws some of it away,
# and compiles it again.
_SHORT_RUN = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)

# Java looks for each class in one jar after another, of which Spark has 280: first in these.
_JARS_FIRST = ("spark-catalyst", "spark-sql", "spark-core", "spark-sql-api", "spark-common-utils")
_SETTINGS: list[tempfile.TemporaryDirectory[str]] = []  # there until the tests end

_ANY_CREDENTIALS = {
    "region_name": "us-east-1",
    "aws_access_key_id": "local",
    "aws_secret_access_key": "local",
}


def pytest_configure(config: pytest.Config) -> None:
    """Let PySpark 4.0 and 4.1 leave their own sockets to the garbage collector."""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", _SHORT_RUN)
    _look_first_where_most_is()
    config.addinivalue_line(
        "filterwarnings",
        "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that share the one session: those in a run of their own cost a Spark more."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("session")


def _look_first_where_most_is() -> None:
    """Name some jars before the others to each Spark that is started here, by commands too."""
    found = find_spec("pyspark")
    if found is None or found.origin is None or "SPARK_CONF_DIR" in os.environ:
        return
    jars = Path(found.origin).parent / "jars"
    first = [str(jar) for name in _JARS_FIRST for jar in sorted(jars.glob(f"{name}_*.jar"))]
    first += [str(jar) for jar in jars.glob("scala-library-*.jar")]
    _SETTINGS.append(folder := tempfile.TemporaryDirectory(prefix="headrace-spark-"))
    defaults = Path(folder.name, "spark-defaults.conf")
    defaults.write_text(f"spark.driver.extraClassPath {os.pathsep.join(first)}\n")
    os.environ["SPARK_CONF_DIR"] = folder.name


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """Start Spark once; it takes longer than all the rest."""
    warehouse = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    os.environ["TZ"] = "UTC"  # rows come back as this machine's local time
    time.tzset()
    running = session("headrace tests", **QUICK, **warehouse)
    running.sparkContext.setLogLevel("OFF")
    _leave_modes(running)
    yield running
    running.stop()


def _leave_modes(spark: "SparkSession") -> None:
    """Let files and folders have the modes that they are made with.

    Compiled where Spark compiles its queries, and put into the one file system of this machine
    that Hadoop keeps.
    """
    java: Any = spark._jvm  # noqa: SLF001  there is no other way to Hadoop
    settings: Any = spark._jsc.hadoopConfiguration()  # noqa: SLF001  likewise
    compiler = java.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(java.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(_ANY_MODE)
    files = compiler.getClassLoader().loadClass("AnyMode").newInstance()
    files.initialize(java.java.net.URI("file:///"), settings)
    beneath = java.java.lang.Class.forName("org.apache.hadoop.fs.FilterFileSystem")
    field = beneath.getDeclaredField("fs")
    field.setAccessible(True)
    field.set(java.org.apache.hadoop.fs.FileSystem.getLocal(settings), files)


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
def connection(tmp_path_factory: pytest.TempPathFactory) -> "StoreConnection":
    """Give an empty file."""
    from headrace.spark.sources.connect import StoreConnection  # noqa: PLC0415 (not without PyArrow)

    path = tmp_path_factory.mktemp("file") / "headrace.db"
    SqliteStore(str(path)).close()
    return StoreConnection.of({"url": path.as_uri()})


@pytest.fixture
def harness(connection: "StoreConnection") -> "PipelineHarness":
    """Give an empty file, and what tests do with it."""
    from tests.pipeline.harness import PipelineHarness  # noqa: PLC0415 (not without PyArrow)

    return PipelineHarness(connection)


@pytest.fixture(scope="session")
def dynamodb_endpoint() -> Iterator[str]:
    """Give the URL of AWS's own DynamoDB Local, for tests that are about DynamoDB itself."""
    try:
        with dynamodb_local() as running:
            yield running.url
    except EngineMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def dynamodb_tables(dynamodb_endpoint: str) -> Iterator["StoreConnection"]:
    """Give empty tables on DynamoDB Local."""
    from headrace.spark.sources.connect import StoreConnection  # noqa: PLC0415 (not without PyArrow)

    unique = uuid.uuid4().hex[:12]
    names = TableNames(tasks=f"tasks-{unique}", control=f"control-{unique}")
    client = Session().create_client("dynamodb", endpoint_url=dynamodb_endpoint, **_ANY_CREDENTIALS)
    requests = table_requests()
    for request in requests.values():
        request.pop("ttl", None)  # DynamoDB Local deletes by the real clock
    create_tables(client, requests, names)
    yield StoreConnection(names.tasks, names.control, dynamodb_endpoint, "us-east-1")
    for name in (names.tasks, names.control):
        client.delete_table(TableName=name)
