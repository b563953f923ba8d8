"""Acting on the tasks that were ticked in a list: first what it would do, then doing it."""

from dataclasses import replace
from typing import Final

from console.chalicelib import formatting, urls
from console.chalicelib.pages import Flash
from console.chalicelib.parts import Confirm, Field, Hidden, Link
from console.chalicelib.request_context import RequestContext
from console.chalicelib.routes import Redirect, Reply, Routes
from console.chalicelib.views.acting import (
    TaskAction,
    action_named,
    carry_out,
    outcome,
    target_field,
    why,
)
from console.chalicelib.views.confirm import ConfirmPage, Sample
from console.chalicelib.views.queues import crumb
from headrace.domain.access import Permission
from headrace.domain.errors import InvalidRequest, NotFound
from headrace.domain.operate import BulkAction
from headrace.ops.operators.bulk import BulkOutcome

routes: Final = Routes()
_SAMPLES: Final = 5


@routes.post(urls.SELECTED, Permission.OPERATE)
def act(context: RequestContext) -> Reply:
    """Ask, or if that was answered, act."""
    action = action_named(context.request.given("action"))
    ids = tuple(dict.fromkeys(context.request.form.get("id", ())))
    back = _back(context)
    if not ids:
        return Redirect(back, Flash("failed", "No task was ticked, so nothing was done."))
    if not context.request.given("confirmed"):
        return _confirm_page(context, action, ids, back)
    try:
        answer = carry_out(context, action, context.queue, ids)
    except (InvalidRequest, NotFound) as error:
        page = _confirm_page(context, action, ids, back, error=error.detail)
        return replace(page, http_status=error.status)
    return Redirect(back, outcome(action, answer))


def _back(context: RequestContext) -> str:
    wanted = context.request.given("back")
    return (
        context.request.urls.safe_next(wanted)
        if wanted
        else context.url(urls.QUEUE, queue=context.queue)
    )


def _confirm_page(
    context: RequestContext, action: TaskAction, ids: tuple[str, ...], back: str, *, error: str = ""
) -> ConfirmPage:
    foreseen = carry_out(context, action, context.queue, ids, dry_run=True)
    results = foreseen.results or tuple(BulkOutcome(task_id, "") for task_id in ids)
    amount = formatting.count_of(foreseen.matched, "task")
    fields: tuple[Field, ...] = ()
    if action.action is BulkAction.MOVE:
        fields = (target_field(context, context.queue, context.request.given("to_queue"), error),)
    form = Confirm(
        action=context.url(urls.SELECTED, queue=context.queue),
        button=formatting.upon(action.verb, amount),
        back=back,
        danger=action.danger,
        fields=fields,
        hidden=(
            Hidden("action", action.name),
            Hidden("confirmed", "yes"),
            Hidden("back", back),
            *(Hidden("id", task_id) for task_id in ids),
        ),
    )
    left = len(results) - _SAMPLES
    return ConfirmPage(
        title=f"{formatting.upon(action.verb, amount)}?",
        crumbs=(crumb(context), Link(context.queue, context.url(urls.QUEUE, queue=context.queue))),
        question=f"{formatting.upon(action.verb, f'{amount} of {context.queue}')}?",
        detail=action.detail,
        samples=tuple(
            Sample(
                result.id,
                context.url(urls.TASK, id=result.id),
                "" if result.matched or not result.outcome else why(result.outcome, result.detail),
            )
            for result in results[:_SAMPLES]
        ),
        more=f"and {formatting.number(left)} more" if left > 0 else "",
        form=form if foreseen.matched else None,
        back=Link("Back to the list", back),
    )
