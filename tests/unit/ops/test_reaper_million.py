"""A million lapsed leases over a hundred queues are back in the time that can be computed.

Here they are fewer by as much as each pass is shorter, so that it takes as many minutes.
"""

import math

import pytest

from headrace.domain.task import State
from headrace.store.records.reaper import PARTS
from tests.unit.ops.reaper_harness import (
    PASS_SECONDS,
    QUERY,
    READ,
    WORK,
    WRITE,
    ReaperDeployment,
)

PAGE = QUERY + READ + 4 * WRITE + 100 * WORK
"""Seconds for 100 leases: found, read, taken back."""
PASS = int(PASS_SECONDS / PAGE) * 100
"""What one pass takes back."""


def minutes(queues: int, each: int) -> int:
    """Compute how long it takes: a minute alone, then with as many at a time as there may be.

    The largest part has a queue more than the smallest; of each the first pass took as much.
    """
    largest = math.ceil(queues / PARTS)
    return 1 + math.ceil((each - PASS / queues) * largest / PASS)


@pytest.mark.parametrize(
    ("queues", "each", "pass_seconds"),
    [
        pytest.param(
            *(100, 500, PASS_SECONDS / 20),
            marks=pytest.mark.slow,
            id="fifty thousand, in a twentieth of the time",
        ),
        pytest.param(20, 250, PASS_SECONDS / 80, id="five thousand, in an eightieth of the time"),
    ],
)
def test_lapsed_leases_are_back_in_the_computed_time(
    queues: int, each: int, pass_seconds: float
) -> None:
    there = ReaperDeployment(pass_seconds=pass_seconds)
    names = [there.queue(f"q{number:03}") for number in range(queues)]
    for name in names:
        there.leased(name, each)
    scale = PASS_SECONDS / pass_seconds
    computed = minutes(queues, round(each * scale))

    took = there.minutes_until(lambda: there.number(State.INFLIGHT) == 0, most=2 * computed)

    assert took <= computed
    assert there.number(State.ENQUEUED) == queues * each
