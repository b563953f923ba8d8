"""Values as people type them, and as they are shown."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import click
import pytest

from headrace.cli import output, params


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (params.seconds, "1.5", 1.5),
        (params.seconds, "250ms", 0.25),
        (params.seconds, "1h30m", 5400),
        (params.listening, "9000", ("127.0.0.1", 9000)),
        (params.listening, "[::1]:80", ("::1", 80)),
        (params.instant, "2026-11-21T09:00:00+01:00", datetime(2026, 11, 21, 8, tzinfo=UTC)),
        (params.day, "2026-11-21", date(2026, 11, 21)),
        (params.assignment, "a.b=x y", (("a", "b"), "x y")),
        (params.assignment, "a=null", (("a",), None)),
    ],
)
def test_values_are_read(read: Callable[[str], Any], text: str, value: object) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "texts", "message"),
    [
        (params.seconds, ["", "-1", "5x", "30m1h", "nan"], "must be a duration, for example"),
        (params.listening, ["", ":9000", "65536", "host", "٣"], "must be a port or address"),
        (
            params.day,
            ["+1d", "30d", "2026-11-21T08:00:00Z"],
            "must be a day, for example 2026-11-21",
        ),
    ],
)
def test_other_values_are_refused_with_an_example(
    read: Callable[[str], Any], texts: list[str], message: str
) -> None:
    for text in texts:
        with pytest.raises(click.BadParameter, match=message):
            read(text)


def test_instants_and_days_may_be_relative() -> None:
    hour_ago = datetime.now(UTC) - timedelta(hours=1)

    assert abs(params.instant("-1h") - hour_ago) < timedelta(minutes=1)
    assert params.day("-30d") == (datetime.now(UTC) - timedelta(days=30)).date()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (1234567, "1,234,567"),
        (["a", None], "a, -"),
        ({"a": 1}, "a=1"),
        (datetime(2026, 11, 21, 8, tzinfo=UTC), "2026-11-21 08:00:00Z"),
    ],
)
def test_cells_show_values_as_people_read_them(value: object, text: str) -> None:
    assert output.cell(value).plain == text


def test_text_from_outside_is_shown_as_it_is_and_makes_no_row(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.rows(("Worker", "Queues"), [("[red]x[/red]\n:smile:\r\nw-2  mail", "mail")])

    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 3  # the names of the columns, a rule, one worker
    assert shown[2].startswith(r"[red]x[/red]\n:smile:\nw-2")
