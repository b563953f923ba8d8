"""Search all queues by id or indexed value, and keep named queries (saved views).

A search that would have to read every task is left to the list of one queue, which shows its
progress.

A saved view belongs to the list of a queue's tasks, or to one of the other lists.  Views of the
other lists are shared only between keys for the same queues, because a query may name values that
other keys must not see.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any, Final

from headrace.domain import limits, query
from headrace.domain.access import Permission, Principal, as_seen_by
from headrace.domain.errors import InvalidRequest
from headrace.domain.filters import TaskFilter
from headrace.domain.list_query import ListLanguage
from headrace.domain.task import Task
from headrace.ops.search.list_queries import LANGUAGES
from headrace.ops.shared.service_part import ServicePart
from headrace.store.base import Record
from headrace.store.records import body_of, read_body

QUEUES: Final = 100
"""The most queues of one search."""

_READ: Final = 50
_LOOKS_FOR: Final = timedelta(seconds=2)
_LOOKS_AT: Final = 20_000  # entries of a queue, where ids have no order


@dataclass(frozen=True, slots=True)
class FoundTasks:
    """What a search found; ``more`` where there is more of it.

    ``left`` are queues that were not looked through, for it would take a look at each task.
    """

    tasks: tuple[Task, ...]
    more: bool
    left: tuple[str, ...] = ()


class Search(ServicePart):
    """Searches all queues."""

    def across(self, by: Principal, where: TaskFilter, *, limit: int = 50) -> FoundTasks:
        """Return up to *limit* tasks of *by*'s queues that *where* means.

        Raises InvalidRequest for a word that is no state.
        """
        by.require(Permission.LIST)
        ids = self.service.inspect.known_ids(where)
        if ids is not None:
            found = list(self._of_ids(by, where, ids, limit))
            return FoundTasks(tuple(found[:limit]), len(found) > limit)
        page = self.service.queues.list(limit=QUEUES)
        until = self.now() + _LOOKS_FOR
        tasks: list[Task] = []
        left: list[str] = []
        more = page.cursor is not None
        for queue in page.shown:
            if self.now() > until or not (
                where.id_prefix or self.service.inspect.knows(queue, where)
            ):
                left.append(queue.name)
                continue
            if len(tasks) > limit:  # there is more than is shown, whatever the rest has
                continue
            listed = self.service.inspect.list(queue.name, where, limit=limit, look_at=_LOOKS_AT)
            tasks += [as_seen_by(by, task) for task in listed.tasks]
            if where.id_prefix and listed.cursor is not None and len(listed.tasks) < limit:
                left.append(queue.name)
            else:
                more = more or listed.cursor is not None
        return FoundTasks(tuple(tasks[:limit]), more or len(tasks) > limit, tuple(left))

    def _of_ids(
        self, by: Principal, where: TaskFilter, ids: Sequence[str], limit: int
    ) -> Iterator[Task]:
        """Yield the tasks of *ids* that are meant, one more than *limit* at most."""
        spans, now, number = where.spans(self.now()), self.now(), 0
        for start in range(0, len(ids), _READ):
            some = ids[start : start + _READ]
            found = self.service.inspect.read(some, where)
            for task_id in some:
                task = found.get(task_id)
                if task is None or task.is_hidden(now) or not by.covers(task.queue):
                    continue
                if where.matches(task) and any(span.holds(task) for span in spans):
                    number += 1
                    yield as_seen_by(by, task)
                if number > limit:
                    return


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
    """Saves, lists and removes views."""

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
        body = body_of(view, "place", "name")
        self.store.renew_record(Record(KIND, f"{place}:{name}", body))
        return view

    def remove(self, place: str, name: str) -> bool:
        """Remove a view; return whether it existed."""
        return self.store.drop_record(KIND, f"{place}:{name}")


def place_of_list(name: str, by: Principal) -> str:
    """Return where views of the list *name* are kept that *by* sees: no queue can be called so."""
    if by.covers_all_queues:
        return f"{_MARK}{name}"
    patterns = "\n".join(sorted(by.patterns)).encode()
    return f"{_MARK}{name}{_MARK}{blake2b(patterns, digest_size=8).hexdigest()}"


def _language(place: str) -> ListLanguage[Any] | None:
    """Return the language of a list; None for a queue's."""
    return LANGUAGES[place.split(_MARK)[1]] if place.startswith(_MARK) else None


def _view(record: Record) -> SavedView:
    place, _, name = record.name.partition(":")
    return read_body(record.body, SavedView, place=place, name=name)
