"""The demo as a person runs it, only smaller: its own numbers must add up."""

import json
import subprocess
import sys
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


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> "subprocess.CompletedProcess[str]":
    folder = tmp_path_factory.mktemp("demo")
    return demo(f"--notifications={NUMBER}", "--json", f"--keep={folder}")


@pytest.fixture
def summary(run: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    assert run.stdout, run.stderr
    numbers: dict[str, Any] = json.loads(run.stdout)
    return numbers


def test_it_ends_well_with_every_notification_accounted_for(
    run: "subprocess.CompletedProcess[str]", summary: dict[str, Any]
) -> None:
    assert run.returncode == 0, run.stderr
    assert summary["problems"] == []
    assert (summary["notifications"], summary["malformed"]) == (NUMBER, MALFORMED)


def test_readable_notifications_succeed_and_malformed_ones_are_dead(
    summary: dict[str, Any],
) -> None:
    assert summary["tasks"] == {
        "ngsi.notify": {"DEAD": MALFORMED},
        "ngsi.entities": {"SUCCEEDED": NUMBER - MALFORMED},
    }


def test_rows_come_out_exactly_once(summary: dict[str, Any]) -> None:
    assert summary["rows_out"] == summary["rows_expected"] > NUMBER


def test_the_killed_workers_leases_were_reclaimed(summary: dict[str, Any]) -> None:
    assert summary["killed_worker"].startswith("worker-")
    assert summary["reclaimed"] >= summary["held_when_killed"] >= 1


def test_what_it_cost_is_told(summary: dict[str, Any]) -> None:
    # Two queues: one enqueue at two units, then a lease and a report of at least three in each.
    assert summary["write_units_per_task"] >= 13
    assert summary["tasks_per_second"] > 0


def test_a_number_that_makes_no_sense_is_refused_at_once() -> None:
    refused = demo("--notifications=0")

    assert refused.returncode == 2
    assert "1 to 1,000,000" in refused.stderr
