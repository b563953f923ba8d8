"""Going once round one partition of the index in pages, from where the last round stopped."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from headrace.domain.change import Entry
from headrace.domain.task import Place
from headrace.store.base import Position, Store

_PAGE: Final = 100


@dataclass(slots=True)
class Scan:
    """A look at all entries of a partition whose time has come, page by page.

    It begins behind *start*, and when it has come to the end looks at what is before *start*.
    ``at`` is behind the latest page: where another scan may go on; None when this one is over.
    """

    store: Store
    place: Place
    now: Callable[[], datetime]
    start: Position | None = None
    at: Position | None = field(default=None, init=False)

    def pages(self) -> Iterator[tuple[Entry, ...]]:
        """Yield the pages, none of them empty."""
        until = self.now()
        after = self.start
        while True:
            page = self.store.entries(self.place, until=until, after=after, limit=_PAGE)
            after = self.at = page.last
            if page.entries:
                yield page.entries
            if after is None:
                break
        while self.start is not None:
            page = self.store.entries(
                self.place, until=self.start.scheduled_at, after=after, limit=_PAGE
            )
            entries = tuple(entry for entry in page.entries if _position(entry) <= self.start)
            over = page.last is None or len(entries) < len(page.entries)
            after = self.at = None if over else page.last
            if entries:
                yield entries
            if over:
                break


def _position(entry: Entry) -> Position:
    return Position(entry.scheduled_at, entry.task_id)
