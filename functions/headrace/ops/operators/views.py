"""Saved views: queries of a queue's list that somebody has given a name, for everybody."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from headrace.domain import limits, query
from headrace.domain.errors import InvalidRequest
from headrace.ops.shared.queues import QueueOperations
from headrace.store.base import Record, Store

KIND: Final = "view"
MOST: Final = 50
"""Views of one queue."""

NAME_BYTES: Final = (1, 64)


@dataclass(frozen=True, slots=True)
class SavedView:
    """A query by its name, as a text of the language of queries; ``order`` is asc, desc or empty.

    Who saved it is ``by``.
    """

    queue: str
    name: str
    text: str
    order: str
    by: str
    saved_at: datetime


@dataclass(frozen=True, slots=True)
class SavedViews:
    """The use case, with what it needs from outside."""

    store: Store
    queues: QueueOperations
    now: Callable[[], datetime]

    def of(self, queue: str) -> Sequence[SavedView]:
        """Return the views of *queue*, by name."""
        records, _ = self.store.records(KIND, prefix=f"{queue}:", limit=MOST, consistent=False)
        return [_view(record) for record in records]

    def save(self, queue: str, name: str, text: str, *, order: str = "", by: str) -> SavedView:
        """Save a view, in place of one of the same name.

        Raises NotFound for the queue, InvalidRequest for ``name`` and ``query``.
        """
        self.queues.get(queue)
        if fault := limits.text_fault(name, NAME_BYTES[1], NAME_BYTES[0]):
            raise InvalidRequest.of("name", fault)
        query.read(text)
        there = self.store.record(KIND, f"{queue}:{name}")
        if there is None and len(self.of(queue)) >= MOST:
            raise InvalidRequest.of("name", f"must be one of the {MOST} that there are: remove one")
        view = SavedView(queue, name, text, order, by, self.now())
        self.store.renew_record(_record(view))
        return view

    def remove(self, queue: str, name: str) -> bool:
        """Remove a view; tell whether it was there."""
        return self.store.drop_record(KIND, f"{queue}:{name}")


def _record(view: SavedView) -> Record:
    body = {
        "text": view.text,
        "order": view.order,
        "by": view.by,
        "saved_at": view.saved_at.isoformat(),
    }
    return Record(KIND, f"{view.queue}:{view.name}", body)


def _view(record: Record) -> SavedView:
    queue, _, name = record.name.partition(":")
    body: dict[str, Any] = {**record.body}
    saved_at = datetime.fromisoformat(body.pop("saved_at"))
    return SavedView(queue, name, **body, saved_at=saved_at)
