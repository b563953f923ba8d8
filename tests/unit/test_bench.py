"""What `make bench` makes of its measurements; the measurements themselves run only there."""

import math
from dataclasses import fields, replace
from pathlib import Path

import pytest

from tests.bench.bare import BareClient, BareWriteFailed, new_file
from tests.bench.calls import FileEnqueue
from tests.bench.life import _shares
from tests.bench.life_outcome import Measurement, outcome, what_bounds
from tests.bench.load import ProcessCpu, StateOfLoad, busiest, family
from tests.bench.results import Bar

QUIET = Measurement(**{field.name: 0.0 for field in fields(Measurement)})
SERVICE = replace(QUIET, tasks_per_second=1_000.0, service_cpu=0.5, answering_cpu=0.5, write=8.0)
BARE = replace(QUIET, tasks_per_second=4_000.0, clients_cpu=0.05)


def test_bare_sqlite_takes_tasks_through_their_whole_life(tmp_path: Path) -> None:
    new_file(tmp_path / "bare.db")
    with BareClient(tmp_path / "bare.db", "life") as client:
        ids = client.insert(25)
        client.lease(ids)
        client.succeed(ids)

        with pytest.raises(BareWriteFailed, match="0 of 25"):
            client.lease(ids)


def test_the_tasks_of_a_turn_are_shared_in_whole_batches() -> None:
    assert _shares(2_000, 4) == [500, 500, 500, 500]
    assert _shares(130, 4) == [30, 50, 25, 25]


def test_ratios_are_the_medians_of_the_turns_and_not_of_the_figures(tmp_path: Path) -> None:
    slow = replace(BARE, tasks_per_second=2_000.0, clients_cpu=0.1)
    found = outcome([SERVICE] * 3, [BARE, slow, slow], [1.0], tasks=100, clients=4, parent=tmp_path)
    assert found.figures["share_of_bare_sqlite"] == 0.5
    assert found.figures["cpu_of_bare_sqlite"] == 5.0


def test_what_could_not_be_measured_keeps_no_bar() -> None:
    assert not Bar("CPU", math.nan, 1.0, at_most=True).passed


@pytest.mark.parametrize(
    ("change", "sync_ms", "bound"),
    [
        ({}, 10.0, "The disk"),
        ({"answering_cpu": 0.9}, 0.1, "The service's one interpreter"),
        ({"others_busy": 1.4}, 0.1, "The processors"),
        ({}, 0.1, "Waiting of calls for each other"),
    ],
)
def test_what_bounds_the_rate_is_named(
    change: dict[str, float], sync_ms: float, bound: str
) -> None:
    assert what_bounds(replace(SERVICE, **change), sync_ms, cores=2).startswith(bound)


def test_an_enqueue_is_judged_without_the_one_sync_that_it_needs() -> None:
    assert FileEnqueue(9, 3.5, 9.0, 0.4, 3.0, 8.0).besides_ms == 0.5


def test_others_are_named_by_program_and_the_benchmark_is_not() -> None:
    before = {
        1: ProcessCpu("init", 0, 1.0, 0.0),
        5: ProcessCpu("bench", 1, 1.0, 0.0),
        7: ProcessCpu("make", 1, 1.0, 0.0),
    }
    after = {
        1: ProcessCpu("init", 0, 1.0, 9.0),
        5: ProcessCpu("bench", 1, 9.0, 0.0),
        6: ProcessCpu("service", 5, 9.0, 0.0),
        7: ProcessCpu("make", 1, 2.0, 0.0),
        8: ProcessCpu("java", 7, 3.0, 0.0),
        9: ProcessCpu("java", 7, 1.0, 0.0),
    }
    ours = family(5, after)
    busy = busiest(before, after, leave_out=ours, seconds=10.0)
    assert [(one.program, one.cores) for one in busy] == [("java", 0.4), ("make", 0.1)]
    line = str(StateOfLoad((1.0, 1.0, 1.0), (2.0, 1.0, 1.0), 0.5, busy))
    assert line.startswith("Load 1.0 before, 2.0 after; others kept 0.50 of ")
    assert line.endswith(" processors busy (java 0.40, make 0.10).")
