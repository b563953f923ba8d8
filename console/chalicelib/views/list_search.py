"""What the address of a searched list asks for: its query and its order."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, TypeVar

from headrace.domain.access import Permission
from headrace.domain.errors import InvalidRequest
from headrace.domain.list_query import EVERY_ROW, ListQuery
from headrace.domain.query_grammar import FIELD
from headrace.ops.shared.paging import Found

from .. import formatting
from ..cells import Table
from ..forms import FormErrors
from ..parts import Empty, Pager
from ..request_context import RequestContext
from . import columns
from .columns import Columns
from .lists import LISTS, SearchedList

SEARCHED: Final = "q"
SORT: Final = "sort"

Row = TypeVar("Row")
Line = TypeVar("Line")


class ListSearch(Generic[Row]):
    """The query and the order in the address of a list, with their errors."""

    def __init__(self, context: RequestContext, name: str) -> None:
        self.of: SearchedList[Row] = LISTS[name]
        self.errors = FormErrors()
        self._context = context
        self.typed = context.request.param(SEARCHED)
        self.where: ListQuery[Row] = EVERY_ROW
        try:
            self.where = self.of.language.read(self.typed)
        except InvalidRequest as error:
            self.errors.take(error, otherwise=FIELD)
        self.sort = context.request.param(SORT)
        self._cursor: str | None = None

    def look(self, look: Callable[[ListQuery[Row], int, str | None], Found[Row]]) -> Found[Row]:
        """Return a page as *look* finds it, by the query, the limit and the cursor.

        It is empty if the query is wrong; *look* may find that too.
        """
        page: Found[Row] = Found((), None)
        if not self.errors:
            try:
                page = look(self.where, self.of.per_page, self._context.cursor)
            except InvalidRequest as error:
                if [one.field for one in error.errors] != [FIELD]:
                    raise
                self.errors.take(error, otherwise=FIELD)
        self._cursor = page.cursor
        return page

    @property
    def text(self) -> str:
        """The whole query; where something is wrong, what was typed."""
        return self.typed if self.errors else self.where.text

    @property
    def status(self) -> int:
        """The status of the answer."""
        return 400 if self.errors else 200

    @property
    def whole(self) -> bool:
        """Whether this page has the whole list, so that it can be sorted."""
        return self._cursor is None and self._context.cursor is None

    def url(self, **changed: object) -> str:
        """Return the address of the same list, with something *changed*."""
        asked = {SEARCHED: self.text, SORT: self.sort, **changed}
        return self._context.url(self.of.route, asked)

    def keys(self) -> Iterator[str]:
        """Yield the keys that this visitor may ask by."""
        details = self._context.allows(Permission.DETAILS)
        for key in self.of.language.keys:
            if details or key not in self.of.details:
                yield key

    def table(self, label: str, of: Columns[Line], lines: Sequence[Line], usual: str) -> Table:
        """Return the table of *lines*, read in the order *usual*; sorted if all are on the page."""
        heads = columns.headings(
            of, self.sort, usual, whole=self.whole, url=lambda sort: self.url(**{SORT: sort})
        )
        rows = columns.ordered(of, lines, self.sort if self.whole else "")
        return columns.table(label, of, rows, heads)

    def pager(self, shown: int) -> Pager:
        """Return the links to other pages, and what there is to know of their order."""
        words = formatting.count_of(shown, self.of.one)
        return Pager(
            words if shown else "",
            first=self.url() if self._context.cursor else None,
            next=self.url(cursor=self._cursor) if self._cursor else None,
            note="" if self.whole or not shown else columns.longer_than_a_page(self.of.by),
        )

    def empty(self, otherwise: Empty, none_fits: Empty | None = None) -> Empty:
        """Return the text of a page without rows; *otherwise* where nothing is asked."""
        if self.errors:
            return Empty("Nothing was searched: the query is not right.")
        if self._cursor is not None:
            return Empty("No match so far. There are more rows to search.")
        if self.where.terms:
            return none_fits or Empty(f"No {self.of.one} matches this query.")
        return otherwise
