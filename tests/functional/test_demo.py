"""The demo as a person runs it, only smaller: its own numbers must add up."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

NUMBER = 60
MALFORMED = 3
PROJECT = Path(__file__).parents[2]


def demo(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "examples.ngsi.demo", *arguments],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def rows_in(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "rows.sqlite")) as connection:
        (number,) = connection.execute("SELECT count(*) FROM entity_rows").fetchone()
    return int(number)


@pytest.mark.slow
# One test, because tests of one file are spread over processes and each would run the demo.
def test_it_ends_well_with_every_notification_accounted_for(tmp_path: Path) -> None:
    run = demo(f"--notifications={NUMBER}", "--json", f"--keep={tmp_path}", "--spark=no")

    assert run.returncode == 0, run.stderr
    summary: dict[str, Any] = json.loads(run.stdout)
    assert summary["problems"] == []
    assert (summary["notifications"], summary["malformed"]) == (NUMBER, MALFORMED)
    assert summary["tasks"] == {
        "ngsi.notify": {"DEAD": MALFORMED},
        "ngsi.entities": {"SUCCEEDED": NUMBER - MALFORMED},
    }
    assert summary["rows_out"] == summary["rows_expected"] > NUMBER
    assert rows_in(tmp_path) == summary["rows_out"]
    assert summary["killed_worker"].startswith("worker-")
    assert summary["reclaimed"] >= summary["held_when_killed"] >= 1
    # Two queues: an enqueue at two units, then a lease and a report of three each, twice over;
    # the few that end dead in the first queue have it cheaper.
    assert summary["write_units_per_task"] >= 13
    assert summary["tasks_per_second"] > 0
    # That part has a test of its own, beside the others that want Spark.
    assert summary["spark"] == {"left_out": "it was left out as asked"}
    assert "Without the part on Spark: it was left out as asked\n" in run.stderr


def test_a_number_that_makes_no_sense_is_refused_at_once() -> None:
    refused = demo("--notifications=0")

    assert refused.returncode == 2
    assert "1 to 1,000,000" in refused.stderr
