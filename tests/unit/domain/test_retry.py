"""When a failed task is tried again: the numbers of design 1, section 4."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain.retry import Backoff, RetryStrategy

EVEN = 0.5  # the spread that leaves a wait as it is
TODAY = RetryStrategy(base_seconds=3, max_delay_seconds=1000, intervals=(1, 2.5, 60), jitter=0)

kinds = st.sampled_from(Backoff)
waits = st.floats(0, 2_592_000) | st.integers(0, 2_592_000)
strategies = st.builds(
    RetryStrategy,
    kind=kinds,
    max_retries=st.integers(0, 100),
    base_seconds=st.floats(0, 86_400) | st.integers(0, 86_400),
    max_delay_seconds=waits,
    jitter=st.floats(0, 1),
    intervals=st.lists(waits, min_size=1, max_size=100).map(tuple),
)
spreads = st.floats(0, 1, exclude_max=True)


def test_a_new_queue_waits_exponentially_from_twenty_seconds_to_an_hour() -> None:
    waited = [RetryStrategy().delay_seconds(retry, EVEN) for retry in range(1, 11)]

    assert waited == [20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600]


def test_the_wait_is_capped_before_it_is_spread() -> None:
    strategy = RetryStrategy(base_seconds=500, max_delay_seconds=100, jitter=0.5)

    assert strategy.delay_seconds(1, 0.0) == 50
    assert strategy.delay_seconds(1, 0.5) == 100
    assert strategy.delay_seconds(1, 0.75) == 125  # over the cap, as promised


def test_the_intervals_of_a_list_are_capped_too() -> None:
    strategy = RetryStrategy(Backoff.INTERVALS, intervals=(5, 50), max_delay_seconds=10, jitter=0)

    assert [strategy.delay_seconds(retry, EVEN) for retry in (1, 2)] == [5, 10]


@given(strategies, st.integers(1, 101), spreads)
def test_jitter_stays_within_its_share_of_the_wait(
    strategy: RetryStrategy, retry: int, spread: float
) -> None:
    even = replace(strategy, jitter=0).delay_seconds(retry, spread)

    wait = strategy.delay_seconds(retry, spread)

    low, high = even * (1 - strategy.jitter), even * (1 + strategy.jitter)
    assert low * (1 - 1e-9) <= wait <= high * (1 + 1e-9)
    assert 0 <= even <= strategy.max_delay_seconds


@pytest.mark.parametrize("kind", list(Backoff))
def test_a_huge_retry_number_waits_no_longer_than_the_cap(kind: Backoff) -> None:
    strategy = replace(TODAY, kind=kind, base_seconds=86_400)

    for retry in (1_024, 10**18):
        wait = strategy.delay_seconds(retry, EVEN)
        assert math.isfinite(wait)
        assert 0 <= wait <= strategy.max_delay_seconds
