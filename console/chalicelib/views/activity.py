"""Activity: who changed what, when and why; an action on many tasks unfolds, with its undo."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from headrace.domain.access import Permission
from headrace.domain.filters import NewerRecord, TaskFilter
from headrace.domain.query import Query, query_text
from headrace.domain.query_grammar import term_text
from headrace.ops.shared.audit import AuditFilter, AuditRecord
from headrace.ops.shared.sentences import changes, sentence

from .. import formatting, urls
from ..cells import Cell, Code, Dim, Fold, Id, Lines
from ..parts import Choice, Confirm, Empty, Hidden, Link
from ..request_context import BACK, RequestContext, each
from ..routes import Redirect, Reply, routes
from .action_pages import under_way
from .columns import Column, Columns, numbers, times
from .list_page import list_page
from .list_search import SEARCHED, ListSearch
from .navigation import task_url

_SHOWN_IDS: Final = 10
_BESIDES: Final = ("to_queue", "seen_at", "queues")  # noted with a filter, but no part of it
_ON_TASKS: Final = ("restart", "run", "move", "cancel", "enqueue_as_new")  # which then have a page
_OF_TASKS: Final = ("restart", "run", "move", "cancel", "delete", "purge", "undo", "recount")
_OF_NO_PAGE: Final = ("delete_queue",)  # there is nothing behind its link


@routes.get(urls.ACTIVITY, Permission.OPERATE)
def show(context: RequestContext) -> Reply:
    """Show a page of the activity."""
    wanted: ListSearch[AuditRecord] = ListSearch(context, "activity")
    page = wanted.look(
        lambda where, limit, cursor: context.use.audit.list(
            AuditFilter(matching=where), limit=limit, cursor=cursor
        )
    )
    task_id = wanted.where.named.get("id", "")
    if task_id and not page.shown and (undo := context.use.undos.of_task(task_id)) is not None:
        # It was deleted by a filter: its action is known by its undo.
        return Redirect(context.url(urls.ACTIVITY, {SEARCHED: term_text("id", undo.id)}))
    undoable = dict(each(lambda entry: (id(entry), _undo(context, entry)), page.shown))
    return list_page(
        context,
        wanted,
        page.shown,
        _columns(context, undoable),
        page.shown,
        title="Activity",
        usual="-at",
        empty=Empty("No changes in the last 90 days.", "headrace queue create mail"),
        none_fits=Empty("No change of the last 90 days matches this query."),
        above=under_way(context, wanted.where.named.get("queue")),
    )


def _columns(
    context: RequestContext, undoable: Mapping[int, Confirm | None]
) -> Columns[AuditRecord]:
    def actor(entry: AuditRecord) -> Cell:
        # The id, because the names of keys are used again.
        url = context.url(urls.ACTIVITY, {SEARCHED: term_text("actor", entry.actor_id or "")})
        return Link(entry.actor, url if entry.actor_id else "")

    def what(entry: AuditRecord) -> Cell:
        text = _headline(entry)
        details = (*_details(context, entry), *filter(None, (undoable[id(entry)],)))
        return Fold(text, Lines(details)) if details else text

    def queue(entry: AuditRecord) -> Cell:
        return Link(entry.queue or "", _queue_url(context, entry))

    def changed(entry: AuditRecord) -> Cell:
        if entry.action not in _OF_TASKS:
            return None
        if entry.changed is None:
            return Dim("running")
        of = entry.matched not in (None, entry.changed)
        return (entry.changed, Dim(f"of {formatting.number(entry.matched or 0)}") if of else None)

    return {
        "at": times("When", lambda entry: entry.at),
        "actor": Column("By", lambda entry: entry.actor, actor),
        "action": Column("What", lambda entry: entry.action, what, wide=True),
        "queue": Column("Queue", lambda entry: entry.queue or "", queue),
        "changed": numbers("Changed", lambda entry: entry.changed or 0, changed),
    }


def _headline(entry: AuditRecord) -> str:
    """Return the sentence of *entry* without its actor."""
    text = sentence(entry).removeprefix(f"{entry.actor} ").removeprefix("is ")
    return text[:1].upper() + text[1:]


def _details(context: RequestContext, entry: AuditRecord) -> Iterator[Cell]:
    """Yield what unfolds: changed settings, the filter, the tasks, the action, the request."""
    yield from changes(entry)
    reachable = bool(entry.queue) and context.allows(Permission.READ, entry.queue)
    if text := _filter_text(entry):
        query = _query(entry.filter or {}) if _queue_url(context, entry) else None
        yield Link(text, context.url(urls.QUEUE, query, queue=entry.queue or "") if query else "")
    ids = tuple(entry.ids or ())
    if ids:
        linked = reachable and entry.action in (*_ON_TASKS, "delete")
        more = len(ids) - _SHOWN_IDS
        yield (
            *(Id(one, task_url(context, one) if linked else "") for one in ids[:_SHOWN_IDS]),
            Dim(f"+{formatting.number(more)} more") if more > 0 else None,
        )
    if entry.run:
        yield Link("Open the action", context.url(urls.ACTION, context.onward, id=entry.run))
    if entry.request_id:
        yield Dim("Request"), Code(entry.request_id)


def _queue_url(context: RequestContext, entry: AuditRecord) -> str:
    queue = entry.queue or ""
    linked = queue and context.allows(Permission.READ, queue) and entry.action not in _OF_NO_PAGE
    return context.url(urls.QUEUE, queue=queue) if linked else ""


def _undo(context: RequestContext, entry: AuditRecord) -> Confirm | None:
    """Return the form that restores the tasks that *entry* deleted, or None."""
    undos = " ".join(filter(context.use.undos.remains, entry.undos or ()))
    if not undos or not entry.changed:
        return None
    text = f"Undo: restore {formatting.count_of(entry.changed, 'task')}"
    hidden = (Hidden("undo", undos), Hidden(BACK, context.here))
    return Confirm(context.url(urls.UNDO), (Choice("", text),), hidden=hidden)


def _filter_text(entry: AuditRecord) -> str:
    """Return the filter of *entry* in words."""
    if entry.filter is None:
        return ""
    where = {name: value for name, value in entry.filter.items() if name != "seen_at"}
    if not where and not entry.run:
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
