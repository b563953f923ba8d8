"""Numbers as SVG paths: pure arithmetic; macros.html has the elements around them.

A box has its origin in the top left corner.  Values begin at 0, the highest touches the top.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from . import formatting

SPARK_WIDTH: Final = 120
SPARK_HEIGHT: Final = 20
CHART_WIDTH: Final = 320
CHART_HEIGHT: Final = 88
NOTHING: Final = "\u2013"  # a dash, where there is no number
LOUD: Final = "thick"
STYLES: Final = ("solid", "dashed", "dotted", LOUD)
_DOT: Final = 4  # of a chart's width: a value between two gaps

Value = float | None
"""A number, or None for a gap in the line."""


@dataclass(frozen=True, slots=True)
class Spark:
    """A tiny chart: two SVG paths in a box of ``width`` by ``height``, and the same in words."""

    line: str
    area: str
    words: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a chart: an SVG path, and the one below it where it is filled.

    ``style`` distinguishes it without colour: solid, dashed, dotted or thick.
    """

    name: str
    style: str
    path: str
    area: str = ""


@dataclass(frozen=True, slots=True)
class ChartRow:
    """The numbers of one step, in the order of the lines, as text."""

    time: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over time in a box of ``width`` by ``height``, in words, and as a table."""

    title: str
    words: str
    lines: tuple[Series, ...]
    grid: str
    top: str
    first: str
    rows: tuple[ChartRow, ...]
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class ChartLine:
    """One line of a chart before it is drawn; ``style`` is that of its place unless given."""

    name: str
    values: Sequence[Value]
    style: str | None = None


def line(values: Sequence[Value], width: float, height: float, *, top: float) -> str:
    """Return the path of a line through *values*, evenly spaced, with a gap wherever one is None.

    *top* is the highest value.
    """
    step = width / max(1, len(values) - 1)
    path = []
    before: Value = None
    for place, value in enumerate(values):
        if value is not None:
            letter = "M" if before is None else "L"
            alone = before is None and (place + 1 == len(values) or values[place + 1] is None)
            x = min(max(0.0, place * step - _DOT / 2), width - _DOT) if alone else place * step
            path.append(f"{letter}{x:.1f} {height * (1 - value / top):.1f}")
            path.append(f"h{_DOT}" if alone else "")
        before = value
    return "".join(path)


def area(values: Sequence[float], width: float, height: float, *, top: float) -> str:
    """Return the path of the area below that line."""
    if not values:
        return ""
    return f"{line(values, width, height, top=top)}V{height:g}H0Z"


def round_top(highest: float) -> float:
    """Return the least of 1, 2, 5, 10, 20, 50 … that is not below *highest*."""
    if highest <= 0:
        return 1.0
    power = 1.0
    while power > highest:
        power /= 10
    while power * 10 <= highest:
        power *= 10
    return next(step * power for step in (1, 2, 5, 10) if step * power >= highest)


def spark(values: Sequence[float], *, of: str, per: str, within: str = "hour") -> Spark:
    """Return a tiny chart of *values*, which count *of* something *per* some time."""
    highest = max(values, default=0)
    total = sum(values)
    top = highest or 1
    summary = f"{formatting.number(total)} {of} in the last {within}"
    if total:
        summary += f", at most {formatting.number(highest)} in {per}"
    inner = SPARK_HEIGHT - 2  # room for half of the line above and below
    return Spark(
        line(values, SPARK_WIDTH, inner, top=top) if total else "",
        area(values, SPARK_WIDTH, inner, top=top) if total else "",
        summary,
        SPARK_WIDTH,
        SPARK_HEIGHT,
    )


def chart(
    title: str,
    lines: Sequence[ChartLine],
    *,
    times: Sequence[str],
    format_value: Callable[[float], str],
    unit: str = "",
    filled: bool = False,
) -> Chart:
    """Return a chart of *lines* at *times*; *format_value* writes a number, *unit* follows it."""
    known = [value for line in lines for value in line.values if value is not None]
    top = round_top(max(known, default=0))
    inner = CHART_HEIGHT - 2  # room for half of a line above and below
    drawn = tuple(
        Series(
            one.name,
            one.style or style,
            line(
                without_rests(one.values) if (one.style or style) == LOUD else one.values,
                CHART_WIDTH,
                inner,
                top=top,
            ),
            area([value or 0 for value in one.values], CHART_WIDTH, inner, top=top)
            if filled
            else "",
        )
        for one, style in zip(lines, STYLES, strict=False)
    )
    highest = (_highest(line, format_value, unit) for line in lines)
    return Chart(
        title,
        f"{title}, from {times[0] if times else 'now'} UTC on. {'; '.join(highest)}.",
        drawn,
        f"M0 0H{CHART_WIDTH}M0 {inner / 2:g}H{CHART_WIDTH}M0 {inner}H{CHART_WIDTH}",
        f"{format_value(top)}{unit}",
        times[0] if times else "",
        tuple(
            ChartRow(
                time, tuple(NOTHING if value is None else format_value(value) for value in values)
            )
            for time, *values in zip(times, *(line.values for line in lines), strict=True)
        ),
        CHART_WIDTH,
        CHART_HEIGHT,
    )


def without_rests(values: Sequence[Value]) -> list[Value]:
    """Return *values* with None for zeros among zeros: a red line along the axis would alarm."""
    return [
        value if any(values[max(0, place - 1) : place + 2]) else None
        for place, value in enumerate(values)
    ]


def _highest(line: ChartLine, format_value: Callable[[float], str], unit: str) -> str:
    known = [value for value in line.values if value is not None]
    return f"{line.name} at most {format_value(max(known))}{unit}" if known else f"no {line.name}"
