"""Actions on a workflow: cancel it with all its steps, restart a step, and recount it."""

from functools import partial

from headrace.domain.access import Permission
from headrace.domain.batch import FoundMembers, TaskBatch
from headrace.domain.operate import BulkAction

from .. import formatting, urls
from ..forms import number_of_ours
from ..pages import Flash
from ..parts import Confirm, Hidden, Link
from ..request_context import BACK, RequestContext
from ..routes import Redirect, Reply, routes
from .actions import ACTIONS, outcome_text, why
from .confirm import ask
from .navigation import crumb
from .queue_actions import CONTINUE_RECOUNT, recount_button, recounted_so_far, steps


def cancel_link(context: RequestContext, batch: TaskBatch) -> tuple[Link, ...]:
    """Return the link to the question, where there is something to cancel and the visitor may."""
    if batch.finished_at is not None and not batch.live:
        return ()
    if not context.allows(Permission.CANCEL):
        return ()
    url = context.url(urls.CANCEL_WORKFLOW, {BACK: context.back}, id=batch.id)
    return (Link("Cancel workflow…", url, danger=True),)


def recount_form(context: RequestContext, batch: TaskBatch) -> Confirm | None:
    """Return the form that recounts the members of a batch; None if the key may not."""
    if not context.allows(Permission.OPERATE):
        return None
    return recount_button(context, context.url(urls.RECOUNT_WORKFLOW, id=batch.id))


@routes.get(urls.CANCEL_WORKFLOW, Permission.CANCEL)
def ask_cancel(context: RequestContext) -> Reply:
    """Say what a cancel would do, and ask whether to do it."""
    cancelled = number_of_ours(context.request.param("cancelled"), 0)
    return _ask_cancel(context, _batch(context), cancelled, context.cursor)


@routes.post(urls.CANCEL_WORKFLOW, Permission.CANCEL)
def cancel(context: RequestContext) -> Reply:
    """Cancel members for at most ten seconds."""
    batch, resumes = _batch(context), context.request.given("cursor")
    number = number_of_ours(context.request.given("cancelled"), 0) if resumes else 0
    done = [*steps(context, partial(context.use.batch_cancelling.step, batch.id))]
    number += sum(step.cancelled for step in done)
    if done[-1].cursor is not None:
        rest = {"cursor": done[-1].cursor, "cancelled": number, BACK: context.back}
        return Redirect(context.url(urls.CANCEL_WORKFLOW, rest, id=batch.id))
    text = f"{formatting.count_of(number, 'task')} of {batch.id} cancelled."
    here = context.url(urls.WORKFLOW, {BACK: context.back}, id=batch.id)
    return Redirect(here, Flash("done", text))


@routes.post(urls.RESTART_STEP, Permission.OPERATE)
def restart_step(context: RequestContext) -> Reply:
    """Restart a dead step, and show the workflow again."""
    given = context.request.given
    context.require(Permission.OPERATE, given("queue"))
    answer = context.use.bulk.by_ids(given("queue"), BulkAction.RESTART, [given("task")])
    here = context.url(urls.WORKFLOW, {BACK: context.back}, id=context.request.names["id"])
    skipped = [why(one.outcome, one.detail) for one in answer.results if not one.changed]
    text = outcome_text(ACTIONS[BulkAction.RESTART.value], answer.changed, skipped)
    return Redirect(here, Flash(*text))


@routes.post(urls.RECOUNT_WORKFLOW, Permission.OPERATE)
def recount(context: RequestContext) -> Reply:
    """Recount the members and correct the batch, for at most ten seconds."""
    batch = _batch(context)
    here = context.back or context.url(urls.WORKFLOW, id=batch.id)
    *_, step = steps(context, partial(context.use.batch_recounting.step, batch.id))
    found = step.found
    number = formatting.count_of(found.succeeded + found.dead, "member")
    if step.cursor is not None:
        so_far = f"{number} found so far. Press {CONTINUE_RECOUNT} to count the rest."
        return Redirect(recounted_so_far(here, step.cursor), Flash("done", so_far))
    here = recounted_so_far(here, "")
    if step.refusal:
        text = f"{number} found. The batch stays as it was: {step.refusal}."
        return Redirect(here, Flash("failed", text[:500]))
    was, now = _ends(step.was), _ends(found)
    return Redirect(here, Flash("done", f"{number} found: {now}. Before, the batch said {was}."))


def _ask_cancel(
    context: RequestContext, batch: TaskBatch, number: int = 0, cursor: str | None = None
) -> Reply:
    live = formatting.count_of(batch.live, "member")
    so_far = f"{formatting.count_of(number, 'task')} cancelled so far. " if cursor else ""
    detail = (
        f"{so_far}Waiting and running steps end as dead, cancelled, and no further step starts: "
        f"{live} live. The workflow takes no new members, finishes, and makes its callbacks. It "
        "cannot be undone; dead steps can be restarted."
    )
    hidden = (Hidden("cursor", cursor), Hidden("cancelled", str(number))) if cursor else ()
    return ask(
        _crumbs(context, batch),
        title="Cancel workflow?",
        question=f"Cancel workflow {batch.id} with all its steps?",
        detail=detail,
        action=context.url(urls.CANCEL_WORKFLOW, id=batch.id),
        button="Continue cancelling" if cursor else "Cancel workflow",
        danger=True,
        otherwise="Keep it",
        hidden=hidden,
    )


def _ends(counted: TaskBatch | FoundMembers) -> str:
    succeeded, dead = formatting.number(counted.succeeded), formatting.number(counted.dead)
    return f"{succeeded} succeeded, {dead} dead"


def _batch(context: RequestContext) -> TaskBatch:
    return context.use.task_batches.get(context.request.names["id"])


def _crumbs(context: RequestContext, batch: TaskBatch) -> tuple[Link, ...]:
    every = crumb(context, "Workflows", urls.WORKFLOWS)
    return (every, Link(batch.id, context.url(urls.WORKFLOW, {BACK: context.back}, id=batch.id)))
