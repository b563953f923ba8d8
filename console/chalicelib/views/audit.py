"""The audit: who did what by hand, to how many, when, and from which filter."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from headrace.domain.access import Permission
from headrace.domain.filters import NewerRecord, TaskFilter
from headrace.domain.query import Query, query_text
from headrace.domain.query_grammar import term_text
from headrace.ops.shared.audit import AuditFilter, AuditRecord
from headrace.ops.shared.sentences import changes, sentence

from .. import urls
from ..pages import Page
from ..parts import Empty, Heading, Link, Pager, SearchBox
from ..request_context import RequestContext
from ..routes import Reply, routes
from .columns import Column, Columns, numbers, times
from .list_search import SEARCHED, ListSearch
from .navigation import task_url
from .search_box import list_box

_SHOWN_IDS: Final = 3
_BESIDES: Final = ("to_queue", "seen_at", "queues")  # noted with a filter, but no part of it
_OF_ITS_PAGE: Final = ("seen_at",)
_ON_TASKS: Final = ("restart", "run", "move", "cancel", "enqueue_as_new")  # which then have a page
_OF_NO_PAGE: Final = ("delete_queue",)  # there is nothing behind its link


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One action; ``filters`` say to what, ``ids`` to which, as far as they fit.

    ``actor_url`` leads to all that the same key did, known by its id, not its name.
    """

    entry: AuditRecord
    actor_url: str | None
    queue_url: str | None
    filters: str
    filters_url: str | None
    run_url: str | None
    ids: tuple[Link, ...]
    more_ids: int
    sentence: str
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage(Page):
    """Actions, the newest first."""

    template: ClassVar[str] = "audit.html"
    search: SearchBox
    headings: tuple[Heading, ...]
    rows: tuple[AuditRow, ...]
    pager: Pager
    empty: Empty


COLUMNS: Final[Columns[AuditRow]] = {
    "at": times("When", lambda row: row.entry.at),
    "actor": Column("By", lambda row: row.entry.actor),
    "action": Column("Action", lambda row: row.entry.action),
    "queue": Column("Queue", lambda row: row.entry.queue or ""),
    "which": Column("Which", wide=True),
    "changed": numbers("Changed", lambda row: row.entry.changed or 0),
    "request": Column("Request"),
}


@routes.get(urls.AUDIT, Permission.OPERATE)
def show(context: RequestContext) -> Reply:
    """Show a page of the audit."""
    wanted: ListSearch[AuditRecord] = ListSearch(context, "audit")
    page = wanted.look(
        lambda where, limit, cursor: context.use.audit.list(
            AuditFilter(matching=where), limit=limit, cursor=cursor
        )
    )
    return AuditPage(
        title="Audit",
        http_status=wanted.status,
        search=list_box(context, wanted, page.shown),
        headings=wanted.headings(COLUMNS, "-at"),
        rows=wanted.rows(COLUMNS, [_row(context, entry) for entry in page.shown]),
        pager=wanted.pager(len(page.shown)),
        empty=wanted.empty(
            Empty(
                "What people change by hand would be here, for 90 days. Nothing was changed yet.",
                "headrace queue create mail",
            ),
            Empty("Nothing in the last 90 days fits this query."),
        ),
    )


def _by(context: RequestContext, actor: str) -> str:
    return context.url(urls.AUDIT, {SEARCHED: term_text("actor", actor)})


def _row(context: RequestContext, entry: AuditRecord) -> AuditRow:
    queue = entry.queue or ""
    reachable = bool(queue) and context.allows(Permission.READ, queue)
    linked = reachable and entry.action not in _OF_NO_PAGE
    ids = tuple(entry.ids or ())
    still_there = entry.action in _ON_TASKS
    query = _query(entry.filter or {}) if linked else None
    return AuditRow(
        entry=entry,
        actor_url=_by(context, entry.actor_id) if entry.actor_id else None,
        queue_url=context.url(urls.QUEUE, queue=queue) if linked else None,
        filters=_filter_text(entry.filter, told=bool(entry.run)),
        filters_url=context.url(urls.QUEUE, query, queue=queue) if query else None,
        run_url=context.url(urls.ACTION, id=entry.run) if entry.run else None,
        ids=tuple(
            Link(one, task_url(context, one) if reachable and still_there else "")
            for one in ids[:_SHOWN_IDS]
        ),
        more_ids=max(0, len(ids) - _SHOWN_IDS),
        sentence=sentence(entry) or "",
        changes=changes(entry),
    )


def _filter_text(where: Mapping[str, Any] | None, *, told: bool) -> str:
    """Return a filter in words; *told*: without what the page of the action tells."""
    if where is None:
        return ""
    if told:
        where = {name: value for name, value in where.items() if name not in _OF_ITS_PAGE}
    if not where and not told:
        return "every task"
    return ", ".join(f"{name.replace('_', ' ')} {_text(value)}" for name, value in where.items())


def _text(value: object) -> str:
    if value is None:
        return "another queue"  # nothing else is ever hidden
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_text(each)}" for key, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _query(where: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the query of the queue's page that asks the same; None where it cannot."""
    try:
        named = {name: value for name, value in where.items() if name not in _BESIDES}
        text = query_text(Query(TaskFilter.of_fields(named)))
    except NewerRecord:  # a filter of another kind
        return None
    return {SEARCHED: text} if text else None
