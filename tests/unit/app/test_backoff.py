"""Retry strategies by name."""

from datetime import timedelta
from typing import Any

import pytest

from headrace import InvalidRequest, RetryStrategy, backoff


def waits(strategy: RetryStrategy) -> list[float]:
    """The first four waits, without jitter."""
    return [strategy.delay_seconds(retry, 0.5) for retry in range(1, 5)]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (backoff.exponential(timedelta(minutes=1), max_delay=100), [60, 100, 100, 100]),
        (backoff.linear(1.5), [1.5, 3, 4.5, 6]),
        (backoff.quadratic(2), [2, 8, 18, 32]),
        (backoff.fixed(7), [7, 7, 7, 7]),
        (backoff.intervals([1, timedelta(hours=3), 5]), [1, 10800, 5, 5]),
    ],
)
def test_a_backoff_waits_as_its_name_says(strategy: RetryStrategy, expected: list[float]) -> None:
    assert waits(strategy) == expected


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: backoff.exponential(-1), "base must be a number from 0 to 86400 seconds, not -1"),
        (lambda: backoff.quadratic(1, jitter=2), "jitter must be a number from 0 to 1, not 2"),
        (
            lambda: backoff.exponential(7200),
            "max_delay must be at least base, 7200 seconds, not 3600",
        ),
        (lambda: backoff.intervals([1, -1]), r"waits\[1\] must be a number from 0 to 2592000"),
    ],
)
def test_an_argument_out_of_its_limits_is_named(make: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^{message}"):
        make()
