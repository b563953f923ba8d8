"""Saved views: queries of a list that somebody has given a name, for everybody who sees the list.

A list is that of a queue's tasks, whose views are kept under the queue's name, or one of the others
that can be searched.  Views of these are shared by keys for the same queues: a query may name what
others are not to know.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final

from headrace.domain import limits, query
from headrace.domain.access import Principal
from headrace.domain.errors import InvalidRequest
from headrace.domain.list_query import ListLanguage
from headrace.ops.operators.list_queries import LANGUAGES
from headrace.ops.shared.service_part import ServicePart
from headrace.store.base import Record

KIND: Final = "view"
_MARK: Final = "@"


@dataclass(frozen=True, slots=True)
class SavedView:
    """A query by its name, as a text of the language of queries; ``order`` is asc, desc or empty.

    Who saved it is ``by``, and ``place`` is a queue's name, or what ``place_of_list`` says.
    """

    place: str
    name: str
    text: str
    order: str
    by: str
    saved_at: datetime


class SavedViews(ServicePart):
    """The use case, with what it needs from outside."""

    def of(self, place: str) -> Sequence[SavedView]:
        """Return the views of *place*, by name."""
        most = limits.VIEWS
        records, _ = self.store.records(KIND, prefix=f"{place}:", limit=most, consistent=False)
        return [_view(record) for record in records]

    def save(self, place: str, name: str, text: str, *, order: str = "", by: str) -> SavedView:
        """Save a view, in place of one of the same name.

        Raises NotFound for the queue, InvalidRequest for ``name`` and ``query``.
        """
        language = _language(place)
        if language is None:
            self.service.queues.get(place)
        if fault := limits.text_fault(name, limits.VIEW_NAME_BYTES[1], limits.VIEW_NAME_BYTES[0]):
            raise InvalidRequest.of("name", fault)
        reads = query.read if language is None else language.read
        reads(text)
        there = self.store.record(KIND, f"{place}:{name}")
        if there is None and len(self.of(place)) >= limits.VIEWS:
            message = f"must be one of the {limits.VIEWS} that there are: remove one"
            raise InvalidRequest.of("name", message)
        view = SavedView(place, name, text, order, by, self.now())
        self.store.renew_record(_record(view))
        return view

    def remove(self, place: str, name: str) -> bool:
        """Remove a view; tell whether it was there."""
        return self.store.drop_record(KIND, f"{place}:{name}")


def place_of_list(name: str, by: Principal) -> str:
    """Return where views of the list *name* are kept that *by* sees: no queue can be called so."""
    if by.everywhere:
        return f"{_MARK}{name}"
    patterns = "\n".join(sorted(by.patterns)).encode()
    return f"{_MARK}{name}{_MARK}{blake2b(patterns, digest_size=8).hexdigest()}"


def _language(place: str) -> ListLanguage[Any] | None:
    """Return the language of a list; None for a queue's."""
    return LANGUAGES[place.split(_MARK)[1]] if place.startswith(_MARK) else None


def _record(view: SavedView) -> Record:
    body = {
        "text": view.text,
        "order": view.order,
        "by": view.by,
        "saved_at": view.saved_at.isoformat(),
    }
    return Record(KIND, f"{view.place}:{view.name}", body)


def _view(record: Record) -> SavedView:
    place, _, name = record.name.partition(":")
    body: dict[str, Any] = {**record.body}
    saved_at = datetime.fromisoformat(body.pop("saved_at"))
    return SavedView(place, name, **body, saved_at=saved_at)
