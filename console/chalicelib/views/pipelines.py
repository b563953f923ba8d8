"""Pipelines: which queues feed which, as the moves of the last day show it."""

from typing import Final

from headrace.domain.access import Permission
from headrace.history.flows import Flow

from .. import urls
from ..flowchart import flowchart
from ..pages import Page
from ..parts import Empty, Link
from ..request_context import RequestContext
from ..routes import Reply, routes
from .columns import Column, Columns, numbers, table
from .navigation import queue_tabs

_DRAWN: Final = 40  # flows; a picture of more is a tangle
_LISTED: Final = 250


@routes.get(urls.PIPELINES, Permission.READ)
def show(context: RequestContext) -> Reply:
    """Show the flows between the visitor's queues."""
    seen = context.use.flows.last_day()
    drawn, listed = seen.flows[:_DRAWN], seen.flows[:_LISTED]
    links = {name: context.url(urls.QUEUE, queue=name) for name in seen.enqueued}
    columns: Columns[Flow] = {
        "source": Column("From", cell=lambda flow: Link(flow.source, links[flow.source])),
        "target": Column("To", cell=lambda flow: Link(flow.target, links[flow.target])),
        "hour": numbers("Last hour", lambda flow: flow.hour),
        "day": numbers("Last day", lambda flow: flow.day),
    }
    return Page(
        "pipelines.html",
        title="Pipelines",
        tabs=queue_tabs(context),
        picture=flowchart(drawn, seen.enqueued, links) if drawn else None,
        left_out=len(seen.flows) - len(listed),
        table=table("flows", columns, listed),
        as_of=seen.as_of,
        empty=Empty(
            "No tasks moved between queues in the last day. A worker moves a task by reporting "
            "MOVED, an operator with the action Move.",
            "headrace task move order-4711 --to archive",
        ),
    )
