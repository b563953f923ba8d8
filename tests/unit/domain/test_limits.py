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


def test_a_name_matches_its_pattern_from_end_to_end() -> None:
    assert limits.pattern_fault("mail.eu-1", limits.NAME_RE) is None
    assert limits.pattern_fault("mail eu", limits.NAME_RE) == (
        "must be 1 to 128 ASCII letters, digits, '_', '.' or '-', beginning with a letter or digit,"
        " not 'mail eu'"
    )
    assert limits.pattern_fault("mail\n", limits.NAME_RE) is not None
    assert limits.pattern_fault(None, limits.NAME_RE) is not None


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


def test_a_fraction_is_no_whole_number() -> None:
    fault = "must be a whole number from 0 to 100, not 2.0"
    assert limits.number_fault(2.0, limits.MAX_RETRIES, whole=True) == fault


def test_without_an_upper_bound_the_lower_one_is_named() -> None:
    assert limits.number_fault(1e300, (0, math.inf)) is None
    assert limits.number_fault(-1, (0, math.inf), unit="seconds") == (
        "must be a number of at least 0 seconds, not -1"
    )


def test_everything_wrong_with_tags_is_named() -> None:
    many = {str(number): "" for number in range(9)}
    tags = {**many, "": "x", "k": 1, "v": "a" * 257}
    assert dict(limits.tags_faults(tags)) == {
        None: "must have at most 10 tags; it has 12",
        "": "must not be empty",
        "k": "must be a string",
        "v": "must be at most 256 bytes of UTF-8; it is 257",
    }
    assert list(limits.tags_faults(many)) == []
