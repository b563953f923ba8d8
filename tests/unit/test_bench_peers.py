"""What `make bench-peers` makes of its stamps; the peers themselves run only there."""

from importlib.util import find_spec
from typing import Any

import pytest

from tests.bench.peers import report
from tests.bench.peers.catalogue import HEADRACE, PEERS
from tests.bench.peers.figures import (
    Drain,
    Latency,
    Stamp,
    drained,
    latency,
    ratio,
    stamps_in,
    summary,
)
from tests.bench.peers.stamp import RECORD

_SECOND = 1_000_000_000


def _figures(per_second: float, idle_p50: float | None = None) -> dict[str, Any]:
    drain = Drain(tasks=100, per_second=per_second, seconds=1.0, repeated=0, least_share=0.5)
    idle = None if idle_p50 is None else Latency(p50=idle_p50, p95=idle_p50, count=9)
    return summary([drain], idle) | {"version": "1.0"}


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
    found = latency({7: 10_000_000, 8: 20_000_000}, stamps)
    assert (found.p50, found.count) == (3.0, 2)


def test_the_median_of_the_rounds_speaks_for_a_peer() -> None:
    drains = [Drain(100, rate, 100 / rate, 0, 0.5) for rate in (30.0, 10.0, 20.0)]
    found = summary(drains, None)
    assert (found["per_second"], found["per_second_least"], found["per_second_most"]) == (
        20,
        10,
        30,
    )
    assert found["idle_p50_ms"] is None


def test_each_bar_that_is_missed_gets_a_line_of_its_own() -> None:
    found = report.bars(
        {"headrace": _figures(500.0, 80.0), "celery": _figures(1000.0), "rq-fork": _figures(100.0)}
    )
    assert report.verdicts(found) == [
        "Missed: Tasks per second : Celery, acks late is 0.50, must be more than 1",
        "Missed: Idle latency p50 is 80.00 ms, must be under 60 ms",
    ]


def test_peers_without_a_bar_and_runs_without_headrace_have_no_verdict() -> None:
    assert report.bars({"headrace": _figures(1.0), "huey": _figures(1000.0)}) == []
    assert report.bars({"celery": _figures(1000.0)}) == []


def test_a_peer_left_out_is_named_with_its_reason() -> None:
    notes = report.notes({}, {"celery": "redis-server is missing"})
    assert notes == ["Celery, acks late left out: redis-server is missing"]


def test_a_round_that_others_disturbed_does_not_decide_a_bar() -> None:
    ours = {"per_second_by_round": [200.0, 20.0, 300.0]}
    theirs = {"per_second_by_round": [100.0, 200.0, 100.0]}
    assert ratio(ours, theirs) == 2


def test_headrace_is_among_the_peers_and_each_has_an_application() -> None:
    assert HEADRACE in PEERS
    for peer in PEERS:
        assert find_spec(f"tests.bench.peers.apps.{peer.app}")
    assert {peer.name for peer in PEERS if peer.bar} == {
        "rq-fork",
        "rq-simple",
        "celery",
        "procrastinate",
    }
