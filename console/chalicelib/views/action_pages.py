"""The page of an action on many tasks: what it finds, its confirmation, its progress, its end.

Ticked tasks and all tasks that match a query begin the same action: the service finds the tasks and
keeps them (``headrace.ops.operators.actions``), the operator confirms exactly these within an
hour, and the service changes them.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from headrace.domain.access import Permission
from headrace.domain.errors import (
    Conflict,
    Forbidden,
    HeadraceError,
    InvalidRequest,
    NotFound,
    Unavailable,
)
from headrace.domain.filters import EVERY_TASK, TaskFilter
from headrace.domain.operate import ActionStatus, BulkAction
from headrace.domain.query import Query, query_text
from headrace.domain.query_grammar import term_text
from headrace.ops.operators.actions import SAMPLES
from headrace.store.records.actions import Action

from .. import formatting, urls
from ..cells import Cell, Dim, Id
from ..pages import Flash, Page
from ..parts import Choice, Confirm, Fact, Field, Hidden, Link
from ..request_context import BACK, RequestContext
from ..routes import Redirect, Reply, routes
from .actions import ACTIONS, TaskAction, action_named, detail_of, outcome_text, target_fields, why
from .list_search import SEARCHED
from .navigation import crumb, crumbs
from .queue_actions import UNDO_SECONDS, why_field
from .task_list import TaskQuery

FEW: Final = 5
LASTS: Final = timedelta(hours=1)
REFRESH_SECONDS: Final = 2
_WORDS: Final = {
    ActionStatus.LOOKING: "finding tasks",
    ActionStatus.RUNNING: "running",
    ActionStatus.PAUSED: "paused",
    ActionStatus.DONE: "done",
    ActionStatus.CANCELLED: "cancelled",
    ActionStatus.FAILED: "failed",
}


# -- beginning -------------------------------------------------------------------------------------


@routes.post(urls.SELECTED, Permission.OPERATE)
def select_ticked(context: RequestContext) -> Reply:
    """Find the ticked tasks."""
    action = action_named(context.request.given("action"))
    ids = context.request.form.get("id", ())
    if not ids:
        back = context.back or context.url(urls.QUEUE, queue=context.queue)
        return Redirect(back, Flash("failed", "No tasks selected, so nothing was done."))
    return begin_look(context, action.action, (context.queue,), TaskFilter(), ids)


@routes.post(urls.MATCHING, Permission.OPERATE)
def select_matching(context: RequestContext) -> Reply:
    """Find all tasks that match the query of the address."""
    wanted = TaskQuery(context)
    action = action_named(context.request.given("action"))
    here = context.url(urls.QUEUE, wanted.query(**{SEARCHED: wanted.typed}), queue=context.queue)
    if wanted.errors:
        return Redirect(here)
    if wanted.where == EVERY_TASK:
        return Redirect(context.back or here, Flash("failed", "Choose a state or a filter first."))
    return begin_look(context, action.action, (context.queue,), wanted.where)


def begin_look(
    context: RequestContext,
    action: BulkAction,
    queues: Sequence[str],
    where: TaskFilter,
    ids: Sequence[str] = (),
) -> Redirect:
    """Begin to find the tasks of an action, and redirect to its page."""
    found = context.use.actions.look(action, queues, where, ids=ids)
    _work_on(context, found)
    return Redirect(_url(context, found))


def _url(context: RequestContext, run: Action) -> str:
    return context.url(urls.ACTION, {BACK: context.back}, id=run.id)


def _work_on(context: RequestContext, run: Action) -> None:
    """Do a part of an action now, so that a small one is over when its page shows."""
    with suppress(Unavailable):  # then the service does it
        context.use.action_work.resume(run.mark(), time_left=lambda: 0.0)


def under_way(context: RequestContext, queue: str | None = None) -> tuple[Link, ...]:
    """Return links to the actions that are under way, of one *queue* or all."""
    if not context.allows(Permission.OPERATE, *([queue] if queue else [])):
        return ()
    return tuple(
        Link(f"{_text(run)}: {_progress(run)}", context.url(urls.ACTION, context.onward, id=run.id))
        for run in context.use.actions.under_way()
        if queue in (None, *run.touches)
    )


# -- the page and its forms ------------------------------------------------------------------------


@routes.get(urls.ACTION, Permission.OPERATE)
def show(context: RequestContext) -> Reply:
    """Show the progress of an action, or the tasks that it has found."""
    run = _named(context)
    return _found(context, run) if run.started_at is None else _begun(context, run)


@routes.post(urls.ACTION, Permission.OPERATE)
def steer(context: RequestContext) -> Reply:
    """Confirm an action; or pause, resume, cancel or repeat it."""
    run, wanted = _named(context), context.request.given("do")
    if wanted == "again":
        return begin_look(context, run.action, run.queues, run.where, run.ids)
    if run.started_at is None:
        return _confirm(context, run, wanted)
    actions = context.use.actions
    turns = {"pause": actions.pause, "resume": actions.resume, "cancel": actions.cancel}
    if wanted not in turns:
        return Redirect(_url(context, run))
    _work_on(context, turns[wanted](run.id))
    said = {"pause": "Paused.", "resume": "Resumed.", "cancel": "Cancelled."}
    return Redirect(_url(context, run), Flash("done", said[wanted]))


def _confirm(context: RequestContext, found: Action, wanted: str) -> Reply:
    """Begin the action on the tasks that were *found*, or on a few; lead back if it is over."""
    if context.now > found.as_of + LASTS:
        lasts = formatting.duration(LASTS.total_seconds())
        raise Conflict(f"this selection is over {lasts} old: run it again, and confirm the new one")
    target = context.request.given("to_queue").strip()
    if target and not context.allows(Permission.OPERATE, target):
        raise Forbidden(f"this key is not for queue {target}")
    try:
        run = context.use.actions.confirm(
            found,
            most=FEW if wanted == "few" else None,
            to_queue=target or None,
            undo_in_seconds=UNDO_SECONDS,
            reason=context.request.given("reason"),
        )
    except (InvalidRequest, NotFound) as error:
        return _found(context, found, error)
    _work_on(context, run)
    run = context.use.actions.get(run.id)
    if run.status is ActionStatus.DONE and context.back and wanted != "few":
        undos = " ".join(run.undos.values()) if run.changed else ""
        skipped = [why(reason, reason) for reason in Counter(run.left).elements()]
        kind, text = outcome_text(ACTIONS[run.action.value], run.changed, skipped)
        return Redirect(context.back, Flash(kind, text, undos))
    return Redirect(_url(context, run))


def _named(context: RequestContext) -> Action:
    return context.use.actions.get(context.request.names["id"], dry_run=True)


# -- before the confirmation -----------------------------------------------------------------------


def _found(context: RequestContext, found: Action, error: HeadraceError | None = None) -> Page:
    """Return the page of the tasks that an action has found, with the form that confirms it."""
    action = ACTIONS[found.action.value]
    tasks = formatting.count_of(found.found, "task")
    question = f"{formatting.upon(action.verb, f'{tasks} of {_place(found)}')}?"
    if found.total is None:
        matching = f"all matching tasks of {_place(found)}"
        question = f"{formatting.upon(action.verb, matching)}: finding them"
    old = context.now > found.as_of + LASTS
    trouble = f"The search stopped: {found.trouble}. Nothing has changed." if found.trouble else ""
    lasting = f"{detail_of(action)} The service runs it: you can leave the page."
    return Page(
        "action.html",
        http_status=error.status if error else 200,
        title=question,
        crumbs=_way(context, found),
        summary=_found_summary(found, old=old),
        detail=lasting if found.total else "",
        trouble=trouble,
        facts={
            "Numbers": (
                Fact("Checked", formatting.number(found.looked_at)),
                Fact("Matched", formatting.number(found.found)),
                *_skipped(context, found),
            ),
            "Which tasks": _which(found),
        },
        samples=_samples(context, found),
        done=0,
        count=0,
        back=None,
        forms=(_decision(context, found, action, error, old=old),),
        refresh=REFRESH_SECONDS if found.goes_on else None,
    )


def _found_summary(found: Action, *, old: bool) -> str:
    looked = formatting.count_of(found.looked_at, "task")
    if found.total is None:
        fit = formatting.number(found.found)
        return f"Checked {looked} so far; {fit} match. Nothing has changed."
    if old:
        return "This selection is more than an hour old. Run it again: the tasks may have changed."
    if not found.found:
        return f"No task matches, of {looked} checked."
    return (
        "Nothing has changed yet. The action takes exactly these tasks: no later ones, and none "
        "that change before it reaches them."
    )


def _skipped(context: RequestContext, found: Action) -> tuple[Fact, ...]:
    """Return how many ticked tasks the action does not take, and why."""
    if not found.ids or found.total in (None, len(found.ids)):
        return ()
    answer = context.use.bulk.by_ids(found.queues[0], found.action, found.ids, dry_run=True)
    reasons = sorted({why(one.outcome, one.detail) for one in answer.results if not one.matched})
    number = formatting.number(len(found.ids) - found.found)
    return (Fact("Skipped", f"{number}: {', '.join(reasons)}" if reasons else number),)


def _samples(context: RequestContext, found: Action) -> tuple[Cell, ...]:
    tasks: list[Cell] = [
        (
            Id(task.id, context.url(urls.TASK, id=task.id)),
            Dim(task.queue),
            formatting.latest(task.errors, 200),
        )
        for task in context.use.actions.samples(found)
    ]
    left = found.found - SAMPLES
    return (*tasks, Dim(f"+{formatting.number(left)} more")) if left > 0 else tuple(tasks)


def _decision(
    context: RequestContext,
    found: Action,
    action: TaskAction,
    error: HeadraceError | None,
    *,
    old: bool,
) -> Confirm:
    asks = bool(found.total) and not old
    fields: tuple[Field, ...] = ()
    if asks:
        wrong = {one.field: one.message for one in error.errors} if error else {}
        target = error.detail if error and "reason" not in wrong else ""
        given = context.request.given("reason")
        moves = target_fields(context, action, found.queues[0], target)
        fields = (*moves, why_field(given, wrong.get("reason", "")))
    up = _way(context, found)[-1]
    return Confirm(
        action=context.url(urls.ACTION, id=found.id),
        fields=fields,
        choices=_choices(found, action, old=old),
        back=Link(f"Back to {up.text}" if old else action.otherwise, context.back or up.url),
    )


def _choices(found: Action, action: TaskAction, *, old: bool) -> tuple[Choice, ...]:
    if old or found.trouble:
        return (Choice("again", "Run it again"),)
    if not found.total:
        return ()
    whole = formatting.upon(action.verb, formatting.count_of(found.found, "task"))
    some = formatting.upon(action.verb, f"only {FEW}")
    few = (Choice("few", some, action.danger),) if found.found > FEW else ()
    return (*few, Choice("all", whole, action.danger))


# -- after it --------------------------------------------------------------------------------------


def _begun(context: RequestContext, run: Action) -> Page:
    """Return the page of an action that was confirmed."""
    action = ACTIONS[run.action.value]
    moving = run.goes_on and not run.has_ended
    detail = "The service runs it. You can leave this page." if moving else ""
    if run.status is ActionStatus.PAUSED:
        detail = "Resume it within 7 days of its selection."
    return Page(
        "action.html",
        title=_text(run),
        crumbs=(*_way(context, run), crumb(context, "Activity", urls.ACTIVITY)),
        summary=_summary(run, action),
        detail=detail,
        trouble=f"Stopped: {run.trouble}." if run.trouble else "",
        done=run.at,
        count=run.total or 0,
        facts={
            "Numbers": _numbers(run, action),
            "Who and why": _who(context, run),
            "Which tasks": _which(run),
        },
        samples=(),
        forms=_forms(context, run),
        back=Link("Back to the list", context.back) if context.back else None,
        refresh=REFRESH_SECONDS if moving else None,
    )


def _summary(run: Action, action: TaskAction) -> str:
    if run.total is None:
        return "Finding tasks. Nothing has changed yet."
    changed = f"{formatting.count_of(run.changed, 'task')} {action.done}"
    so_far = f"{formatting.number(run.at)} of {formatting.count_of(run.total, 'task')}"
    return {
        ActionStatus.DONE: f"Done: {changed}.",
        ActionStatus.CANCELLED: f"Cancelled after {changed}.",
        ActionStatus.FAILED: f"Failed after {changed}.",
        ActionStatus.PAUSED: f"Paused: {so_far}.",
    }.get(run.status, f"Running: {so_far}.")


def _numbers(run: Action, action: TaskAction) -> tuple[Fact, ...]:
    left = sum(run.left.values())
    reasons = "; ".join(
        f"{formatting.number(amount)} because {why(reason, reason)}"
        for reason, amount in sorted(run.left.items())
    )
    rest = (run.total or 0) - run.at
    return (
        Fact("Matched", "unknown" if run.total is None else formatting.number(run.total)),
        Fact(action.done.capitalize(), formatting.number(run.changed)),
        Fact("Skipped", f"{formatting.number(left)}{': ' if left else ''}{reasons}"),
        *((Fact("Not reached", formatting.number(rest)),) if rest else ()),
    )


def _who(context: RequestContext, run: Action) -> tuple[Fact, ...]:
    terms = (term_text("actor", run.by_id or run.by), term_text("action", run.action.value))
    return (
        Fact("By", run.by, url=context.url(urls.ACTIVITY, {SEARCHED: " ".join(terms)})),
        Fact("Why", run.reason or "no reason given"),
        Fact("Started", at=run.started_at or run.as_of),
        *((Fact("Finished", at=run.ended_at),) if run.ended_at else ()),
        Fact("Id", run.id, code=True),
    )


def _forms(context: RequestContext, run: Action) -> tuple[Confirm, ...]:
    here, forms = _url(context, run), []
    if not run.has_ended and run.status is not ActionStatus.CANCELLED:
        turn = Choice("pause", "Pause") if run.goes_on else Choice("resume", "Resume")
        forms.append(Confirm(here, (Choice("cancel", "Cancel the rest", danger=True), turn)))
    if run.has_ended and run.found > run.at:
        forms.append(Confirm(here, (Choice("again", "Find the other tasks"),)))
    undos = [] if run.goes_on else [*filter(context.use.undos.remains, run.undos.values())]
    if undos and run.changed:
        tasks = formatting.count_of(run.changed, "task")
        hidden = (Hidden("undo", " ".join(undos)), Hidden(BACK, context.here))
        undo = Choice("", f"Undo: restore {tasks}")
        forms.append(Confirm(context.url(urls.UNDO), (undo,), hidden=hidden))
    return tuple(forms)


# -- words -----------------------------------------------------------------------------------------


def _place(run: Action) -> str:
    return run.queues[0] if len(run.queues) == 1 else formatting.count_of(len(run.queues), "queue")


def _way(context: RequestContext, run: Action) -> tuple[Link, ...]:
    if len(run.queues) == 1:
        return crumbs(context, run.queues[0])
    return (*crumbs(context), crumb(context, "Errors", urls.ERRORS))


def _text(run: Action) -> str:
    tasks = "all matching tasks" if run.total is None else formatting.count_of(run.total, "task")
    return formatting.upon(ACTIONS[run.action.value].verb, f"{tasks} of {_place(run)}")


def _progress(run: Action) -> str:
    if run.total is None:
        return _WORDS[run.status]
    return f"{_WORDS[run.status]}, {formatting.number(run.at)} processed"


def _which(run: Action) -> tuple[Fact, ...]:
    """Return the queues and the query of an action."""
    facts = [Fact("Queue" if len(run.queues) == 1 else "Queues", ", ".join(run.queues))]
    if run.ids:
        facts.append(Fact("Selected", formatting.count_of(len(run.ids), "task")))
    if text := query_text(Query(run.where)):
        facts.append(Fact("Query", text, code=True))
    if run.to_queue:
        facts.append(Fact("To queue", run.to_queue))
    return (*facts, Fact("As of", at=run.as_of), Fact("By", run.by))
