"""A step of a series tells of the most that waited within it, not of its end alone."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from headrace.domain.instants import micros_of
from headrace.history.metrics import Steps
from headrace.history.tally import MINUTE, Activity

BEGIN = datetime(2026, 11, 21, 8, tzinfo=UTC)
FIRST = micros_of(BEGIN) // MINUTE


@given(st.lists(st.integers(-50, 50), min_size=30, max_size=30), st.sampled_from((1, 5, 10, 30)))
def test_what_rose_and_fell_within_a_step_is_told(changes: list[int], minutes: int) -> None:
    steps = Steps(BEGIN, minutes, 30 // minutes)
    happened = [(FIRST + at, Activity(backlog=change)) for at, change in enumerate(changes)]

    points = steps.points(reversed(happened))

    level = 0
    for number, point in enumerate(points):
        levels = [level]
        for change in changes[number * minutes : (number + 1) * minutes]:
            levels.append(levels[-1] + change)
        level = levels[-1]
        assert level + point.above == max(levels)


def test_what_several_buffers_counted_of_a_minute_is_one_step() -> None:
    happened = [(FIRST, Activity(backlog=9)), (FIRST, Activity(backlog=-9))]

    [point] = Steps(BEGIN, 5, 1).points(happened)

    assert point.above == 0
