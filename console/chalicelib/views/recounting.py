"""Counting a queue anew, where its counters are off: for as long as a page may take, then go on."""

from datetime import timedelta
from typing import Final

from console.chalicelib import formatting, urls
from console.chalicelib.pages import Flash
from console.chalicelib.parts import Confirm, Hidden, Link
from console.chalicelib.request_context import RequestContext
from console.chalicelib.routes import Redirect, Reply, Routes
from console.chalicelib.views.confirm import FormPage
from console.chalicelib.views.queues import crumb
from headrace.domain.access import Permission

routes: Final = Routes()
_COUNTS_FOR: Final = timedelta(seconds=10)


@routes.post(urls.RECOUNT, Permission.OPERATE)
def recount(context: RequestContext) -> Reply:
    """Count the queue anew and mend its counters."""
    use, cursor = context.use, context.request.given("cursor") or None
    until = use.now() + _COUNTS_FOR
    step = use.recounting.step(context.queue, cursor)
    while step.cursor is not None and use.now() < until:
        step = use.recounting.step(context.queue, step.cursor)
    here = context.url(urls.QUEUE, queue=context.queue)
    number = formatting.count_of(sum(step.counts), "task")
    if step.cursor is not None:
        return FormPage(
            title=f"Counting {context.queue} anew",
            crumbs=(crumb(context), Link(context.queue, here)),
            detail=f"{number} counted so far. Workers need not stop for it.",
            form=form(context, "Go on counting", step.cursor),
        )
    off = sum(abs(right - was) for right, was in zip(step.counts, step.was, strict=True))
    outcome = f"were off by {formatting.number(off)} and are mended" if off else "were right"
    return Redirect(here, Flash("done", f"{number} counted. The counters {outcome}."))


def form(context: RequestContext, button: str, cursor: str | None = None) -> Confirm:
    """Return the form that begins a recount, or goes on at *cursor*."""
    return Confirm(
        action=context.url(urls.RECOUNT, queue=context.queue),
        button=button,
        back=context.url(urls.QUEUE, queue=context.queue) if cursor else "",
        hidden=(Hidden("cursor", cursor),) if cursor else (),
    )
