"""`headrace station start`: a process of its own, which people stop and machines kill."""

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.request import urlopen

import pytest

from benchmarks.spark.chaos import survived
from headrace.spark.sources.options import table
from headrace.spark.sources.reading import READING
from headrace.spark.sources.settle_target import WRITING
from headrace.spark.stations.__main__ import main
from infra import PROJECT_ROOT
from tests.pipeline.harness import AT_ONCE, PipelineHarness
from tests.processes import free_port
from tests.waiting import until

SOON = 300.0  # seconds until a test gives up

MODULE = """
from headrace.spark import Station
from tests.pipeline import transforms

sleepy = Station(
    queue="in", to="out", transform=transforms.slow(1), max_rows=20, lease_seconds=3,
    grace_seconds=30,
)
wrong = Station(queue="in", to="out", transform=lambda tasks: tasks.where("nix > 1"))
"""


@dataclass
class StationProcess:
    """A station under way, and what it has told so far, in lines."""

    process: subprocess.Popen[str]
    lines: list[dict[str, object]]
    reader: threading.Thread

    def wait_for_batch(self) -> None:
        until(lambda: self.lines, SOON)

    def end(self) -> int:
        code = self.process.wait(SOON)
        self.reader.join(SOON)
        return code


@contextmanager
def command(harness: PipelineHarness, folder: Path, *words: str) -> Iterator[StationProcess]:
    """Run `headrace station start` on the file of *harness*, in *folder*."""
    (folder / "stations.py").write_text(MODULE)
    where = {
        "HEADRACE_URL": harness.connection.url or "",
        "PYTHONPATH": os.pathsep.join([str(PROJECT_ROOT / "functions"), str(PROJECT_ROOT)]),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli.main", "--json", "station", "start", *words],
        cwd=folder,
        env={**os.environ, **where},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines: list[dict[str, object]] = []
    reader = threading.Thread(target=_read, args=(process.stdout, lines), daemon=True)
    reader.start()
    try:
        yield StationProcess(process, lines, reader)
    finally:
        process.kill()
        process.wait()
        reader.join(SOON)
        process.stdout.close()


def _read(out: IO[str], lines: list[dict[str, object]]) -> None:
    lines.extend(json.loads(line) for line in out)


@pytest.fixture
def pipeline(harness: PipelineHarness) -> PipelineHarness:
    harness.queue("in", retry=AT_ONCE)
    harness.queue("out")
    return harness


@pytest.mark.slow
def test_asked_to_end_it_finishes_its_batch_and_holds_nothing(
    pipeline: PipelineHarness, tmp_path: Path
) -> None:
    pipeline.fill("in", 200)

    port = free_port()
    words = ("stations:sleepy", "--cloudwatch", f"--prometheus={port}")
    with command(pipeline, tmp_path, *words) as reported:
        reported.wait_for_batch()
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            served = answer.read().decode()
        reported.process.send_signal(signal.SIGTERM)
        code = reported.end()

    assert code == 0
    assert reported.lines[-1]["ended"] == "stopped"
    moved = len(pipeline.tasks("out"))
    assert 0 < moved == reported.lines[-1]["moved"]
    assert moved == sum(int(str(line["Tasks"])) for line in reported.lines if "_aws" in line)
    moves = 'headrace_station_tasks_total{outcome="moved",station="stations:sleepy"} '
    assert float(served.split(moves)[1].split()[0]) > 0
    assert pipeline.states("in") == {"ENQUEUED": 200 - moved}
    assert {task.attempts for task in pipeline.tasks("in")} == {0}


@pytest.mark.slow
def test_killed_workers_and_drivers_cost_no_task_and_the_proof_finds_nothing(
    tmp_path: Path,
) -> None:
    """Each task goes through two stations, and a stream writes it to Parquet."""
    outcome = survived(tmp_path, tasks=800, workers=6, drivers=3, stream=True, away=5)

    assert outcome.holds, "\n".join(outcome.lines())
    assert outcome.workers_killed + outcome.drivers_killed > 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("stations", "names no station: say module:station"),
        ("no.such:station", "there is no module no"),
    ],
)
def test_a_name_that_is_no_station_is_told_in_a_line(
    name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name]) == 2

    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Station(to_queue='x')", "module broken: TypeError: Station.__init__() got an unexpected"),
        ("def (", "module broken: SyntaxError: "),
        ("Station(queue='a b', transform=len)", "station: queue must be"),
    ],
)
def test_a_module_that_cannot_be_imported_is_told_in_a_line(
    text: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "broken.py").write_text(f"from headrace.spark import Station\n{text}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    importlib.invalidate_caches()

    assert main(["broken:station"]) == 2

    error = capsys.readouterr().err
    assert error.startswith(f"error: {message}")
    assert error.count("\n") == 1


def test_the_guide_shows_the_options_that_there_are() -> None:
    guide = (PROJECT_ROOT / "docs" / "reference" / "spark-headrace.md").read_text()

    assert table(READING) in guide
    assert table(WRITING) in guide
