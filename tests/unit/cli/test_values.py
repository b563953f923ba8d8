"""Values as people type them, and as they are shown."""

import io
from datetime import UTC, date, datetime, timedelta
from typing import Any

import click
import pytest

from headrace.cli import output, params


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30),
        ("1.5", 1.5),
        ("250ms", 0.25),
        ("90s", 90),
        ("5m", 300),
        ("2H", 7200),
        ("7d", 604_800),
        ("2 w", 1_209_600),
        ("1h30m", 5400),
        ("0", 0),
    ],
)
def test_lengths_of_time(text: str, seconds: float) -> None:
    assert params.seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "-1", "5x", "30m1h", "nan", "inf", "1_000"])
def test_what_is_no_length_of_time(text: str) -> None:
    with pytest.raises(click.BadParameter, match="no length of time such as"):
        params.seconds(text)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("9000", "127.0.0.1", 9000),
        ("0.0.0.0:9000", "0.0.0.0", 9000),  # noqa: S104  what may be asked for
        ("[::1]:80", "::1", 80),
        ("metrics.local:0", "metrics.local", 0),
    ],
)
def test_places_to_listen(text: str, host: str, port: int) -> None:
    assert params.listening(text) == (host, port)


@pytest.mark.parametrize("text", ["", ":9000", "65536", "host:", "host", "-1", "٣", "9000:host"])
def test_what_is_no_place_to_listen(text: str) -> None:
    with pytest.raises(click.BadParameter, match="no place to listen such as"):
        params.listening(text)


@pytest.mark.parametrize(
    ("text", "rate"), [("50", 50), ("50/s", 50), ("3000/m", 50), ("36/h", 0.01), ("86400/d", 1)]
)
def test_rates(text: str, rate: float) -> None:
    assert params.per_second(text) == pytest.approx(rate)


@pytest.mark.parametrize(
    ("text", "size"), [("300", 300), ("4KB", 4000), ("64kib", 65_536), ("0.5k", 500)]
)
def test_sizes(text: str, size: int) -> None:
    assert params.size_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "length"), [("-1h", timedelta(hours=-1)), ("+5m", timedelta(minutes=5))]
)
def test_instants_from_now(text: str, length: timedelta) -> None:
    assert abs(params.instant(text) - datetime.now(UTC) - length) < timedelta(seconds=5)


def test_instants_keep_their_zone() -> None:
    assert params.instant("2026-11-21T09:00:00+01:00") == datetime(2026, 11, 21, 8, tzinfo=UTC)


def test_days_are_named_or_so_long_ago() -> None:
    assert params.day("2026-11-21") == date(2026, 11, 21)
    assert params.day("-30d") == (datetime.now(UTC) - timedelta(days=30)).date()
    for text in ("+1d", "30d", "21.11.2026", "2026-11-21T08:00:00Z"):
        with pytest.raises(click.BadParameter, match="is no day such as 2026-11-21"):
            params.day(text)


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("a=1", ("a",), 1),
        ("a.b=x y", ("a", "b"), "x y"),
        ("a=null", ("a",), None),
        ('a="1"', ("a",), "1"),
        ("a=b=c", ("a",), "b=c"),
        ("a=", ("a",), ""),
    ],
)
def test_assignments(text: str, path: tuple[str, ...], value: Any) -> None:
    assert params.assignment(text) == (path, value)


def test_fields_are_put_into_objects_that_are_made_where_missing() -> None:
    fields: dict[str, Any] = {"a": {"b": 1}, "c": 2}

    params.put_at(fields, ("a", "d"), 3)
    params.put_at(fields, ("c", "e"), 4)

    assert fields == {"a": {"b": 1, "d": 3}, "c": {"e": 4}}


@pytest.mark.parametrize(
    ("seconds", "message"),
    [
        (None, "-"),
        (0.0, "0 s"),
        (0.44, "0.4 s"),
        (9.96, "10 s"),
        (59, "59 s"),
        (90, "1.5 min"),
        (3600, "1 h"),
        (172_800, "2 d"),
    ],
)
def test_lengths_of_time_are_shown_in_their_unit(seconds: float | None, message: str) -> None:
    assert output.span(seconds) == message


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "-"),
        ("", "-"),
        ([], "-"),
        ({}, "-"),
        (True, "yes"),
        (1234567, "1,234,567"),
        (1209600.0, "1,209,600"),
        (0.25, "0.25"),
        (["a", None], "a, -"),
        ({"a": 1}, "a=1"),
        (datetime(2026, 11, 21, 8, tzinfo=UTC), "2026-11-21 08:00:00Z"),
    ],
)
def test_cells_say_values_as_people_read_them(value: object, message: str) -> None:
    assert output.cell(value).plain == message


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "codes"), [(Terminal(), 2), (io.StringIO(), 0)])
def test_colours_are_for_terminals(
    stream: io.StringIO, codes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")

    output.console(stream).print(output.cell("dead", "red"))

    assert stream.getvalue().count("\x1b[") == codes


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()

    output.console(stream).print(output.cell("dead", "red"))

    assert stream.getvalue() == "dead\n"


def test_markup_in_data_is_data(capsys: pytest.CaptureFixture[str]) -> None:
    output.rows(("Tag",), [("[red]x[/red] :smile:",)])

    assert "[red]x[/red] :smile:" in capsys.readouterr().out


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_new_line_in_a_name_makes_no_row_of_a_table(
    end: str, capsys: pytest.CaptureFixture[str]
) -> None:
    output.rows(("Worker", "Queues"), [(f"w-1{end}w-2  mail", "mail")])

    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 3  # the names of the columns, a rule, one worker
    assert shown[2].split()[0] == r"w-1\nw-2"
