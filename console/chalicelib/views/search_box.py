"""The search box above a list: the query, its terms and suggestions."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from headrace.domain import query
from headrace.domain.query import Query
from headrace.domain.query_grammar import FIELD
from headrace.domain.task import Status

from .. import urls
from ..parts import Hidden, Link, SearchBox
from ..request_context import RequestContext
from .list_search import SEARCHED, SORT, ListSearch
from .task_list import LIMIT, ORDER, STATE, TaskList, TaskQuery

_SUGGESTED: Final = 20
TASKS: Final = "task:mail.send tag:tenant=acme error:Timeout OR error:Refused after:1h"
TASK_KEYS: Final = (
    "state:", "tag:key=value", "task:", "error:", "payload.path:", "version:", "worker:", "id:",
    "attempts:", "priority:", "group:", "after:1h", "before:",
)  # fmt: skip

Row = TypeVar("Row")


def search_box(context: RequestContext, wanted: TaskQuery, found: TaskList) -> SearchBox:
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
        suggestions=tuple(f"{wanted.text} {term}".lstrip() for term in _terms(wanted, found)),
        hidden=tuple(Hidden(name, str(value)) for name, value in kept.items() if value),
        clear=url({STATE: wanted.state}) if wanted.narrowed or wanted.errors else None,
        example=TASKS,
        keys=TASK_KEYS,
    )


def _terms(wanted: TaskQuery, found: TaskList) -> Iterator[str]:
    """Yield terms that would narrow what was *found*, the most frequent first."""
    if not wanted.where.states:
        yield from (f"state:{word.lower()}" for word in Status)
    seen = Counter(term for row in found.rows for term in row.terms)
    there = {text for text, _ in query.terms_of(Query(wanted.where))}
    often = [term for term, _ in seen.most_common(_SUGGESTED) if term not in there]
    yield from often


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
        suggestions=tuple(f"{wanted.text} {term}".lstrip() for term in often),
        hidden=tuple(Hidden(name, str(value)) for name, value in kept.items() if value),
        clear=context.url(wanted.of.route) if wanted.typed else None,
        things=wanted.of.name if wanted.of.name != "audit" else "entries",
        example=wanted.of.example,
        keys=tuple(f"{key}:" for key in keys),
    )
