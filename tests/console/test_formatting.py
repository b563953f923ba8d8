"""Numbers, times, texts and paths, as people and pictures need them."""

import json
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console.chalicelib import charts, formatting
from console.chalicelib.forms import FormErrors, pretty
from headrace.testing.conditions import START

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (999, "999"), (1_000_000, "1\u202f000\u202f000"), (0.5, "0.5"), (62.50, "62.5")],
)
def test_thousands_stand_apart(value: float, shown: str) -> None:
    assert formatting.number(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.5, "0.5"),
        (500_000, "500\u202f000"),
        (5_000_000 * (1 - 0.8), "1\u202fM"),
        (1_500_000, "1.5\u202fM"),
        (2e9, "2\u202fG"),
    ],
)
def test_round_numbers_take_little_room(value: float, shown: str) -> None:
    assert formatting.round_number(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (9_999_999, "9\u202f999\u202f999"),
        (10_000_000, "10\u202fM"),
        (12_399_999, "12.3\u202fM"),
        (999_999_999, "999\u202fM"),
        (1_234_567_890, "1.23\u202fG"),
        (1_234_000_000_000, "1\u202f234\u202fG"),
    ],
)
def test_a_long_number_is_shortened_and_never_says_more_than_there_is(
    value: int, shown: str
) -> None:
    assert formatting.short_number(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (0.999_999_9, "1 s"),
        (59.7, "1 min"),
        (0.25, "250 ms"),
        (3.21, "3.2 s"),
        (59.4, "59 s"),
        (61, "1 min 1 s"),
        (300, "5 min"),
        (7_800, "2 h 10 min"),
        (86_400, "1 d"),
        (1_209_600, "14 d"),
        (-3, "0 s"),
    ],
)
def test_lengths_of_time(seconds: float, shown: str) -> None:
    assert formatting.duration(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "now"), (59, "59 s ago"), (-180, "in 3 min"), (7_200, "2 h ago"), (400_000, "4 d ago")],
)
def test_times_are_told_from_now(seconds: float, shown: str) -> None:
    assert formatting.ago(START - timedelta(seconds=seconds), START) == shown


@pytest.mark.parametrize(
    ("per_second", "shown"),
    [
        (0, "0"),
        (0.001, "< 0.01"),
        (0.123, "0.12"),
        (1.26, "1.3"),
        (1552.5, "1\u202f552"),
        (16_666_667, "16.6\u202fM"),
    ],
)
def test_rates_have_few_figures(per_second: float, shown: str) -> None:
    assert formatting.rate(per_second) == shown


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (10 * 1024**2, "10 MiB")]
)
def test_sizes(count: int, shown: str) -> None:
    assert formatting.size(count) == shown


def test_an_id_loses_its_middle_only_when_it_is_long() -> None:
    assert formatting.cut("tsk_01kx3v9m2p4q6r8s0t2v4w6y8z") == "tsk_01…4w6y8z"
    assert formatting.cut("order-4711") == "order-4711"


# How long an example takes to draw is the machine's business.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(value=JSON, loose=st.booleans())
def test_json_laid_out_is_the_same_json(value: object, *, loose: bool) -> None:
    text = json.dumps(value, indent=3 if loose else None)
    laid_out = pretty(text)

    assert json.loads(laid_out) == value
    assert "".join(pretty(laid_out).split()) == "".join(text.split())


def test_no_number_is_rounded() -> None:
    text = '{"big":12345678901234567890,"exact":0.10000000000000000555,"e":[1E400,-0]}'

    assert pretty(text) == (
        '{\n  "big": 12345678901234567890,\n  "exact": 0.10000000000000000555,\n'
        '  "e": [\n    1E400,\n    -0\n  ]\n}'
    )


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "not json", '{"a": }'])
def test_what_is_not_json_is_left_as_it_is(text: str) -> None:
    assert pretty(text) == text


@pytest.mark.parametrize("text", ["1e3", "٣", "--1", "9" * 400, "1_000", "0x1"])
def test_only_plain_digits_are_a_whole_number(text: str) -> None:
    errors = FormErrors()

    assert errors.whole("n", text, (0, 100)) is None
    assert errors.of("n").startswith("must be a whole number from 0 to 100, not ")


@pytest.mark.parametrize(
    ("highest", "top"), [(0, 1), (1, 1), (3, 5), (6, 10), (11, 20), (0.03, 0.05), (999, 1000)]
)
def test_an_axis_ends_at_a_round_number(highest: float, top: float) -> None:
    assert charts.round_top(highest) == pytest.approx(top)


def test_a_line_touches_the_top_where_it_is_highest() -> None:
    assert charts.line([0, 5, 10], 100, 20, top=10) == "M0.0 20.0L50.0 10.0L100.0 0.0"
    assert charts.area([0, 10], 100, 20, top=10) == "M0.0 20.0L100.0 0.0V20H0Z"
    assert charts.line([], 100, 20, top=1) == ""


def test_a_tiny_chart_says_what_it_shows() -> None:
    assert charts.spark([1, 0, 3], of="started", per="5 min").words == (
        "4 started in the last hour, at most 3 in 5 min"
    )
    assert charts.spark([0, 0], of="started", per="5 min").line == ""
