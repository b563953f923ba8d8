"""Numbers as SVG paths: pure arithmetic; macros.html has the elements around them.

A box has its origin in the top left corner.  Values begin at 0, the highest touches the top.

Chart libraries for pages are scripts, and every page of the console works without script.  Those
in Python are larger than the console, or write styles that its Content-Security-Policy refuses.
Consider one when a chart needs stacked areas or thousands of points.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from . import formatting

SPARK_WIDTH: Final = 120
SPARK_HEIGHT: Final = 20
CHART_WIDTH: Final = 600
CHART_HEIGHT: Final = 160
NOTHING: Final = "\u2013"  # a dash, where there is no number
LOUD: Final = "thick"
STYLES: Final = ("solid", "dashed", "dotted", LOUD, "fine")
_DOT: Final = 4  # of a chart's width: a value between two gaps
_MANY: Final = 10  # values other than 0, from which on the usual ones are known
_SPIKE: Final = 5  # times the usual: higher values leave the box
_SECONDS: Final = (
    (1, 2), (2, 2), (5, 5), (10, 2), (30, 3), (60, 2), (120, 2), (300, 5), (600, 2), (1_800, 3),
    (3_600, 2), (7_200, 2), (21_600, 3), (43_200, 2), (86_400, 4), (172_800, 2), (604_800, 7),
)  # fmt: skip
"""Lengths of time that an axis may end with, and the parts it is then divided into."""

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

    ``style`` distinguishes it without colour: solid, dashed, dotted, thick or fine.  ``ghost`` is
    the same of another time.
    """

    name: str
    style: str
    path: str
    area: str = ""
    ghost: str = ""


@dataclass(frozen=True, slots=True)
class Label:
    """A word at a height of the box."""

    text: str
    y: float


@dataclass(frozen=True, slots=True)
class Tick:
    """A word at a place of the axis of time, 0 to 1."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at a place of the axis, 0 to 1; ``kind`` says how it is drawn."""

    at: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class ChartRow:
    """The numbers of one step, in the order of the heads, as text."""

    time: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over time in a box of ``width`` by ``height``, in words, and as a table.

    ``counts`` says what is counted.  ``heights`` are the words at the left, ``ticks`` those below.
    ``peaks`` are the places of values above the box, and ``peak`` is the highest of them.
    ``heads`` are those of the table: the lines, and the same of the time compared with.
    """

    title: str
    counts: str
    words: str
    lines: tuple[Series, ...]
    grid: str
    heights: tuple[Label, ...]
    ticks: tuple[Tick, ...]
    peaks: tuple[float, ...]
    peak: str
    marks: tuple[Mark, ...]
    heads: tuple[str, ...]
    rows: tuple[ChartRow, ...]
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class ChartLine:
    """One line of a chart before it is drawn; ``style`` is that of its place unless given.

    ``before`` are the values of another time, to be compared with.
    """

    name: str
    values: Sequence[Value]
    style: str | None = None
    before: Sequence[Value] = ()


@dataclass(frozen=True, slots=True)
class Axis:
    """The end and the divisions of an axis; ``form`` writes a number of it.

    ``beside`` writes it where there is little room, beside the axis.
    """

    end_of: "Callable[[float], tuple[float, int]]"
    form: Callable[[float], str]
    beside: Callable[[float], str]


def line(values: Sequence[Value], width: float, height: float, *, top: float) -> str:
    """Return the path of a line through *values*, evenly spaced, with a gap for each None.

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
            path.append(f"{letter}{x:.1f} {height * (1 - min(1, value / top)):.1f}")
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


def whole_end(highest: float) -> tuple[float, int]:
    """Return the end and the divisions of an axis of counts."""
    top = max(2.0, round_top(highest))
    five = math.isclose(top / 10 ** math.floor(math.log10(top)), 5)
    return top, 5 if five else 2


def length_end(highest: float) -> tuple[float, int]:
    """Return the end and the divisions of an axis of seconds."""
    if highest <= 1:
        top = round_top(highest)
        five = math.isclose(top / 10 ** math.floor(math.log10(top)), 5)
        return top, 5 if five else 2
    longest = _SECONDS[-1]
    times = math.ceil(highest / longest[0])
    return next((one for one in _SECONDS if one[0] >= highest), (longest[0] * times, 2))


NUMBERS: Final = Axis(whole_end, formatting.number, formatting.round_number)
LENGTHS: Final = Axis(length_end, formatting.duration, formatting.duration)


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


def chart(  # noqa: PLR0913  what is drawn, and what is said of it
    title: str,
    lines: Sequence[ChartLine],
    *,
    times: Sequence[str],
    ticks: Sequence[Tick] = (),
    axis: Axis = NUMBERS,
    counts: str = "",
    unit: str = "",
    compared: str = "",
    filled: bool = False,
    marks: Sequence[Mark] = (),
) -> Chart:
    """Return a chart of *lines* at *times*.

    *counts* says what is counted, *unit* follows a number in words, *compared* names the time of
    what is compared with.
    """
    known = [value for line in lines for value in (*line.values, *line.before) if value is not None]
    usual = usual_highest(known)
    top, parts = axis.end_of(usual)
    drawn = tuple(
        _series(one, one.style or style, top, filled=filled)
        for one, style in zip(lines, STYLES, strict=False)
    )
    heights = [CHART_HEIGHT * part / parts for part in range(parts + 1)]
    across = "".join(f"M0 {y:g}H{CHART_WIDTH}" for y in heights)
    highest = (_highest(line, axis.form, unit) for line in lines)
    columns = {
        **{line.name: line.values for line in lines},
        **{f"{line.name}, {compared}": line.before for line in lines if line.before},
    }
    rows = tuple(
        ChartRow(time, tuple(NOTHING if value is None else axis.form(value) for value in values))
        for time, *values in zip(times, *columns.values(), strict=False)
    )
    step = CHART_WIDTH / max(1, len(times) - 1)
    clipped = {
        place for line in lines for place, value in enumerate(line.values) if value and value > top
    }
    return Chart(
        title,
        counts,
        f"{title}, from {times[0] if times else 'now'} UTC on. {'; '.join(highest)}.",
        drawn,
        across + "".join(f"M{tick.at * CHART_WIDTH:.1f} 0V{CHART_HEIGHT}" for tick in ticks),
        tuple(Label(axis.beside(top * (1 - y / CHART_HEIGHT)), y) for y in heights),
        tuple(ticks),
        tuple(round(place * step, 1) for place in sorted(clipped)),
        f"peak {axis.form(max(known))}" if clipped else "",
        tuple(marks),
        tuple(columns),
        rows,
        CHART_WIDTH,
        CHART_HEIGHT,
    )


def usual_highest(known: Sequence[float]) -> float:
    """Return the highest of *known* values, or a lower one if few spikes would flatten the rest."""
    values = sorted(value for value in known if value)
    if not values:
        return 0.0
    usual = values[len(values) * 9 // 10 - 1] if len(values) >= _MANY else values[-1]
    return values[-1] if values[-1] <= _SPIKE * usual else 2 * usual


def without_rests(values: Sequence[Value]) -> list[Value]:
    """Return *values* with None for zeros among zeros: a red line along the axis would alarm."""
    return [
        value if any(values[max(0, place - 1) : place + 2]) else None
        for place, value in enumerate(values)
    ]


def _series(one: ChartLine, style: str, top: float, *, filled: bool) -> Series:
    def path(values: Sequence[Value]) -> str:
        shown = without_rests(values) if style == LOUD else values
        return line(shown, CHART_WIDTH, CHART_HEIGHT, top=top)

    below = [value or 0 for value in one.values]
    return Series(
        one.name,
        style,
        path(one.values),
        area(below, CHART_WIDTH, CHART_HEIGHT, top=top) if filled else "",
        path(one.before),
    )


def _highest(line: ChartLine, form: Callable[[float], str], unit: str) -> str:
    known = [value for value in line.values if value is not None]
    return f"{line.name} at most {form(max(known))}{unit}" if known else f"no {line.name}"
