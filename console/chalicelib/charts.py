"""Numbers as SVG paths: pure arithmetic; macros.html has the elements around them.

A box has its origin in the top left corner.  Values begin at 0, the highest touches the top.
"""

from collections.abc import Sequence
from typing import Final

from console.chalicelib import words
from console.chalicelib.pages.parts import Spark

SPARK_WIDTH: Final = 120
SPARK_HEIGHT: Final = 20


def line(values: Sequence[float], width: float, height: float, *, top: float) -> str:
    """Return the path of a line through *values*, evenly spaced; *top* is the highest value."""
    points = _points(values, width, height, top)
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) if points else ""


def area(values: Sequence[float], width: float, height: float, *, top: float) -> str:
    """Return the path of the area below that line."""
    if not values:
        return ""
    return f"{line(values, width, height, top=top)}V{height:g}H0Z"


def bars(values: Sequence[float], width: float, height: float, *, top: float) -> str:
    """Return the path of one bar for each value, with a fifth of its room between two."""
    if not values or top <= 0:
        return ""
    room = width / len(values)
    return "".join(
        f"M{place * room + room * 0.1:.1f} {height:g}V{height * (1 - value / top):.1f}"
        f"h{room * 0.8:.1f}V{height:g}Z"
        for place, value in enumerate(values)
        if value > 0
    )


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


def spark(values: Sequence[float], *, of: str, per: str) -> Spark:
    """Return a tiny chart of *values*, which count *of* something *per* some time."""
    highest = max(values, default=0)
    total = sum(values)
    top = highest or 1
    said = f"{words.number(total)} {of} in the last hour"
    if total:
        said += f", at most {words.number(highest)} a {per}"
    inner = SPARK_HEIGHT - 2  # room for half of the line above and below
    return Spark(
        line(values, SPARK_WIDTH, inner, top=top) if total else "",
        area(values, SPARK_WIDTH, inner, top=top) if total else "",
        said,
        SPARK_WIDTH,
        SPARK_HEIGHT,
    )


def _points(
    values: Sequence[float], width: float, height: float, top: float
) -> list[tuple[float, float]]:
    if not values:
        return []
    step = width / max(1, len(values) - 1)
    return [(place * step, height * (1 - value / top)) for place, value in enumerate(values)]
