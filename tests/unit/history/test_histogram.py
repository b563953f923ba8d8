"""Durations in buckets: percentiles are at most 2.5 % off, and histograms merge."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.history.tally import Histogram

WORST = 0.025
YEAR = 365 * 24 * 3600 * 1_000_000

durations = st.integers(0, YEAR)
many = st.lists(durations, min_size=1, max_size=200)


def counted(micros: list[int]) -> Histogram:
    histogram = Histogram()
    for each in micros:
        histogram.add(each)
    return histogram


def true_percentile(micros: list[int], share: float) -> float:
    """The smallest duration that *share* of all do not exceed, in seconds."""
    rank = max(1, math.ceil(share * len(micros)))
    return sorted(micros)[rank - 1] / 1_000_000


@given(many, st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0]))
def test_a_percentile_is_at_most_two_and_a_half_percent_off(
    micros: list[int], share: float
) -> None:
    reported = counted(micros).percentile(share)

    assert reported == pytest.approx(true_percentile(micros, share), rel=WORST)


@given(st.lists(many, min_size=1, max_size=5), st.randoms())
def test_histograms_merge_in_any_order_into_that_of_all(
    parts: list[list[int]], chance: random.Random
) -> None:
    whole = counted([each for part in parts for each in part])
    chance.shuffle(parts)

    merged = Histogram()
    for part in parts:
        merged.merge(counted(part))

    assert merged == whole
