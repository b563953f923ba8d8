"""Actions on many tasks: the list, and a page for each with its progress."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final

from headrace.domain.access import Permission
from headrace.domain.operate import ActionStatus
from headrace.domain.query_grammar import term_text
from headrace.store.records.actions import Action

from .. import formatting, urls
from ..pages import Flash, Page
from ..parts import Choice, Confirm, Empty, Fact, Heading, Hidden, Link, Pager, SearchBox
from ..request_context import BACK, RequestContext
from ..routes import Redirect, Reply, routes
from .actions import ACTIONS, TaskAction, why
from .columns import Column, Columns, numbers, times
from .list_search import SEARCHED, ListSearch
from .navigation import crumb, crumbs
from .search_box import list_box
from .selections import REFRESH_SECONDS, begin_look, confirm, selection_page, which, work_on

_WORDS: Final = {
    ActionStatus.LOOKING: "finding tasks",
    ActionStatus.RUNNING: "running",
    ActionStatus.PAUSED: "paused",
    ActionStatus.DONE: "done",
    ActionStatus.CANCELLED: "cancelled",
    ActionStatus.FAILED: "failed",
}


@dataclass(frozen=True, slots=True)
class RunRow:
    """One action in short."""

    url: str
    text: str
    status: str
    changed: int
    total: int | None
    by: str
    reason: str
    started_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsPage(Page):
    """Actions, the latest first."""

    template: ClassVar[str] = "actions.html"
    search: SearchBox
    headings: tuple[Heading, ...]
    rows: tuple[RunRow, ...]
    pager: Pager
    empty: Empty


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage(Page):
    """The progress of an action: ``done`` of ``count``, drawn as a bar unless ``count`` is 0.

    The page reloads after ``refresh`` seconds, or not if that is None.
    """

    template: ClassVar[str] = "action.html"
    question: str
    summary: str
    detail: str
    trouble: str
    done: int
    count: int
    numbers: tuple[Fact, ...]
    who: tuple[Fact, ...]
    filter: tuple[Fact, ...]
    forms: tuple[Confirm, ...]
    back: Link | None
    refresh: int | None


def under_way(context: RequestContext, queue: str | None = None) -> tuple[Link, ...]:
    """Return links to the actions that are under way, of one *queue* or all."""
    if not context.allows(Permission.OPERATE, *([queue] if queue else [])):
        return ()
    return tuple(
        Link(f"{_text(run)}: {_progress(run)}", context.url(urls.ACTION, context.onward, id=run.id))
        for run in context.use.actions.under_way()
        if queue in (None, *run.touches)
    )


COLUMNS: Final[Columns[RunRow]] = {
    "begun": times("Begun", lambda row: row.started_at),
    "action": Column("Action", lambda row: row.text),
    "status": Column("Status", lambda row: row.status),
    "done": numbers("Done", lambda row: row.changed),
    "actor": Column("By", lambda row: row.by),
    "reason": Column("Why", lambda row: row.reason, wide=True),
}


@routes.get(urls.ACTIONS, Permission.OPERATE)
def show_all(context: RequestContext) -> Reply:
    """Show a page of the actions."""
    wanted: ListSearch[Action] = ListSearch(context, "actions")
    page = wanted.look(
        lambda where, limit, cursor: context.use.actions.list(
            where=where, limit=limit, cursor=cursor
        )
    )
    return RunsPage(
        title="Actions",
        http_status=wanted.status,
        search=list_box(context, wanted, page.shown),
        headings=wanted.headings(COLUMNS, "-begun"),
        rows=wanted.rows(COLUMNS, [_row(context, run) for run in page.shown]),
        pager=wanted.pager(len(page.shown)),
        empty=wanted.empty(
            Empty(
                "Actions on many tasks are shown here for 30 days. Start one from the list of a "
                "queue's tasks, or from the errors."
            )
        ),
    )


@routes.get(urls.ACTION, Permission.OPERATE)
def show(context: RequestContext) -> Reply:
    """Show the progress of an action, or what its dry run has found."""
    run = _own(context)
    return selection_page(context, run) if run.started_at is None else _page(context, run)


@routes.post(urls.ACTION, Permission.OPERATE)
def steer(context: RequestContext) -> Reply:
    """Confirm a dry run; or pause, resume, cancel or repeat an action."""
    run, wanted = _own(context), context.request.given("do")
    if wanted == "again":
        return begin_look(context, run.action, run.queues, run.where)
    if run.started_at is None:
        return confirm(context, run, wanted)
    actions = context.use.actions
    turns = {"pause": actions.pause, "resume": actions.resume, "cancel": actions.cancel}
    here = context.url(urls.ACTION, {BACK: context.back}, id=run.id)
    if wanted not in turns:
        return Redirect(here)
    work_on(context, turns[wanted](run.id))
    said = {"pause": "Paused.", "resume": "Resumed.", "cancel": "Cancelled."}
    return Redirect(here, Flash("done", said[wanted]))


def _own(context: RequestContext) -> Action:
    return context.use.actions.get(context.request.names["id"], dry_run=True)


def _row(context: RequestContext, run: Action) -> RunRow:
    return RunRow(
        context.url(urls.ACTION, context.onward, id=run.id),
        _text(run),
        _WORDS[run.status],
        run.changed,
        run.total,
        run.by,
        run.reason,
        run.started_at or run.as_of,
    )


def _text(run: Action) -> str:
    one = run.queues[0] if len(run.queues) == 1 else None
    place = one or formatting.count_of(len(run.queues), "queue")
    tasks = "all matching tasks" if run.total is None else formatting.count_of(run.total, "task")
    return formatting.upon(ACTIONS[run.action.value].verb, f"{tasks} of {place}")


def _progress(run: Action) -> str:
    if run.total is None:
        return _WORDS[run.status]
    return f"{_WORDS[run.status]}, {formatting.number(run.at)} processed"


def _page(context: RequestContext, run: Action) -> RunPage:
    action = ACTIONS[run.action.value]
    one = run.queues[0] if len(run.queues) == 1 else ""
    return RunPage(
        title=_text(run),
        crumbs=(*crumbs(context, one), crumb(context, "Actions", urls.ACTIONS)),
        question=_text(run),
        summary=_summary(run, action),
        detail=_detail(run),
        trouble=f"Stopped: {run.trouble}." if run.trouble else "",
        done=run.at,
        count=run.total or 0,
        numbers=_numbers(run, action),
        who=_who(context, run),
        filter=which(run.queues, run.where.fields(), run.to_queue, run.as_of, run.by),
        forms=_forms(context, run),
        back=Link("Back to the list", context.back) if context.back else None,
        refresh=REFRESH_SECONDS if run.goes_on and not run.has_ended else None,
    )


def _summary(run: Action, action: TaskAction) -> str:
    if run.total is None:
        return "Finding tasks. Nothing has changed yet."
    changed = f"{formatting.count_of(run.changed, 'task')} {action.done}"
    so_far = f"{formatting.number(run.at)} of {formatting.count_of(run.total, 'task')}"
    match run.status:
        case ActionStatus.DONE:
            return f"Done: {changed}."
        case ActionStatus.CANCELLED:
            return f"Cancelled after {changed}."
        case ActionStatus.FAILED:
            return f"Failed after {changed}."
        case ActionStatus.PAUSED:
            return f"Paused: {so_far}."
    return f"Running: {so_far}."


def _detail(run: Action) -> str:
    if run.has_ended:
        return ""
    if run.status is ActionStatus.PAUSED:
        return "Resume it within 7 days of its dry run."
    return "The service runs it. You can leave this page."


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
    audit = context.url(urls.AUDIT, {SEARCHED: " ".join(terms)})
    return (
        Fact("By", run.by, url=audit),
        Fact("Why", run.reason or "no reason given"),
        Fact("Begun", at=run.started_at or run.as_of),
        *((Fact("Ended", at=run.ended_at),) if run.ended_at else ()),
        Fact("Id", run.id, code=True),
    )


def _forms(context: RequestContext, run: Action) -> tuple[Confirm, ...]:
    here, forms = context.url(urls.ACTION, {BACK: context.back}, id=run.id), []
    if not run.has_ended and run.status is not ActionStatus.CANCELLED:
        turn = Choice("resume", "Resume")
        if run.goes_on:
            turn = Choice("pause", "Pause")
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
