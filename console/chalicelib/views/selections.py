"""Acting on all tasks that match: a dry run, a confirmation of exactly what it saw, the doing.

The set that was seen is kept (``headrace.ops.operators.selections``), and each request takes it a
bounded part further.  A confirmation is signed: it holds for one session, one set as it then stood,
for an hour. Only an address with such a signature takes work further that was confirmed, so that
the page can open itself again without script; without it the page only shows how far it is.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import sha256
from typing import Any, ClassVar, Final

from headrace.domain.access import Permission
from headrace.domain.errors import Conflict, Forbidden, InvalidRequest, NotFound
from headrace.domain.operate import BulkAction
from headrace.ops.operators.selections import STEP, Check
from headrace.store.records.selections import TaskSelection

from .. import formatting, urls
from ..forms import tags_text
from ..pages import Page
from ..parts import Choice, Confirm, Fact, Hidden, Link
from ..request_context import RequestContext, elsewhere
from ..routes import Redirect, Reply, routes
from .actions import ACTIONS, TaskAction, action_named, target_fields, why
from .navigation import crumbs
from .queue_actions import UNDO_SECONDS, undo_words
from .task_list import TaskQuery

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
    """How far it is; ``refresh`` is the address that takes it further, None when nothing does.

    ``done`` of ``count`` is drawn as a bar unless ``count`` is 0.
    """

    template: ClassVar[str] = "selection.html"
    question: str
    summary: str
    detail: str
    trouble: str
    filter: tuple[Fact, ...]
    numbers: tuple[Fact, ...]
    done: int
    count: int
    samples: tuple[SeenTask, ...]
    more: str
    decision: Confirm
    undo: Confirm | None
    refresh: str | None


@routes.post(urls.MATCHING, Permission.OPERATE)
def look(context: RequestContext) -> Reply:
    """Begin a dry run of an action on all tasks that the address asks for."""
    wanted = TaskQuery(context)
    action = action_named(context.request.given("action"))
    if wanted.errors:
        return Redirect(context.url(urls.QUEUE, wanted.query(), queue=context.queue))
    found = context.use.selections.look(
        action.action, [context.queue], wanted.where, by=context.by.name
    )
    return go_on(context, found)


def go_on(context: RequestContext, found: TaskSelection) -> Redirect:
    """Return the way to the page of *found*, which takes it further if there is more to do."""
    query = {_GO: _go_token(context, found)} if _unfinished(found) else {}
    return Redirect(context.url(urls.SELECTION, query, set=found.name))


@routes.get(urls.SELECTION, Permission.OPERATE)
def show(context: RequestContext) -> Reply:
    """Show how far it is, and take it further if the address was made for that."""
    found = _found(context)
    given = context.request.param(_GO)
    ours = not elsewhere(context.request) and given == _go_token(context, found)
    if ours and _unfinished(found):
        before = found
        found = context.use.selections.go_on(found.name, check=_may(context))
        ours = found.version > before.version  # else somebody else is at it
    return _page(context, found, refresh=ours and _unfinished(found))


@routes.post(urls.SELECTION, Permission.OPERATE)
def act(context: RequestContext) -> Reply:
    """Begin, go on, or stop."""
    found = _found(context)
    wanted = context.request.given("do")
    if wanted == "stop":
        return go_on(context, context.use.selections.stop(found.name, check=_may(context)))
    if wanted == "look":
        return go_on(context, context.use.selections.go_on(found.name, check=_may(context)))
    at = _confirmed(context, found)
    target = context.request.given("to_queue").strip() or None
    most = FEW if wanted == "few" else None
    try:
        begun = context.use.selections.begin(
            found.name,
            at=at,
            most=most,
            to_queue=target,
            undo_in_seconds=UNDO_SECONDS,
            check=_may(context),
        )
        return go_on(context, begun)
    except (InvalidRequest, NotFound) as error:
        page = _page(context, found, refresh=False, error=error.detail)
        return replace(page, http_status=error.status)


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
    return (found.looking or found.acting) and not found.trouble


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
    context: RequestContext, found: TaskSelection, *, refresh: bool, error: str = ""
) -> SelectionPage:
    action = ACTIONS[found.action.value]
    one = found.queues[0] if len(found.queues) == 1 else None
    place = one or formatting.count_of(len(found.queues), "queue")
    way = crumbs(context, one or "")
    if not one:
        way = (*way, Link("Errors", context.url(urls.ERRORS)))
    tasks = formatting.count_of(found.count, "task")
    question = formatting.upon(action.verb, f"{tasks} of {place}")
    if found.looking:
        question = f"{formatting.upon(action.verb, f'all that match in {place}')}: looking"
    elif not found.begun:
        question += "?"
    over = context.now > found.seen_at + LASTS and not found.done
    return SelectionPage(
        title=question,
        crumbs=way,
        question=question,
        summary=_summary(found, action, over=over),
        detail=_detail(found, action),
        trouble=_trouble(found),
        filter=_which(found),
        numbers=_numbers(found, action),
        done=found.at,
        count=found.count if found.begun else 0,
        samples=() if found.begun else _samples(context, found),
        more=f"and {formatting.number(found.count - len(found.samples))} more"
        if found.count > len(found.samples)
        else "",
        decision=_decision(context, found, action, way[-1], error=error, over=over),
        undo=_undo(context, found),
        refresh=context.url(urls.SELECTION, {_GO: _go_token(context, found)}, set=found.name)
        if refresh
        else None,
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
    if found.done:
        return f"Done: {formatting.count_of(found.changed, 'task')} {action.done}."
    so_far = f"{formatting.number(found.at)} of {formatting.count_of(found.count, 'task')}"
    return f"Going on: {so_far} so far." if found.acting else f"Resting: {so_far} so far."


def _detail(found: TaskSelection, action: TaskAction) -> str:
    """Return the advice to read before going on, or while it goes on."""
    if found.looking or found.acting:
        return (
            "It goes on step by step, and only while this page is open. Leave it and it rests "
            "where it is; this page then takes it up again with one button."
        )
    if found.begun or not found.count:
        return ""
    steps = (
        " Keep this page open until it is done: it goes step by step." if found.count > STEP else ""
    )
    lasting = f" {undo_words()}" if action.action is BulkAction.DELETE else ""
    return f"{action.detail}{lasting}{steps}"


def _undo(context: RequestContext, found: TaskSelection) -> Confirm | None:
    """Return the button that brings back what was deleted, where something was, and it rests."""
    if not found.undos or not found.changed or found.acting:
        return None
    tasks = formatting.count_of(found.changed, "task")
    hidden = (Hidden("undo", " ".join(found.undos.values())),)
    return Confirm(
        context.url(urls.UNDO), (Choice("", f"Undo: bring {tasks} back"),), hidden=hidden
    )


def _trouble(found: TaskSelection) -> str:
    if not found.trouble:
        return ""
    if found.looking:
        return f"Looking stopped: {found.trouble}. Nothing was changed."
    return (
        f"It stopped: {found.trouble}. {formatting.number(found.at)} were dealt with as told "
        "below. The next one may or may not have been changed; nothing was done to the others."
    )


def _which(found: TaskSelection) -> tuple[Fact, ...]:
    facts = [Fact("Queue" if len(found.queues) == 1 else "Queues", ", ".join(found.queues))]
    for name, value in found.where.fields().items():
        text = tags_text(value) if name == "tags" else str(value)
        if name == "state":
            text = text.lower().replace(",", ", ")
        facts.append(Fact(_NAMES.get(name, name.capitalize()), text))
    if found.to_queue:
        facts.append(Fact("Goes to", found.to_queue))
    return (*facts, Fact("Seen", at=found.seen_at), Fact("By", found.by))


def _numbers(found: TaskSelection, action: TaskAction) -> tuple[Fact, ...]:
    facts = [Fact("Looked at", formatting.number(found.looked_at)),
             Fact("Matched", formatting.number(found.count))]  # fmt: skip
    if found.begun:
        facts.append(Fact(action.done.capitalize(), formatting.number(found.changed)))
        left = sum(found.left.values())
        reasons = "; ".join(
            f"{formatting.number(amount)} because {why(reason, reason)}"
            for reason, amount in sorted(found.left.items())
        )
        facts.append(
            Fact("Left alone", f"{formatting.number(left)}{': ' if left else ''}{reasons}")
        )
        if found.rest:
            facts.append(Fact("Not touched", formatting.number(found.rest)))
    return tuple(facts)


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


def _decision(
    context: RequestContext,
    found: TaskSelection,
    action: TaskAction,
    up: Link,
    *,
    error: str,
    over: bool,
) -> Confirm:
    asks = not (found.looking or found.acting or found.done or over)
    begins = asks and not found.begun
    return Confirm(
        action=context.url(urls.SELECTION, set=found.name),
        hidden=(Hidden(_SEEN, context.signing.write(_SEEN, [_seal(context, found), found.at])),)
        if asks
        else (),
        fields=target_fields(context, action, found.queues[0], error) if begins else (),
        choices=_choices(found, action) if not over else (),
        back=Link(f"Back to {up.text}" if found.done or over else action.otherwise, up.url)
        if not found.begun or found.done
        else Link(f"Leave it, back to {up.text}", up.url),
    )


def _choices(found: TaskSelection, action: TaskAction) -> tuple[Choice, ...]:
    if found.looking:
        return (Choice("look", "Go on looking"),)
    if found.acting:
        return (Choice("stop", "Stop here"), Choice("look", "Go on"))
    if found.done:
        return ()
    tasks = formatting.count_of(found.rest, "task")
    whole = formatting.upon(action.verb, f"the other {tasks}" if found.begun else tasks)
    some = formatting.upon(action.verb, f"only {FEW}{' more' if found.begun else ''}")
    few = (Choice("few", some, action.danger),) if found.rest > FEW else ()
    return (*few, Choice("all", whole, action.danger))
