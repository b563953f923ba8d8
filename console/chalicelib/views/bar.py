"""The top bar: links to where one may begin, and the field that finds.

An id leads to its task, a name to its queue or those alike.
"""

from typing import Final

from console.chalicelib import urls
from console.chalicelib.parts import Link
from console.chalicelib.request_context import RequestContext
from console.chalicelib.routes import Redirect, Reply, Routes
from headrace.domain import limits
from headrace.domain.access import Permission
from headrace.domain.errors import Forbidden, NotFound
from headrace.ops.operators import visibility

routes: Final = Routes()
ENTRIES: Final = (
    ("Queues", urls.QUEUES, Permission.READ),
    ("Dead letters", urls.DEAD, Permission.LIST),
    ("Schedules", urls.SCHEDULES, Permission.READ),
    ("Pipelines", urls.PIPELINES, Permission.READ),
    ("Proof", urls.PROOF, Permission.READ),
    ("Keys", urls.KEYS, Permission.ADMINISTER),
    ("Audit", urls.AUDIT, Permission.OPERATE),
)
"""Text, route, and what a key needs to be shown it."""

_OF_ALL_QUEUES: Final = frozenset({urls.PROOF})
"""Pages for keys that are for all queues."""


def links(context: RequestContext) -> tuple[Link, ...]:
    """Return the entries for whoever is signed in."""
    here = context.request.target.partition("?")[0].rstrip("/")
    return tuple(
        Link(text, context.url(route), current=context.url(route) == here)
        for text, route, needs in ENTRIES
        if context.allows(needs) and (context.by.everywhere or route not in _OF_ALL_QUEUES)
    )


@routes.get(urls.SEARCH, Permission.READ)
def find(context: RequestContext) -> Reply:
    """Go to the task or queue searched for."""
    wanted = context.request.param("q")[:128]
    if limits.NAME_RE.fullmatch(wanted) and context.allows(Permission.READ, wanted):
        try:
            context.use.queues.get(wanted)
        except NotFound:
            pass
        else:
            return Redirect(context.url(urls.QUEUE, queue=wanted))
    if limits.TASK_ID_RE.fullmatch(wanted):
        try:
            visibility.task(context.use.tasks, context.by, wanted)
        except (NotFound, Forbidden):
            pass
        else:
            return Redirect(context.url(urls.TASK, id=wanted))
    return Redirect(context.url(urls.QUEUES, {"name": wanted}))
