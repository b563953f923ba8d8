"""Tokens are pieces of a line: whoever draws, keeps and uses them, the rate is never exceeded."""

from datetime import timedelta
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.domain.queue import IntervalUnit, RateLimiting
from headrace.domain.rate import Bucket, Draw, Piece, Rate, Share
from tests.manual_clock import ManualClock

START = ManualClock()()
SECOND = timedelta(seconds=1)


def drawn(rate: Rate, bucket: Bucket | None, tokens: int, at: timedelta) -> Bucket | None:
    """Return the bucket when *tokens* are drawn from it; None if it has not so many."""
    now = rate.at(START + at)
    draw = Draw(rate, START, rate.length(tokens), now, now + rate.span)
    return draw.apply(bucket) if draw.allowed(bucket) else None


@pytest.mark.parametrize(
    ("unit", "seconds"),
    [(IntervalUnit.SECONDS, 3), (IntervalUnit.MINUTES, 180), (IntervalUnit.HOURS, 10_800)],
)
def test_an_interval_counts_its_unit(unit: IntervalUnit, seconds: int) -> None:
    assert Rate.of(RateLimiting(7, 3, unit)) == Rate(7, timedelta(seconds=seconds))


few = st.sampled_from([0, 0, 1, 2, 99])
steps = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0.1, 0.3, 0.5, 1.0]),  # intervals since the step before
        st.integers(0, 1),  # who
        few,  # tokens drawn
        few,  # tokens used, of those held
        st.sampled_from([0, 0, 0.1, 0.3]),  # intervals ahead that they are drawn for
    ),
    max_size=12,
)


@pytest.mark.parametrize("examples", [50, pytest.param(300, marks=pytest.mark.slow)])
def test_no_order_of_drawing_keeping_and_using_exceeds_the_rate(examples: int) -> None:
    @settings(max_examples=examples)
    @given(steps, st.sampled_from([Rate(1, SECOND), Rate(3, SECOND), Rate(4, 3 * SECOND)]))
    def run(done: list[tuple[float, int, int, int, float]], rate: Rate) -> None:
        the_rate_is_kept(done, rate)

    run()


def the_rate_is_kept(done: list[tuple[float, int, int, int, float]], rate: Rate) -> None:
    """Over every window: at most a bucket, and what flows in meanwhile."""
    now, bucket = START, None
    shares = [Share(rate) for _ in range(2)]
    used: list[tuple[timedelta, int]] = []
    for wait, who, tokens, wanted, later in done:
        now += wait * rate.interval
        until = rate.at(now) + rate.span
        ahead = later * rate.interval
        room = bucket.room(now, after=ahead) if bucket else rate.max_tokens
        length = rate.length(min(tokens, room))
        draw = Draw(rate, START, length, rate.at(now + ahead), until)
        if length and draw.allowed(bucket):
            bucket = draw.apply(bucket)
            shares[who].keep(Piece(bucket.given - draw.length, bucket.given, rate))
        got = sum(piece.tokens for piece in shares[who].use(wanted, now))
        used.append((now - START, got))

    for first, (begin, _) in enumerate(used):
        for last, (end, _) in enumerate(used[first:], first):
            in_window = sum(count for _, count in used[first : last + 1])
            assert in_window <= rate.max_tokens * (1 + (end - begin) / rate.interval) + 1e-9


def test_the_bound_is_met_not_missed() -> None:
    """A bucket that is drawn from whenever it can be gives all that its rate allows."""
    rate, bucket, count = Rate(7, SECOND), None, 0
    for millis in range(10_001):
        at = timedelta(milliseconds=millis)
        while (after := drawn(rate, bucket, 1, at)) is not None:
            bucket, count = after, count + 1

    assert count == 7 + ceil(7 * 9.999)
