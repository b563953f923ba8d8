"""The page of a list: a search box, a table, and links to the other pages."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from ..cells import Cell, Table
from ..pages import Page
from ..parts import Empty, Link, Pager, SearchBox
from ..request_context import RequestContext
from .columns import Columns
from .list_search import ListSearch
from .search_box import list_box

Row = TypeVar("Row")
Line = TypeVar("Line")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPage(Page):
    """The rows of a list that match a query, with the notices ``above`` and the ``note`` below."""

    template: ClassVar[str] = "list.html"
    search: SearchBox
    table: Table
    pager: Pager
    empty: Empty
    summary: str = ""
    note: Cell = None
    buttons: tuple[Link, ...] = ()
    above: tuple[Cell, ...] = ()


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
) -> ListPage:
    """Return the page of the rows *found*, shown as *lines*, which are read in the order *usual*.

    It shows *empty* if the list has no rows, and *none_fits* if none matches the query.
    """
    return ListPage(
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
