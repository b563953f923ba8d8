"""What is wrong with a value that is beyond a limit: one wording, whatever surface took it."""

import math

import pytest

from headrace.domain import limits


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("é" * 5, "must be at most 8 bytes of UTF-8; it is 10"),
        ("", "must not be empty"),
        (7, "must be a string"),
        (None, "must be a string"),
        ("a\ud800", "must be text; it has half of a surrogate pair"),
    ],
)
def test_a_text_that_is_not_is_wrong_by_its_limit(value: object, fault: str) -> None:
    assert limits.text_fault(value, 8, 1) == fault


@pytest.mark.parametrize(
    "value",
    [
        0,
        43_201,
        math.nan,
        -math.inf,
        "5",
        True,
    ],
)
def test_a_number_that_is_not_is_wrong_by_its_bounds_and_unit(value: object) -> None:
    assert limits.number_fault(value, (1, 43_200), unit="seconds") == (
        f"must be a number from 1 to 43200 seconds, not {value!r}"
    )
