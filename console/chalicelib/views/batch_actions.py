"""Actions on a batch: cancel it with all its members, and count it anew."""

from datetime import timedelta
from typing import Final

from headrace.domain.access import Permission
from headrace.domain.batch import FoundMembers, TaskBatch
from headrace.ops.operators import visibility

from .. import formatting, urls
from ..pages import Flash
from ..parts import Choice, Confirm, Hidden, Link
from ..request_context import RequestContext
from ..routes import Redirect, Reply, routes
from .confirm import ConfirmPage, Question, ask

_TAKES: Final = timedelta(seconds=10)  # a page must not take longer; then it goes on


def cancel_link(context: RequestContext, batch: TaskBatch) -> tuple[Link, ...]:
    """Return the link to the question, where there is something to cancel and the visitor may."""
    if batch.finished_at is not None and not batch.live:
        return ()
    if not context.allows(Permission.CANCEL):
        return ()
    url = context.url(urls.CANCEL_BATCH, id=batch.id)
    return (Link("Cancel the whole", url, danger=True),)


def recount_form(context: RequestContext, batch: TaskBatch) -> Confirm | None:
    """Return the form that counts the members of a batch anew; None for who may not."""
    if not context.allows(Permission.OPERATE):
        return None
    return Confirm(context.url(urls.RECOUNT_BATCH, id=batch.id), (Choice("", "Count anew"),))


@routes.get(urls.CANCEL_BATCH, Permission.CANCEL)
def ask_cancel(context: RequestContext) -> ConfirmPage:
    """Say what a cancel would do, and ask whether to do it."""
    return _ask_cancel(context, _batch(context))


@routes.post(urls.CANCEL_BATCH, Permission.CANCEL)
def cancel(context: RequestContext) -> Reply:
    """Cancel as much as a page has time for."""
    batch, use = _batch(context), context.use
    cursor = context.request.given("cursor") or None
    number = int(context.request.given("cancelled", "0")) if cursor else 0
    until = use.now() + _TAKES
    while True:
        step = use.batch_cancelling.step(batch.id, cursor)
        number, cursor = number + step.cancelled, step.cursor
        if cursor is None:
            text = f"{formatting.count_of(number, 'task')} of {batch.id} cancelled."
            return Redirect(context.url(urls.BATCH, id=batch.id), Flash("done", text))
        if use.now() >= until:
            return _ask_cancel(context, batch, number, cursor)


@routes.post(urls.RECOUNT_BATCH, Permission.OPERATE)
def recount(context: RequestContext) -> Reply:
    """Count the members anew and mend the batch, as much as a page has time for."""
    batch, use = _batch(context), context.use
    cursor, here = context.request.given("cursor") or None, context.url(urls.BATCH, id=batch.id)
    until = use.now() + _TAKES
    step = use.batch_recounting.step(batch.id, cursor)
    while step.cursor is not None and use.now() < until:
        step = use.batch_recounting.step(batch.id, step.cursor)
    found = step.found
    number = formatting.count_of(found.succeeded + found.dead, "member")
    if step.cursor is not None:
        return ask(
            Question(
                question=f"Counting batch {batch.id} anew",
                detail=f"{number} found so far. Workers need not stop for it.",
                action=context.url(urls.RECOUNT_BATCH, id=batch.id),
                button="Go on counting",
                hidden=(Hidden("cursor", step.cursor),),
            ),
            _crumbs(context, batch),
        )
    if step.refusal:
        text = f"{number} found. The batch stays as it was: {step.refusal}."
        return Redirect(here, Flash("failed", text[:500]))
    was, now = _ends(step.was), _ends(found)
    return Redirect(
        here, Flash("done", f"{number} found: {now}. The batch said {was}, and says that now.")
    )


def _ask_cancel(
    context: RequestContext, batch: TaskBatch, number: int = 0, cursor: str | None = None
) -> ConfirmPage:
    live = formatting.count_of(batch.live, "member")
    so_far = f"{formatting.count_of(number, 'task')} cancelled so far. " if cursor else ""
    detail = (
        f"{so_far}What waits or is in flight is dead then, cancelled, and no step is made any "
        f"more: {live} counted as live. The batch takes no new members, ends, and calls back. "
        "That cannot be undone; dead members can be restarted."
    )
    hidden = (Hidden("cursor", cursor), Hidden("cancelled", str(number))) if cursor else ()
    return ask(
        Question(
            title="Cancel the whole?",
            question=f"Cancel batch {batch.id} as a whole?",
            detail=detail,
            action=context.url(urls.CANCEL_BATCH, id=batch.id),
            button="Go on cancelling" if cursor else "Cancel the whole",
            danger=True,
            otherwise="Leave it as it is",
            hidden=hidden,
        ),
        _crumbs(context, batch),
    )


def _ends(counted: TaskBatch | FoundMembers) -> str:
    succeeded, dead = formatting.number(counted.succeeded), formatting.number(counted.dead)
    return f"{succeeded} succeeded, {dead} dead"


def _batch(context: RequestContext) -> TaskBatch:
    return visibility.batch(context.use.task_batches, context.by, context.request.names["id"])


def _crumbs(context: RequestContext, batch: TaskBatch) -> tuple[Link, ...]:
    every = Link("Batches", context.url(urls.BATCHES))
    return (every, Link(batch.id, context.url(urls.BATCH, id=batch.id)))
