"""Ways to other pages: the top bar with its search, breadcrumbs, links to tags."""

from collections.abc import Iterable, Mapping
from typing import Final

from headrace.domain.access import Permission
from headrace.domain.errors import Forbidden, NotFound
from headrace.domain.filters import TaskFilter
from headrace.domain.query import Query, query_text
from headrace.domain.task import Priority

from .. import urls
from ..forms import tags_text
from ..parts import Link, Option, Tab
from ..request_context import BACK, RequestContext

_SUGGESTED: Final = 100
ENTRIES: Final = (
    ("Queues", urls.QUEUES, Permission.READ),
    ("Errors", urls.ERRORS, Permission.LIST),
    ("Workers", urls.WORKERS, Permission.LIST),
    ("Schedules", urls.SCHEDULES, Permission.READ),
    ("Workflows", urls.WORKFLOWS, Permission.READ),
    ("Activity", urls.ACTIVITY, Permission.OPERATE),
)
"""Text, route, and the permission that shows it."""

_MENU: Final = (("Keys", urls.KEYS, Permission.ADMINISTER),)


def links(context: RequestContext) -> tuple[Link, ...]:
    """Return the entries of the top bar for the visitor."""
    return _links(context, ENTRIES)


def menu(context: RequestContext) -> tuple[Link, ...]:
    """Return the entries of the menu under the visitor's name."""
    return _links(context, _MENU)


def foot(context: RequestContext) -> tuple[Link, ...]:
    """Return the entries of the footer: the proof, once it has run, for keys of all queues."""
    if not context.by.covers_all_queues or not context.use.proofs.has_run():
        return ()
    return _links(context, (("Proof", urls.PROOF, Permission.READ),))


def queue_tabs(context: RequestContext) -> tuple[Tab, ...]:
    """Return the tabs of the queues and their pipelines; none while no task moves between them."""
    if not context.use.flows.last_day().flows:
        return ()
    here = context.request.target.partition("?")[0].rstrip("/")
    places = (("Queues", urls.QUEUES), ("Pipelines", urls.PIPELINES))
    return tuple(
        Tab(text, context.url(route), context.url(route) == here) for text, route in places
    )


def _links(
    context: RequestContext, entries: Iterable[tuple[str, str, Permission]]
) -> tuple[Link, ...]:
    here = context.request.target.partition("?")[0].rstrip("/")
    return tuple(
        Link(text, context.url(route), current=context.url(route) == here)
        for text, route, needs in entries
        if context.allows(needs)
    )


def queue_link(context: RequestContext, queue: str) -> Link:
    """Return the link to a queue."""
    return Link(queue, context.url(urls.QUEUE, queue=queue))


def task_url(context: RequestContext, task_id: str) -> str:
    """Return the address of a task's page, from which the way leads back to this list."""
    return context.url(urls.TASK, context.onward, id=task_id)


def worker_link(context: RequestContext, name: str) -> str | None:
    """Return the address of a worker's page, or None if this visitor may not see it."""
    if not name or not context.allows(Permission.LIST):
        return None
    try:
        context.use.workers.one(name)
    except (NotFound, Forbidden):
        return None
    return context.url(urls.WORKER, {"name": name})


def crumb(context: RequestContext, text: str, route: str) -> Link:
    """Return the crumb that leads to a list, with its filter if the visitor came from there."""
    return Link(text, context.place(context.url(route)))


def crumbs(context: RequestContext, queue: str = "", task: str = "") -> tuple[Link, ...]:
    """Return the way to a page below all queues, below *queue* or below *task* in it."""
    return (
        crumb(context, "Queues", urls.QUEUES),
        *([Link(queue, context.place(context.url(urls.QUEUE, queue=queue)))] if queue else []),
        *([Link(task, context.url(urls.TASK, {BACK: context.back}, id=task))] if task else []),
    )


def tag_links(
    context: RequestContext, queue: str, tags: Mapping[str, str], *, state: str = ""
) -> tuple[Link, ...]:
    """Return tags, each as a link to the tasks of *queue* that have it too."""
    return tuple(
        Link(
            tags_text({key: value}),
            context.url(
                urls.QUEUE,
                {"state": state, "q": query_text(Query(TaskFilter(tags={key: value})))},
                queue=queue,
            ),
        )
        for key, value in sorted(tags.items())
    )


def queue_options(context: RequestContext, *, but: str = "") -> tuple[Option, ...]:
    """Return the visitor's queues to choose from, the first hundred."""
    page = context.use.queues.list(limit=_SUGGESTED)
    return tuple(Option(one.name, one.name) for one in page.shown if one.name != but)


def priority_options(chosen: str, none: str) -> tuple[Option, ...]:
    """Return the priorities to choose from; the empty one is called *none*."""
    return tuple(Option(value, value or none, value == chosen) for value in ("", *Priority))
