"""The search box above a list: the query, its terms and suggestions."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from headrace.domain import query
from headrace.domain.access import Permission
from headrace.domain.query import Query
from headrace.domain.query_grammar import FIELD, term_text
from headrace.domain.task import Priority, Status

from .. import urls
from ..parts import Hidden, Link, SearchBox
from ..request_context import RequestContext
from .list_search import SEARCHED, SORT, ListSearch
from .task_list import LIMIT, ORDER, STATE, TaskQuery
from .task_rows import TaskRow

_SUGGESTED: Final = 20
_VERSIONS: Final = 5
_LENGTHS: Final = ("15m", "1h", "1d", "7d")
TASKS: Final = "task:mail.send tag:tenant=acme error:Timeout OR error:Refused after:1h"
TASK_KEYS: Final = (
    "state:", "tag:key=value", "task:", "error:", "payload.path:", "version:", "worker:", "id:",
    "attempts:", "priority:", "group:", "after:1h", "before:",
)  # fmt: skip

Row = TypeVar("Row")


def search_box(context: RequestContext, wanted: TaskQuery, found: Iterable[TaskRow]) -> SearchBox:
    """Return the box of a queue's tasks with the whole query; what is on the page is suggested."""

    def url(changed: Mapping[str, object]) -> str:
        return context.url(urls.QUEUE, changed, queue=context.queue)

    terms = query.terms_of(Query(replace(wanted.where, states=())))
    kept = {ORDER: wanted.order, LIMIT: wanted.query()[LIMIT]}
    return SearchBox(
        action=url({}),
        text=wanted.text,
        error=wanted.errors.of(FIELD),
        terms=tuple(
            Link(text, url({**wanted.query(), SEARCHED: query.query_text(rest)}))
            for text, rest in terms
        ),
        suggestions=(*task_terms(context, context.queue), *_often(wanted, found)),
        hidden=tuple(Hidden(name, str(value)) for name, value in kept.items() if value),
        clear=url({STATE: wanted.state}) if wanted.narrowed or wanted.errors else None,
        example=TASKS,
        keys=TASK_KEYS,
    )


def task_terms(context: RequestContext, queue: str = "") -> Iterator[str]:
    """Yield the keys of a query for tasks, and the values that are known without a look at tasks.

    Versions are those of *queue*, or of all queues.
    """
    yield from ("state:", "tag:", "task:", "error:", "payload.", "version:", "worker:", "id:")
    yield from ("attempts:", "priority:", "group:", "after:", "before:", "fingerprint:")
    yield from (f"state:{word.lower()}" for word in Status)
    yield from (f"priority:{level}" for level in Priority)
    yield from (f"{key}:{length}" for key in ("after", "before") for length in _LENGTHS)
    versions = context.use.versions.every() if context.allows(Permission.LIST) else []
    some = [one.name for one in versions if queue in ("", *one.since)][:_VERSIONS]
    yield from (term_text("version", name) for name in some)


def _often(wanted: TaskQuery, found: Iterable[TaskRow]) -> Iterator[str]:
    """Yield the terms of the tasks on the page, the most frequent first."""
    seen = Counter(term for row in found for term in row.terms)
    there = {text for text, _ in query.terms_of(Query(wanted.where))}
    yield from (term for term, _ in seen.most_common(_SUGGESTED) if term not in there)


def list_box(context: RequestContext, wanted: ListSearch[Row], found: Iterable[Row]) -> SearchBox:
    """Return the box of another list; what its rows have in common is suggested."""
    keys = tuple(wanted.keys())
    kept = {SORT: wanted.sort}
    free = tuple(f"{key}:" for key in keys if key not in wanted.where.named)
    seen = Counter(term for row in found for term in wanted.of.language.terms_of(row, context.now))
    often = [term for term, _ in seen.most_common() if term.startswith(free)][:_SUGGESTED]
    return SearchBox(
        action=context.url(wanted.of.route),
        text=wanted.text,
        error=wanted.errors.of(FIELD),
        terms=tuple(
            Link(text, wanted.url(**{SEARCHED: rest})) for text, rest in wanted.where.without_each()
        ),
        suggestions=(*(f"{key}:" for key in keys), *often),
        hidden=tuple(Hidden(name, str(value)) for name, value in kept.items() if value),
        clear=context.url(wanted.of.route) if wanted.typed else None,
        things=wanted.of.name if wanted.of.name != "audit" else "entries",
        example=wanted.of.example,
        keys=tuple(f"{key}:" for key in keys),
    )
