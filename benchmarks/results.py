"""What a part of the benchmark hands back: figures for programs, tables and words for people."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich import box
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure and the limit it must keep; ``at_most`` tells on which side of it."""

    name: str
    measured: float
    limit: float
    at_most: bool
    unit: str = ""

    @property
    def passed(self) -> bool:
        """Whether the limit is kept; what could not be measured (NaN) keeps none."""
        return self.measured <= self.limit if self.at_most else self.measured >= self.limit

    def as_json(self) -> dict[str, Any]:
        """Return the bar for the JSON file."""
        return {
            "name": self.name,
            "measured": self.measured,
            "limit": self.limit,
            "kept_when": "at most" if self.at_most else "at least",
            "unit": self.unit,
            "passed": self.passed,
        }


@dataclass(frozen=True, slots=True)
class PartOutcome:
    """All that one part has to say."""

    figures: dict[str, Any]
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the value that *percent* (1-99) of the *values* do not exceed; NaN for none."""
    if len(values) < 2:
        return values[0] if values else math.nan
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def finite(value: Any) -> Any:
    """Return *value* with null for each NaN in it, which JSON does not know."""
    match value:
        case float() if math.isnan(value):
            return None
        case dict():
            return {key: finite(entry) for key, entry in value.items()}
        case list():
            return [finite(entry) for entry in value]
        case _:
            return value


def median(values: Sequence[float]) -> float:
    """Return the middle of *values*; NaN for none."""
    return statistics.median(values) if values else math.nan


def table(title: str, *columns: str) -> Table:
    """Return an empty table; the first column is text, the others are numbers."""
    made = Table(title=f"\n{title}", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    made.padding = (0, 1, 0, 0)
    for place, column in enumerate(columns):
        made.add_column(column, justify="right" if place else "left", no_wrap=True)
    return made


def bars_table(bars: Sequence[Bar], title: str = "Bars") -> Table:
    """Return the verdicts."""
    made = table(title, "Figure", "Measured", "Limit", "Kept")
    for bar in bars:
        verdict = "[green]yes[/]" if bar.passed else "[red]NO[/]"
        limit = f"{'≤' if bar.at_most else '≥'} {bar.limit:g} {bar.unit}".rstrip()
        made.add_row(bar.name, f"{bar.measured:.3g} {bar.unit}".rstrip(), limit, verdict)
    return made
