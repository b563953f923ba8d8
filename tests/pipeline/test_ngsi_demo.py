"""The demo's part on Spark, on a machine without a Java of its own."""

import os
import sys
from pathlib import Path

import pytest
from rich.console import Console

from examples.ngsi.running import Options
from examples.ngsi.spark_part import by_stations

NUMBER = 60


def without_java(folder: Path) -> str:
    """Fill *folder* with all the programs of this machine but Java; return it as a search path."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*"):
            link = folder / program.name
            if program.name != "java" and not link.is_symlink():
                link.symlink_to(program)
    return str(folder)


@pytest.mark.slow
def test_it_runs_on_the_java_that_pip_brings_and_accounts_for_every_notification(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.setenv("PATH", without_java(tmp_path / "bin"))
    for name in ("JAVA_HOME", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    python = Path(sys.executable)
    options = Options(NUMBER, json=True, keep=None, timeout=60, spark=python)

    summary = by_stations(options, python, work, Console(quiet=True))

    assert summary.problems == ()
    assert int(summary.java.partition(".")[0]) >= 25
    assert (summary.notifications, summary.malformed) == (NUMBER, 3)
    assert (summary.late, summary.repeated, summary.worker_killed) == (3, 3, True)
    assert sum(summary.rejected.values()) == 3
    assert summary.readings == sum(one.readings for one in summary.by_type.values())
    assert summary.readings_in_files >= summary.readings
    assert summary.readings_came > summary.readings
    assert {"Room", "Streetlight", "AirQualityObserved"} < set(summary.by_type)
    # What is kept is the table and nothing of the stations' own.
    assert (work / "readings" / "entity_type=Room").is_dir()
    assert not any((work / "readings.claims").rglob("*.parquet"))
