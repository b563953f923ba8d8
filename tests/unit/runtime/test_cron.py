"""What cron expressions mean, and which are refused."""

from datetime import datetime
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.domain.errors import InvalidRequest
from headrace.ops.scheduling.cron import read_cron


def local(expression: str, start: str = "2026-11-21 08:00:00", count: int = 4) -> list[str]:
    """Return the first local times of an expression behind *start*."""
    found = read_cron(expression).local_times(datetime.fromisoformat(start))
    return [str(time) for time in islice(found, count)]


def days(expression: str, start: str = "2026-11-21 08:00:00", count: int = 4) -> list[str]:
    return [time[:10] for time in local(expression, start, count)]


def test_with_seven_fields_the_last_is_the_year() -> None:
    assert days("0 0 12 1 1 * 2030") == ["2030-01-01"]
    assert days("0 0 0 29 2 * *", count=2) == ["2028-02-29", "2032-02-29"]
    assert days("0 0 0 29 2 * 2032-2050/12,2060") == ["2032-02-29", "2044-02-29", "2060-02-29"]
    assert days("0 0 0 1 1 * 2095/2") == ["2095-01-01", "2097-01-01", "2099-01-01"]
    assert days("0 0 0 1 1 * */50", count=3) == ["2070-01-01"]
    assert local("* * * * * * 2026", "2026-12-31 23:59:58") == ["2026-12-31 23:59:59"]


@pytest.mark.parametrize("sunday", ["0", "7", "sun", "SUN", "Sun"])
def test_sunday_is_0_and_7_and_a_name(sunday: str) -> None:
    assert days(f"0 0 * * {sunday}", count=2) == ["2026-11-22", "2026-11-29"]


def test_names_lists_ranges_and_steps() -> None:
    assert days("0 0 * * MON-WED", count=4) == [
        "2026-11-23",
        "2026-11-24",
        "2026-11-25",
        "2026-11-30",
    ]
    assert days("0 0 * * fri-sun", count=3) == ["2026-11-22", "2026-11-27", "2026-11-28"]
    assert days("0 0 * * tue,6", count=2) == ["2026-11-24", "2026-11-28"]
    assert days("0 0 1 JAN,jul *", count=2) == ["2027-01-01", "2027-07-01"]
    assert days("0 0 1 FEB-DEC/5 *", count=3) == ["2026-12-01", "2027-02-01", "2027-07-01"]
    assert [time[11:16] for time in local("10-40/15 9 * * *")][:3] == ["09:10", "09:25", "09:40"]


def test_l_is_the_last_day_and_5l_the_last_friday() -> None:
    assert days("0 0 L * *", "2028-01-31 12:00:00") == [
        "2028-02-29",
        "2028-03-31",
        "2028-04-30",
        "2028-05-31",
    ]
    for friday in ("5L", "FRIL", "fril"):
        assert days(f"0 0 * * {friday}", count=2) == ["2026-11-27", "2026-12-25"]
    assert days("0 0 * * 0L", count=1) == days("0 0 * * 7L", count=1) == ["2026-11-29"]


def test_number_sign_is_the_nth_weekday() -> None:
    assert days("0 0 * * 5#2", count=2) == ["2026-12-11", "2027-01-08"]
    assert days("0 0 * * MON#1,7#3", count=3) == ["2026-12-07", "2026-12-20", "2027-01-04"]
    assert days("0 0 * * TUE#5", count=2) == ["2026-12-29", "2027-03-30"]


def test_w_is_the_nearest_weekday_of_the_same_month() -> None:
    assert days("0 0 15W * *", count=4) == [
        "2026-12-15",  # a Tuesday
        "2027-01-15",
        "2027-02-15",
        "2027-03-15",
    ]
    assert days("0 0 15W 5 *", count=1) == ["2027-05-14"]  # the 15th is a Saturday
    assert days("0 0 15W 8 *", count=1) == ["2027-08-16"]  # a Sunday
    assert days("0 0 1W 5 *", count=1) == ["2027-05-03"]  # a Saturday, and April is another month
    assert days("0 0 31W 1 *", count=1) == ["2027-01-29"]  # a Sunday
    assert days("0 0 31W * *", count=3) == ["2026-12-31", "2027-01-29", "2027-03-31"]
    assert days("0 0 LW * *", count=3) == ["2026-11-30", "2026-12-31", "2027-01-29"]
    assert days("0 0 1w,15w,L * *", count=3) == ["2026-11-30", "2026-12-01", "2026-12-15"]


def test_day_of_month_or_weekday_when_both_are_given() -> None:
    both = days("0 0 13 * FRI", count=5)

    assert both == ["2026-11-27", "2026-12-04", "2026-12-11", "2026-12-13", "2026-12-18"]
    assert days("0 0 15W * MON", count=3) == ["2026-11-23", "2026-11-30", "2026-12-07"]


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("", "must have 5 fields"),
        ("* * * *", "it has 4"),
        ("@daily", "it has 1"),
        ("60 * * * *", "60 as its minute, which takes 0-59"),
        ("* * 0 * *", "0 as its day-of-month"),
        ("* * * 13 *", "13 as its month, which takes 1-12 or JAN-DEC"),
        ("* * * * FRI-MON", "FRI-MON as its day-of-week"),
        ("* * * * 5#6", "5#6 as its day-of-week"),
        ("* * * * L", "L as its day-of-week"),
        ("0 * * * * * 1969", "1969 as its year, which takes 1970-2099"),
        ("0 * * * * * 2030/0", "as its year"),
        ("*/0 * * * *", "*/0 as its minute"),
        ("1,,2 * * * *", "1,,2 as its minute"),
        ("* * 1-5W * *", "1-5W as its day-of-month"),
        ("0 0 30 2 *", "some month must have that day"),
        ("* * * * *\u00a0*", "ASCII"),
        ("1," * 200 + "1 * * * *", "at most 256"),
    ],
)
def test_a_wrong_expression_is_refused_in_words(expression: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^cron ") as refused:
        read_cron(expression)

    (error,) = refused.value.errors
    assert error.field == "cron"
    assert words in error.message


@pytest.mark.parametrize("examples", [50, pytest.param(300, marks=pytest.mark.slow)])
def test_any_text_is_read_or_refused(examples: int) -> None:
    @settings(max_examples=examples)
    @given(st.text("0123456789*,-/#LWSUNMO? ", max_size=24) | st.text(max_size=20))
    def run(text: str) -> None:
        is_read_or_refused(text)

    run()


def is_read_or_refused(text: str) -> None:
    try:
        expression = read_cron(text)
    except InvalidRequest:
        return
    start = datetime(2026, 11, 21)  # noqa: DTZ001  local time
    found = list(islice(expression.local_times(start), 3))
    assert found == sorted(set(found))
    assert all(time > start for time in found)
