"""Whoever has had the least time comes next."""

from collections import Counter
from collections.abc import Iterator

import pytest

from headrace.ops.delivery.reaping import Job, Turns
from tests.manual_clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def job(
    name: str, clock: ManualClock, seen: list[str], steps: int, seconds: float
) -> Iterator[None]:
    for _ in range(steps):
        seen.append(name)
        clock.forward(seconds)
        yield


def run(clock: ManualClock, steps: int, *jobs: tuple[str, float, float]) -> list[str]:
    """Take so many steps of jobs with a name, a time for each step, and a share."""
    seen: list[str] = []
    turns = Turns(
        (Job(name, job(name, clock, seen, 1_000, seconds), share) for name, seconds, share in jobs),
        clock,
    )
    for _ in range(steps):
        next(turns)
    return seen


def test_those_who_take_the_same_time_take_turns(clock: ManualClock) -> None:
    assert run(clock, 6, ("a", 1, 1), ("b", 1, 1), ("c", 1, 1)) == list("abcabc")


def test_where_no_time_passes_they_take_turns_too(clock: ManualClock) -> None:
    assert run(clock, 6, ("a", 0, 1), ("b", 0, 1), ("c", 0, 1)) == list("abcabc")


def test_each_has_a_first_step_before_any_has_a_second(clock: ManualClock) -> None:
    assert run(clock, 3, ("slow", 9, 1), ("b", 1, 1), ("c", 0.1, 3))[:3] == ["slow", "b", "c"]


def test_a_slow_one_costs_the_others_no_more_than_its_share(clock: ManualClock) -> None:
    began = clock()
    seen = Counter(run(clock, 110, ("slow", 5, 1), ("quick", 0.1, 1)))

    assert seen["slow"] * 5 == pytest.approx(seen["quick"] * 0.1, abs=5.1)
    assert (clock() - began).total_seconds() < 30


def test_time_is_divided_by_the_shares(clock: ManualClock) -> None:
    seen = Counter(run(clock, 500, ("three", 0.1, 3), ("one", 0.1, 1), ("another", 0.1, 1)))

    assert seen == {"three": 300, "one": 100, "another": 100}


def test_what_one_does_not_need_the_others_get(clock: ManualClock) -> None:
    seen: list[str] = []
    turns = Turns(
        [
            Job("short", job("short", clock, seen, 2, 1)),
            Job("long", job("long", clock, seen, 9, 1)),
        ],
        clock,
    )

    list(turns)

    assert Counter(seen) == {"short": 2, "long": 9}
    assert turns.next is None


def test_a_job_of_jobs_is_a_job(clock: ManualClock) -> None:
    seen: list[str] = []
    inner = Turns((Job(name, job(name, clock, seen, 99, 1)) for name in "ab"), clock)
    turns = Turns([Job("many", inner), Job("c", job("c", clock, seen, 99, 1))], clock)

    for _ in range(8):
        next(turns)

    assert Counter(seen) == {"a": 2, "b": 2, "c": 4}


def test_it_tells_whose_turn_it_is_and_how_many_have_had_none(clock: ManualClock) -> None:
    seen: list[str] = []
    turns = Turns((Job(name, job(name, clock, seen, 9, 1)) for name in "abc"), clock)
    reported = []
    for _ in range(4):
        reported.append((turns.next, turns.new))
        next(turns)

    assert reported == [("a", 3), ("b", 2), ("c", 1), ("a", 0)]


def test_what_a_job_raises_is_raised_and_ends_it(clock: ManualClock) -> None:
    def broken() -> Iterator[None]:
        yield
        raise RuntimeError("broken")

    seen: list[str] = []
    turns = Turns([Job("bad", broken()), Job("good", job("good", clock, seen, 3, 1))], clock)
    next(turns)
    next(turns)
    with pytest.raises(RuntimeError, match="broken"):
        next(turns)

    list(turns)

    assert seen == ["good"] * 3
