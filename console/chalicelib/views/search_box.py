"""The search box above a list of tasks: the query, its terms, suggestions and saved views."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from headrace.domain import query, query_grammar
from headrace.domain.query import Query
from headrace.domain.task import Status

from .. import urls
from ..parts import Hidden, Link, SearchBox
from ..request_context import RequestContext
from . import saved_views
from .task_list import ORDER, SEARCHED, STATE, TaskList, TaskQuery

_SUGGESTED: Final = 20


def search_box(context: RequestContext, wanted: TaskQuery, found: TaskList) -> SearchBox:
    """Return the box with the whole query; what is on the page is suggested."""

    def url(changed: Mapping[str, object]) -> str:
        return context.url(urls.QUEUE, changed, queue=context.queue)

    terms = query.terms_of(Query(replace(wanted.where, states=())))
    views = [*context.use.views.of(context.queue)]
    kept = {ORDER: wanted.order, "limit": wanted.query()["limit"]}
    return SearchBox(
        action=url({}),
        text=wanted.text,
        error=wanted.errors.of(query_grammar.FIELD),
        terms=tuple(
            Link(text, url({**wanted.query(), SEARCHED: query.written(rest)}))
            for text, rest in terms
        ),
        suggestions=tuple(f"{wanted.text} {term}".lstrip() for term in _terms(wanted, found)),
        hidden=tuple(Hidden(name, str(value)) for name, value in kept.items() if value),
        clear=url({STATE: wanted.state}) if wanted.narrowed or wanted.errors else None,
        views=saved_views.links(context, views, wanted.text),
        keep=None if wanted.errors else saved_views.form(context, views, wanted.text, wanted.order),
    )


def _terms(wanted: TaskQuery, found: TaskList) -> Iterator[str]:
    """Yield terms that would narrow what was *found*, the most frequent first."""
    if not wanted.where.states:
        yield from (f"state:{word.lower()}" for word in Status)
    seen = Counter(term for row in found.rows for term in row.terms)
    there = {text for text, _ in query.terms_of(Query(wanted.where))}
    often = [term for term, _ in seen.most_common(_SUGGESTED) if term not in there]
    yield from often
