"""The columns of a list: the cells of a row, and the keys to sort the list by.

Only a list that is on one page can be sorted: a page of a longer one has the order in which the
store reads it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, TypeAlias, TypeVar

from ..cells import Cell, Table
from ..parts import Heading

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """A column: its head, the sort key of a row (None: not sortable), and the cell of a row.

    Without a ``cell`` the column shows its sort key.  The first click on a ``falling`` one brings
    the greatest, or the latest, to the top.
    """

    text: str
    by: Callable[[Row], Any] | None = None
    cell: Callable[[Row], Cell] | None = None
    falling: bool = False
    number: bool = False
    wide: bool = False
    sign: str = ""
    title: str = ""
    hidden: bool = False  #: the cells say it all

    def shown(self, row: Row) -> Cell:
        """Return the cell of *row*."""
        shows = self.cell or self.by
        return None if shows is None else shows(row)


Columns: TypeAlias = Mapping[str, Column[Row]]


def numbers(
    text: str,
    by: Callable[[Row], float],
    cell: Callable[[Row], Cell] | None = None,
    *,
    sign: str = "",
    title: str = "",
) -> Column[Row]:
    """Return a column of numbers."""
    return Column(text, by, cell, falling=True, number=True, sign=sign, title=title)


def times(
    text: str, by: Callable[[Row], datetime | None], cell: Callable[[Row], Cell] | None = None
) -> Column[Row]:
    """Return a column of instants; rows without one are the earliest."""

    def instant(row: Row) -> float:
        at = by(row)
        return _NEVER if at is None else at.timestamp()

    return Column(text, instant, cell or by, falling=True)


_NEVER: Final = float("-inf")


def ordered(columns: Columns[Row], rows: Sequence[Row], sort: str) -> tuple[Row, ...]:
    """Return *rows* by the column *sort*, with a minus the greatest first."""
    column = columns.get(sort.removeprefix("-"))
    if column is None or column.by is None:
        return tuple(rows)
    return tuple(sorted(rows, key=column.by, reverse=sort.startswith("-")))


def table(
    label: str, columns: Columns[Row], rows: Sequence[Row], heads: Iterable[Heading] = ()
) -> Table:
    """Return the table of *rows*; *heads* sort it."""
    heads = tuple(heads) or tuple(head(name, one, "", None) for name, one in columns.items())
    cells = (tuple(one.shown(row) for one in columns.values()) for row in rows)
    return Table(label, tuple(heads), tuple(cells))


def headings(
    columns: Columns[Row], sort: str, usual: str, *, whole: bool, url: Callable[[str], str]
) -> Iterator[Heading]:
    """Yield the heads of a list that is sorted by *sort*, or else as *usual*.

    Where it is *whole* they lead, by *url*, to the same list in another order.
    """
    now = sort if whole and sort.removeprefix("-") in columns else usual
    for name, column in columns.items():
        yield head(name, column, now, url if whole else None)


def head(name: str, column: Column[Row], now: str, url: Callable[[str], str] | None) -> Heading:
    """Return the head of a column, in a list that is sorted by *now*; it sorts by *url*."""
    order = ""
    if now.removeprefix("-") == name:
        order = "descending" if now.startswith("-") else "ascending"
    first = f"-{name}" if column.falling else name
    other = name if now.startswith("-") else f"-{name}"
    return Heading(
        column.text,
        url(other if order else first) if url is not None and column.by is not None else "",
        order,
        column.sign,
        column.title,
        column.number,
        column.wide,
        column.hidden,
    )


def longer_than_a_page(by: str) -> str:
    """Return the note about the order of a list with several pages."""
    return f"Sorted by {by}. Column sorting needs all rows on one page."
