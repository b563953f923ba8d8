"""Acting on all tasks that match: a dry run, and a confirmation of exactly what it saw.

The set that was seen is kept (``headrace.ops.operators.selections``), and each request takes the
look a bounded part further; the doing is the service's (``running``).  A confirmation is signed: it
holds for one session, one set as it then stood, for an hour.  Only an address with such a signature
takes the look further, so that the page can open itself again without script; without it the page
only shows how far that is.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, ClassVar, Final

from headrace.domain.access import Permission
from headrace.domain.errors import (
    Conflict,
    Forbidden,
    HeadraceError,
    InvalidRequest,
    NotFound,
    Unavailable,
)
from headrace.domain.operate import BulkAction
from headrace.ops.operators.selections import Check
from headrace.store.records.actions import ActionRun
from headrace.store.records.selections import TaskSelection

from .. import formatting, urls
from ..forms import tags_text
from ..pages import Page
from ..parts import Choice, Confirm, Fact, Field, Hidden, Link
from ..request_context import BACK, RequestContext, elsewhere
from ..routes import Redirect, Reply, routes
from .actions import ACTIONS, TaskAction, action_named, target_fields
from .navigation import crumb, crumbs
from .queue_actions import UNDO_SECONDS, undo_words, why_field
from .task_list import SEARCHED, TaskQuery

FEW: Final = 5
LASTS: Final = timedelta(hours=1)
_GO: Final = "go"
_SEEN: Final = "seen"
_NAMES: Final = {"seen_at": "As of", "state": "State", "min_attempts": "Attempts, at least",
                 "scheduled_after": "After", "scheduled_before": "Before",
                 "error": "Error has", "fingerprint": "Errors like",
                 "priority": "Priority",
                 "group_key": "Group"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SeenTask:
    """A task of the set, and its latest error."""

    id: str
    url: str
    queue: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionPage(Page):
    """What would be done to which tasks; ``refresh`` is the address that takes the look further."""

    template: ClassVar[str] = "selection.html"
    question: str
    summary: str
    detail: str
    trouble: str
    filter: tuple[Fact, ...]
    numbers: tuple[Fact, ...]
    samples: tuple[SeenTask, ...]
    more: str
    decision: Confirm
    refresh: str | None


@routes.post(urls.MATCHING, Permission.OPERATE)
def look(context: RequestContext) -> Reply:
    """Begin a dry run of an action on all tasks that the address asks for."""
    wanted = TaskQuery(context)
    action = action_named(context.request.given("action"))
    if wanted.errors:
        typed = {**wanted.given, SEARCHED: wanted.typed}
        return Redirect(context.url(urls.QUEUE, typed, queue=context.queue))
    found = context.use.selections.look(
        action.action, [context.queue], wanted.where, by=context.by.name
    )
    return go_on(context, found)


def go_on(context: RequestContext, found: TaskSelection) -> Redirect:
    """Return the way to the page of *found*, which takes the look further if it is not over."""
    return Redirect(_url(context, found, go=_unfinished(found)))


def _url(context: RequestContext, found: TaskSelection, *, go: bool) -> str:
    """Return the address of the page of *found*; with *go* it takes the look further."""
    query = {_GO: _go_token(context, found) if go else "", BACK: context.back}
    return context.url(urls.SELECTION, query, set=found.name)


@routes.get(urls.SELECTION, Permission.OPERATE)
def show(context: RequestContext) -> Reply:
    """Show how far it is, and take it further if the address was made for that."""
    found = _found(context)
    given = context.request.param(_GO)
    ours = not elsewhere(context.request) and given == _go_token(context, found)
    if ours and _unfinished(found):
        before = found
        found = context.use.selections.resume(found.name, check=_may(context))
        ours = found.version > before.version  # else somebody else is at it
    return _page(context, found, refresh=ours and _unfinished(found))


@routes.post(urls.SELECTION, Permission.OPERATE)
def act(context: RequestContext) -> Reply:
    """Begin an action, or go on looking."""
    found = _found(context)
    wanted = context.request.given("do")
    if wanted == "look":
        return go_on(context, context.use.selections.resume(found.name, check=_may(context)))
    at = _confirmed(context, found)
    try:
        run = context.use.actions.begin(
            found.name,
            at=at,
            most=FEW if wanted == "few" else None,
            to_queue=context.request.given("to_queue").strip() or None,
            undo_in_seconds=UNDO_SECONDS,
            reason=context.request.given("reason"),
            check=_may(context),
        )
    except (InvalidRequest, NotFound) as error:
        page = _page(context, found, refresh=False, error=error)
        return replace(page, http_status=error.status)
    work_on(context, run)
    return Redirect(context.url(urls.ACTION, {BACK: context.back}, id=run.id))


def work_on(context: RequestContext, run: ActionRun) -> None:
    """Do a part of an action now, so that a small one is over when its page shows."""
    with suppress(Unavailable):  # then the service does it
        context.use.action_work.resume(run.mark(), time_left=lambda: 0.0)


def _found(context: RequestContext) -> TaskSelection:
    return context.use.selections.get(context.request.names["set"], check=_may(context))


def _may(context: RequestContext) -> Check:
    """Return the check that whoever is signed in may operate every queue that a set touches.

    The target of a move is one of them from the moment that somebody named it.
    """

    def check(found: TaskSelection) -> None:
        if not all(context.allows(Permission.OPERATE, queue) for queue in found.touches):
            raise Forbidden("this key is not for all queues of this set of tasks")

    return check


def _unfinished(found: TaskSelection) -> bool:
    return found.looking and not found.trouble


# -- signatures ------------------------------------------------------------------------------------


def _go_token(context: RequestContext, found: TaskSelection) -> str:
    return context.signing.write(_GO, [found.name, _nonce(context)])


def _nonce(context: RequestContext) -> str:
    return context.session.nonce if context.session else ""


def _seal(context: RequestContext, found: TaskSelection) -> list[Any]:
    """Return the state that a confirmation signs: all of it must be as it was when shown."""
    fields = repr(sorted(found.where.fields().items()))
    filter_hash = sha256(fields.encode("utf-8", "surrogatepass")).hexdigest()
    return [
        found.name,
        found.action.value,
        list(found.queues),
        filter_hash,
        found.seen_at.isoformat(),
        found.count,
        _nonce(context),
    ]


def _confirmed(context: RequestContext, found: TaskSelection) -> int:
    """Return how far it was when it was confirmed.

    Raises Forbidden for a confirmation that is not of this set, Conflict for one that is too old.
    """
    match context.signing.read(_SEEN, context.request.given(_SEEN)):
        case [list(sealed), int(at)] if sealed == _seal(context, found):
            pass
        case _:
            raise Forbidden("this confirmation is not of this set of tasks: open its page again")
    if context.now > found.seen_at + LASTS:
        message = (
            f"the look at these tasks is over {formatting.duration(LASTS.total_seconds())} old"
        )
        raise Conflict(f"{message}: look again, and confirm what is there now")
    return at


# -- the page --------------------------------------------------------------------------------------


def _page(
    context: RequestContext,
    found: TaskSelection,
    *,
    refresh: bool,
    error: HeadraceError | None = None,
) -> SelectionPage:
    action = ACTIONS[found.action.value]
    one = found.queues[0] if len(found.queues) == 1 else None
    place = one or formatting.count_of(len(found.queues), "queue")
    way = crumbs(context, one or "")
    if not one:
        way = (*way, crumb(context, "Errors", urls.ERRORS))
    tasks = formatting.count_of(found.rest, "task")
    question = f"{formatting.upon(action.verb, f'{tasks} of {place}')}?"
    if found.looking:
        question = f"{formatting.upon(action.verb, f'all that match in {place}')}: looking"
    over = context.now > found.seen_at + LASTS and not found.handed_over
    return SelectionPage(
        title=question,
        crumbs=way,
        question=question,
        summary=_summary(found, action, over=over),
        detail=_detail(found, action),
        trouble=f"Looking stopped: {found.trouble}. Nothing was changed." if found.trouble else "",
        filter=which(found.queues, found.where.fields(), found.to_queue, found.seen_at, found.by),
        numbers=_numbers(found),
        samples=() if found.begun else _samples(context, found),
        more=f"and {formatting.number(found.count - len(found.samples))} more"
        if found.count > len(found.samples)
        else "",
        decision=_decision(context, found, action, way[-1], error=error, over=over),
        refresh=_url(context, found, go=True) if refresh else None,
    )


def _summary(found: TaskSelection, action: TaskAction, *, over: bool) -> str:
    looked = formatting.count_of(found.looked_at, "task")
    if found.looking:
        fit = formatting.number(found.count)
        return f"Looked at {looked} so far, {fit} of them fit. Nothing is changed."
    if over:
        return "This look is too old to act on. Look again: what is there now may be another set."
    if not found.count:
        return f"No task fits, of {looked} looked at. There is nothing to {action.verb.lower()}."
    if not found.begun:
        return (
            "Nothing is changed yet. Exactly these tasks are meant: none that comes later, and "
            "none that has changed by then."
        )
    begun = f"{formatting.number(found.at)} of {formatting.count_of(found.count, 'task')}"
    return f"Begun on {begun}: the page of actions has them."


def _detail(found: TaskSelection, action: TaskAction) -> str:
    """Return the advice to read before going on."""
    if found.looking:
        return "It looks step by step, and only while this page is open."
    if found.handed_over or not found.count:
        return ""
    lasting = f" {undo_words()}" if action.action is BulkAction.DELETE else ""
    return f"{action.detail}{lasting} The service does it: you may leave the page then."


def which(
    queues: Sequence[str],
    where: Mapping[str, Any],
    to_queue: str | None,
    seen_at: datetime,
    by: str,
) -> tuple[Fact, ...]:
    """Return which tasks are meant, in words."""
    facts = [Fact("Queue" if len(queues) == 1 else "Queues", ", ".join(queues))]
    for name, value in where.items():
        text = tags_text(value) if name == "tags" else str(value)
        if name == "state":
            text = text.lower().replace(",", ", ")
        facts.append(Fact(_NAMES.get(name, name.capitalize()), text))
    if to_queue:
        facts.append(Fact("Goes to", to_queue))
    return (*facts, Fact("Seen", at=seen_at), Fact("By", by))


def _numbers(found: TaskSelection) -> tuple[Fact, ...]:
    return (
        Fact("Looked at", formatting.number(found.looked_at)),
        Fact("Matched", formatting.number(found.count)),
        *((Fact("Not touched", formatting.number(found.rest)),) if found.begun else ()),
    )


def _samples(context: RequestContext, found: TaskSelection) -> tuple[SeenTask, ...]:
    tasks = context.use.selections.sampled(found)
    return tuple(
        SeenTask(
            task.id,
            context.url(urls.TASK, id=task.id),
            task.queue,
            formatting.latest(task.errors, 200),
        )
        for task in tasks
    )


def reason_field(context: RequestContext, error: HeadraceError | None = None) -> Field:
    """Return the field for why something is done, which others read in the audit."""
    wrong = (
        next((one.message for one in error.errors if one.field == "reason"), "") if error else ""
    )
    return why_field(context.request.given("reason"), wrong)


def _decision(
    context: RequestContext,
    found: TaskSelection,
    action: TaskAction,
    up: Link,
    *,
    error: HeadraceError | None,
    over: bool,
) -> Confirm:
    up = Link(up.text, context.back or up.url)
    asks = not (found.looking or found.handed_over or over)
    reason = reason_field(context, error)
    wrong = error.detail if error and not reason.error else ""
    targets = target_fields(context, action, found.queues[0], wrong) if not found.begun else ()
    return Confirm(
        action=context.url(urls.SELECTION, set=found.name),
        hidden=(Hidden(_SEEN, context.signing.write(_SEEN, [_seal(context, found), found.at])),)
        if asks
        else (),
        fields=(*targets, reason) if asks and found.count else (),
        choices=_choices(found, action) if not over else (),
        back=Link(f"Back to {up.text}" if found.handed_over or over else action.otherwise, up.url)
        if not found.begun or found.handed_over
        else Link(f"Leave it, back to {up.text}", up.url),
    )


def _choices(found: TaskSelection, action: TaskAction) -> tuple[Choice, ...]:
    if found.looking:
        return (Choice("look", "Go on looking"),)
    if found.handed_over:
        return ()
    tasks = formatting.count_of(found.rest, "task")
    whole = formatting.upon(action.verb, f"the other {tasks}" if found.begun else tasks)
    some = formatting.upon(action.verb, f"only {FEW}{' more' if found.begun else ''}")
    few = (Choice("few", some, action.danger),) if found.rest > FEW else ()
    return (*few, Choice("all", whole, action.danger))
