"""The search of the top bar: an id, a queue's name, or a query over all queues."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar, Final

from headrace.domain import limits, query
from headrace.domain.access import Permission
from headrace.domain.errors import Forbidden, InvalidRequest, NotFound
from headrace.domain.filters import TaskFilter
from headrace.domain.ids import WHOLE_ID_RE, id_fault
from headrace.domain.query import Query
from headrace.domain.query_grammar import term_text
from headrace.domain.task import Status
from headrace.ops.search.search import FoundTasks

from .. import formatting, urls
from ..pages import Page
from ..parts import Empty, Link
from ..request_context import RequestContext
from ..routes import Redirect, Reply, routes
from .navigation import crumbs, queue_link, tag_links, task_url

_LIMIT: Final = 50


@dataclass(frozen=True, slots=True)
class FoundRow:
    """One task that was found, in whichever queue."""

    id: str
    url: str
    queue: Link
    status: Status
    dead_reason: str
    created: datetime
    error: str
    tags: tuple[Link, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPage(Page):
    """The tasks of all queues that a query means, as far as they are found without a long look.

    ``left`` are the queues whose own lists have to look at each task.
    """

    template: ClassVar[str] = "search.html"
    here: str
    text: str
    error: str
    rows: tuple[FoundRow, ...]
    shown: str
    left: tuple[Link, ...]
    audit: Link | None
    empty: Empty


@routes.get(urls.SEARCH, Permission.READ)
def find(context: RequestContext) -> Reply:
    """Go to the task or queue of that name, else show what all queues have of it."""
    wanted = context.request.param("q").strip()
    return _by_name(context, wanted) or _by_query(context, wanted)


def _by_name(context: RequestContext, wanted: str) -> Redirect | None:
    """Go to the queue of that name, or the task of that id."""
    if limits.NAME_RE.fullmatch(wanted) and context.allows(Permission.READ, wanted):
        try:
            context.use.queues.get(wanted)
        except NotFound:
            pass
        else:
            return Redirect(context.url(urls.QUEUE, queue=wanted))
    if limits.TASK_ID_RE.fullmatch(wanted):
        try:
            context.task(wanted)
        except (NotFound, Forbidden):
            pass
        else:
            return Redirect(context.url(urls.TASK, id=wanted))
    return None


def _by_query(context: RequestContext, wanted: str) -> Reply:
    """Show what all queues have of it."""
    try:
        asked = query.read(wanted)
    except InvalidRequest as error:
        return _page(context, wanted, error=error.errors[0].message)
    if asked.queue is not None:
        return _in_queue(context, wanted, asked)
    word = asked.where.error
    if not wanted or asked.where == TaskFilter(error=wanted) or not context.allows(Permission.LIST):
        return Redirect(context.url(urls.QUEUES, {"q": _named(word or wanted)}))
    if asked.where.needs_payload and not context.allows(Permission.DETAILS):
        return _page(context, wanted, error="payloads are not shown to this key")
    return _page(context, wanted, asked, context.use.search.across(context.by, asked.where))


def _named(wanted: str) -> str:
    return term_text("name", wanted) if wanted else ""


def _in_queue(context: RequestContext, wanted: str, asked: Query) -> Reply:
    """Go to the list of the queue that is named, with the other terms."""
    queue = asked.queue or ""
    try:
        context.require(Permission.READ, queue)
        context.use.queues.get(queue)
    except (NotFound, Forbidden):
        return _page(context, wanted, error=f"there is no queue {queue} that this key is for")
    rest = {"q": query.query_text(replace(asked, queue=None))}
    return Redirect(context.url(urls.QUEUE, rest, queue=queue))


def _page(
    context: RequestContext,
    wanted: str,
    asked: Query | None = None,
    found: FoundTasks | None = None,
    *,
    error: str = "",
) -> SearchPage:
    found = found or FoundTasks((), more=False)
    at_least = "at least " if found.more else ""
    rest = {"q": query.query_text(asked) if asked else wanted}
    return SearchPage(
        title="Search",
        http_status=400 if error else 200,
        crumbs=crumbs(context),
        here=context.url(urls.SEARCH),
        text=wanted,
        error=error,
        rows=tuple(
            FoundRow(
                task.id,
                task_url(context, task.id),
                queue_link(context, task.queue),
                task.status(context.now),
                task.dead_reason or "",
                task.created_at,
                formatting.latest(task.errors, 300),
                tag_links(context, task.queue, task.tags),
            )
            for task in found.tasks
        ),
        shown=f"{at_least}{formatting.count_of(len(found.tasks), 'task')}",
        left=tuple(Link(queue, context.url(urls.QUEUE, rest, queue=queue)) for queue in found.left),
        audit=None if found.tasks else _audit(context, asked),
        empty=_empty(asked, found, error),
    )


def _audit(context: RequestContext, asked: Query | None) -> Link | None:
    """Return the link to what was done by hand to a task that is not there any more."""
    wanted = asked.where.id_prefix if asked else None
    if wanted is None or not context.allows(Permission.OPERATE):
        return None
    url = context.url(urls.ACTIVITY, {"q": term_text("id", wanted)})
    return Link("Look for it in Activity", url)


def _empty(asked: Query | None, found: FoundTasks, error: str) -> Empty:
    prefix = asked.where.id_prefix if asked else None
    if error:
        return Empty("Nothing was looked for: the query is not right.")
    if prefix is not None and not found.left:
        whole = bool(WHOLE_ID_RE.fullmatch(prefix))
        text = f"There is no task {prefix}" if whole else f"No task's id begins with {prefix}"
        why = id_fault(prefix) or "mistyped, or no longer kept"
        return Empty(f"{text} in the queues of this key: {why}.")
    if found.left:
        return Empty("No queue's index has it. Others have to look at each task: see below.")
    return Empty("No task fits, in any queue.")
