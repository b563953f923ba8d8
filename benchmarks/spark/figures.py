"""What a measurement tells: lines for people as it goes, figures and bars for the end."""

from collections.abc import Iterable
from dataclasses import dataclass

from rich.table import Table

from benchmarks.results import Bar, table


@dataclass(frozen=True, slots=True)
class Figure:
    """One number; what is only there to be compared with is no work of ours."""

    name: str
    value: float
    unit: str
    ours: bool = True

    def line(self) -> str:
        """Return it for people."""
        return f"{self.name}: {self.value:,.0f} {self.unit}"


Measured = str | Figure | Bar


def figures_table(figures: Iterable[Figure]) -> Table:
    """Return the numbers as a table."""
    made = table("Figures", "What", "Measured", "Unit")
    for one in figures:
        name = one.name if one.ours else f"  beside it: {one.name}"
        made.add_row(name, f"{one.value:,.0f}", one.unit)
    return made
