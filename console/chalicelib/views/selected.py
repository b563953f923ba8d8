"""Acting on the tasks that were ticked in a list: first what it would do, then doing it."""

from dataclasses import replace
from typing import Final

from console.chalicelib import urls, words
from console.chalicelib.pages.acting import ConfirmPage, Sample
from console.chalicelib.pages.frame import Flash
from console.chalicelib.pages.parts import Confirm, Field, Hidden, Link
from console.chalicelib.routes import Redirect, Reply, Routes
from console.chalicelib.views.acting import (
    TaskAction,
    action_named,
    carry_out,
    outcome,
    target_field,
    why,
)
from console.chalicelib.views.queues import crumb
from console.chalicelib.visit import Visit
from headrace.domain.access import Permission
from headrace.domain.errors import InvalidRequest, NotFound
from headrace.domain.operate import BulkAction
from headrace.ops.bulk import BulkResult

routes: Final = Routes()
_SAMPLES: Final = 5


@routes.post(urls.SELECTED, Permission.OPERATE)
def act(visit: Visit) -> Reply:
    """Ask, or if that was answered, act."""
    action = action_named(visit.request.given("action"))
    ids = tuple(dict.fromkeys(visit.request.form.get("id", ())))
    back = _back(visit)
    if not ids:
        return Redirect(back, Flash("failed", "No task was ticked, so nothing was done."))
    if not visit.request.given("confirmed"):
        return _confirm_page(visit, action, ids, back)
    try:
        answer = carry_out(visit, action, visit.queue, ids)
    except (InvalidRequest, NotFound) as error:
        page = _confirm_page(visit, action, ids, back, error=error.detail)
        return replace(page, http_status=error.status)
    return Redirect(back, outcome(action, answer))


def _back(visit: Visit) -> str:
    wanted = visit.request.given("back")
    return (
        visit.request.urls.safe_next(wanted) if wanted else visit.url(urls.QUEUE, queue=visit.queue)
    )


def _confirm_page(
    visit: Visit, action: TaskAction, ids: tuple[str, ...], back: str, *, error: str = ""
) -> ConfirmPage:
    foreseen = carry_out(visit, action, visit.queue, ids, dry_run=True)
    results = foreseen.results or tuple(BulkResult(task_id, "") for task_id in ids)
    amount = words.count_of(foreseen.matched, "task")
    fields: tuple[Field, ...] = ()
    if action.action is BulkAction.MOVE:
        fields = (target_field(visit, visit.queue, visit.request.given("to_queue"), error),)
    form = Confirm(
        action=visit.url(urls.SELECTED, queue=visit.queue),
        button=words.upon(action.verb, amount),
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
        title=f"{words.upon(action.verb, amount)}?",
        crumbs=(crumb(visit), Link(visit.queue, visit.url(urls.QUEUE, queue=visit.queue))),
        question=f"{words.upon(action.verb, f'{amount} of {visit.queue}')}?",
        tells=action.tells,
        samples=tuple(
            Sample(
                result.id,
                visit.url(urls.TASK, id=result.id),
                "" if result.matched or not result.outcome else why(result.outcome, result.detail),
            )
            for result in results[:_SAMPLES]
        ),
        more=f"and {words.number(left)} more" if left > 0 else "",
        form=form if foreseen.matched else None,
        back=Link("Back to the list", back),
    )
