"""Durations in buckets: percentiles are at most 2.5 % off, and histograms merge."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.history.tally import RATIO, Histogram, bucket_of

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


@pytest.mark.parametrize("share", [0.5, 0.99])
def test_it_holds_for_the_durations_of_a_busy_minute(share: float) -> None:
    chance = random.Random(11)
    micros = [int(chance.lognormvariate(math.log(40_000), 1.2)) for _ in range(30_000)]

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


@given(many)
def test_what_is_packed_is_what_is_unpacked(micros: list[int]) -> None:
    histogram = counted(micros)

    assert Histogram.unpacked(histogram.packed()) == histogram


def test_nothing_counted_has_no_percentile() -> None:
    assert Histogram().percentile(0.5) is None
    assert Histogram().packed() == []
    assert Histogram().count == 0


def test_no_time_at_all_is_told_as_none_at_all() -> None:
    # Clocks of two machines may make it less than nothing.
    assert counted([0, 0, -5]).percentile(0.99) == 0.0


@pytest.mark.parametrize("bucket", [0, 1, 14, 300, 600])
def test_a_bucket_ends_where_the_next_begins(bucket: int) -> None:
    end = RATIO**bucket

    assert bucket_of(math.floor(end * 1.0001) + 1) > bucket
    assert bucket_of(max(1, math.floor(end * 0.9999))) <= bucket


def test_a_histogram_of_everything_up_to_a_year_stays_small() -> None:
    histogram = counted([int(RATIO**n) for n in range(bucket_of(YEAR) + 1)])

    assert len(" ".join(map(str, histogram.packed()))) < 3000
