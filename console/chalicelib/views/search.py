"""The one field of the top bar: an id leads to its task, a name to its queue or those alike."""

from typing import Final

from console.chalicelib import urls
from console.chalicelib.request_context import RequestContext
from console.chalicelib.routes import Redirect, Reply, Routes
from headrace.domain import limits
from headrace.domain.access import Permission
from headrace.domain.errors import Forbidden, NotFound
from headrace.ops.operators import visibility

routes: Final = Routes()


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
