"""Lengths of time are typed as people write them, and read back as they were."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain import times


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30),
        ("90s", 90),
        ("5 min", 300),
        ("1h30m", 5400),
        ("1.5m", 90),
        ("1w2d", 777_600),
        ("250ms", 0.25),
        ("1e3", 1000),
    ],
)
def test_it_is_read(text: str, seconds: float) -> None:
    assert times.read_duration(text) == seconds
    assert isinstance(times.read_duration(text), int) == (seconds == int(seconds))


@pytest.mark.parametrize(
    "text",
    ["", "-5", "5x", "1h 30", "30m1h", "1h1h", "1e999", "٣m"],
)
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be a duration|no end of it"):
        times.read_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0"), (90, "90s"), (120, "2m"), (0.25, "250ms"), (3_661, "1h1m1s")],
)
def test_it_is_written_as_it_is_typed(seconds: float, text: str) -> None:
    assert times.duration_text(seconds) == text


@given(
    st.integers(0, 400 * 86_400) | st.integers(0, 10**9).map(lambda millis: millis / 1000),
)
def test_what_is_written_is_read_as_the_same(seconds: float) -> None:
    assert times.read_duration(times.duration_text(seconds)) == seconds
