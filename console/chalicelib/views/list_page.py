"""The page of a list: a search box, a table, and links to the other pages."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from ..cells import Cell
from ..pages import Page
from ..parts import Empty, Link
from ..request_context import RequestContext
from .columns import Columns
from .list_search import ListSearch
from .search_box import list_box

Row = TypeVar("Row")
Line = TypeVar("Line")


def list_page(  # noqa: PLR0913  what the pages of lists differ in
    context: RequestContext,
    wanted: ListSearch[Row],
    found: Iterable[Row],
    columns: Columns[Line],
    lines: Sequence[Line],
    *,
    title: str,
    usual: str,
    empty: Empty,
    none_fits: Empty | None = None,
    summary: str = "",
    note: Cell = None,
    buttons: tuple[Link, ...] = (),
    above: tuple[Cell, ...] = (),
) -> Page:
    """Return the page of the rows *found*, shown as *lines*, which are read in the order *usual*.

    It shows *empty* if the list has no rows, and *none_fits* if none matches the query.
    """
    return Page(
        "list.html",
        title=title,
        http_status=wanted.status,
        search=list_box(context, wanted, found),
        table=wanted.table(wanted.of.name, columns, lines, usual),
        pager=wanted.pager(len(lines)),
        empty=wanted.empty(empty, none_fits),
        summary=summary,
        note=note,
        buttons=buttons,
        above=above,
    )
