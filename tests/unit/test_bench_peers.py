"""What `make bench-peers` makes of its stamps; the peers themselves run only there."""

import json
import math
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from infra import PROJECT_ROOT
from tests.bench.peers import report
from tests.bench.peers.brokers import LeftOut
from tests.bench.peers.catalogue import FILE, HTTP, PEERS, Programs, Runtime
from tests.bench.peers.cpu import processes
from tests.bench.peers.figures import (
    Drain,
    Stamp,
    drained,
    probe_waits,
    ratio,
    stamps_in,
    summary,
)
from tests.bench.peers.stamp import RECORD

_SECOND = 1_000_000_000
APPS = Path(report.__file__).parent / "apps"


def _figures(per_second: float, idle: float | None = None, cpu: float = 0.5) -> dict[str, Any]:
    """A row of one round; workers and broker share the CPU."""
    drain = Drain(
        tasks=100,
        per_second=per_second,
        seconds=1.0,
        repeated=0,
        least_share=0.5,
        workers_cpu=cpu / 2,
        broker_cpu=cpu / 2,
    )
    return summary([drain], [] if idle is None else [idle]) | {"version": "1.0"}


def test_stamps_are_read_in_the_order_of_their_time_without_a_half_written_one() -> None:
    content = RECORD.pack(2, 20, 1) + RECORD.pack(1, 10, 0) + b"half"
    assert stamps_in(content) == [Stamp(1, 10, 0), Stamp(2, 20, 1)]


def test_a_rate_counts_neither_the_start_nor_the_end_of_a_drain() -> None:
    # Ten tasks a second, but the first took a minute to come and the last another.
    times = [0, *(60 * _SECOND + number * _SECOND // 10 for number in range(98)), 200 * _SECOND]
    found = drained([Stamp(number, at, number % 2) for number, at in enumerate(times)], workers=2)
    assert found.per_second == pytest.approx(10)
    assert found.seconds == 200
    assert found.least_share == 0.5


def test_a_rate_begins_when_the_second_worker_does() -> None:
    # One worker alone does a task a second; with the other from the fortieth, ten a second.
    times = [*range(40), *(40 + number / 10 for number in range(60))]
    found = drained(
        [
            Stamp(number, int(at * _SECOND), number % 2 if number >= 40 else 0)
            for number, at in enumerate(times)
        ],
        workers=2,
    )
    assert found.per_second == pytest.approx(10)


def test_a_worker_that_begins_late_does_not_take_the_rate_away() -> None:
    stamps = [Stamp(number, number * _SECOND, int(number == 99)) for number in range(100)]
    assert drained(stamps, workers=2).per_second == pytest.approx(1)


def test_a_task_that_ran_twice_counts_once_and_is_told_of() -> None:
    stamps = [Stamp(number, number * _SECOND, 0) for number in range(20)]
    found = drained([*stamps, Stamp(3, 21 * _SECOND, 1)], workers=2)
    assert (found.tasks, found.repeated, found.least_share) == (20, 1, 0)
    assert found.seconds == 19


def test_a_rate_of_too_few_tasks_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 10 tasks: there are 1"):
        drained([Stamp(0, 0, 0)], workers=2)


def test_latency_looks_only_at_the_tasks_that_were_probes() -> None:
    stamps = [Stamp(1, 5_000_000, 0), Stamp(7, 12_000_000, 0), Stamp(8, 24_000_000, 1)]
    assert probe_waits({7: 10_000_000, 8: 20_000_000}, stamps) == [2.0, 4.0]


def test_the_median_of_the_rounds_speaks_for_a_peer() -> None:
    drains = [Drain(100, rate, 100 / rate, 0, 0.5) for rate in (30.0, 10.0, 20.0)]
    found = summary(drains, [])
    assert (found["per_second"], found["per_second_least"], found["per_second_most"]) == (
        20,
        10,
        30,
    )
    assert found["idle_p50_ms"] is None


def test_each_bar_that_is_missed_gets_a_line_of_its_own() -> None:
    found = report.bars(
        {
            "headrace-file": _figures(700.0, 8.0, cpu=0.9),
            "headrace-http": _figures(200.0, 3.0),
            "dramatiq": _figures(1000.0),
            "celery": _figures(100.0),
            "rq-fork": _figures(10.0),
        }
    )
    assert report.verdicts(found) == [
        "Missed: Headrace, file tasks/s : Dramatiq is 0.70, must be more than 0.8",
        "Missed: Headrace, http tasks/s : Celery, acks late is 2.00, must be more than 3",
        "Missed: Headrace, file CPU of all processes is 0.90 s/1,000, must be under 0.7 s/1,000",
        "Missed: Headrace, file idle latency p50 is 8.00 ms, must be under 5 ms",
    ]


def test_a_goal_lies_beyond_its_bar_and_does_not_fail_the_run() -> None:
    figures = {
        "headrace-file": _figures(900.0, 3.0, cpu=0.6),
        "headrace-http": _figures(400.0, 1.0),
        "dramatiq": _figures(1000.0, cpu=0.4),
        "huey": _figures(500.0),
        "celery": _figures(100.0),
    }
    assert report.verdicts(report.bars(figures)) == []
    assert [(goal.limit, goal.passed) for goal in report.goals(figures)] == [
        (1.0, False),  # Dramatiq's rate
        (1.0, False),  # Huey's
        (0.4, False),  # Dramatiq's CPU
        (2.0, False),  # idle latency over the file
        (2.0, True),  # and over HTTP
    ]


def test_peers_without_a_bar_and_runs_without_headrace_have_no_verdict() -> None:
    others = {peer.name: _figures(1000.0) for peer in PEERS if peer not in (FILE, HTTP)}
    assert report.bars(others) == report.goals(others) == []
    assert report.bars({"headrace-http": _figures(1.0), "bullmq": _figures(1000.0)}) == []


def test_cpu_that_cannot_be_read_keeps_no_bar() -> None:
    found = report.bars({"headrace-file": _figures(1.0, cpu=math.nan)})
    assert [bar.passed for bar in found] == [False]


def test_a_peer_left_out_is_named_with_its_reason() -> None:
    notes = report.notes({}, {"celery": "redis-server is missing"})
    assert notes == ["Celery, acks late left out: redis-server is missing"]


def test_a_round_that_others_disturbed_does_not_decide_a_bar() -> None:
    ours = {"per_second_by_round": [200.0, 20.0, 300.0]}
    theirs = {"per_second_by_round": [100.0, 200.0, 100.0]}
    assert ratio(ours, theirs) == 2


def test_headrace_is_measured_both_ways_and_each_peer_has_an_application() -> None:
    assert {FILE, HTTP} <= set(PEERS)
    for peer in PEERS:
        if peer.runtime is Runtime.NODE:
            assert (APPS / f"{peer.app}.js").is_file()
        else:
            assert find_spec(f"tests.bench.peers.apps.{peer.app}")


def test_every_peer_that_has_a_bar_is_measured() -> None:
    everyone = {peer.name: _figures(1.0, 1.0) for peer in PEERS}
    assert [bar.name for bar in report.bars(everyone)] == [
        "Headrace, file tasks/s : RQ, forking",
        "Headrace, file tasks/s : RQ, simple",
        "Headrace, file tasks/s : Procrastinate",
        "Headrace, file tasks/s : Celery, acks late",
        "Headrace, file tasks/s : Huey",
        "Headrace, file tasks/s : Dramatiq",
        "Headrace, http tasks/s : Celery, acks late",
        "Headrace, file CPU of all processes",
        "Headrace, file idle latency p50",
        "Headrace, http idle latency p50",
    ]


def test_without_node_its_peer_is_left_out_with_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    bullmq = next(peer for peer in PEERS if peer.runtime is Runtime.NODE)
    programs = Programs(Path(sys.executable))
    with pytest.raises(LeftOut, match=r"Node\.js is missing"):
        programs.need(bullmq)
    programs.need(FILE)


def test_the_lock_of_bullmq_pins_every_package_and_names_no_registry() -> None:
    lock = json.loads((APPS.parent / "package-lock.json").read_text())
    packages = [package for name, package in lock["packages"].items() if name]
    assert packages
    assert all("integrity" in package for package in packages)
    assert not any("resolved" in package for package in packages)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are read off /proc")
def test_sigterm_leaves_no_broker_running(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.bench.peers", "--python", sys.executable]
    words += ["--only", HTTP.name, "--tasks", "100000", "--data-dir", str(tmp_path)]
    bench = subprocess.Popen(
        [*words, "--json", str(tmp_path / "figures.json")],
        cwd=PROJECT_ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + 60
    while not list(tmp_path.glob("*/broker/data/headrace.db")) and time.monotonic() < until:
        time.sleep(0.1)
    brokers = {pid for pid, one in processes().items() if one.parent == bench.pid}
    assert brokers

    bench.terminate()

    assert bench.wait(60) == 143
    assert not brokers & processes().keys()
