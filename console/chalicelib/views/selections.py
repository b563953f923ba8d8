"""Dry runs: all tasks that match are shown, and the operator confirms exactly these.

The service finds the tasks, and keeps what it has found (``headrace.ops.operators.actions``).  A
confirmation is signed: it holds for one session and one set as it was shown, for an hour.
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
from headrace.domain.filters import TaskFilter
from headrace.domain.operate import BulkAction
from headrace.ops.operators.actions import SAMPLES
from headrace.store.records.actions import Action

from .. import formatting, urls
from ..forms import tags_text
from ..pages import Page
from ..parts import Choice, Confirm, Fact, Field, Hidden, Link
from ..request_context import BACK, RequestContext
from ..routes import Redirect, Reply, routes
from .actions import ACTIONS, TaskAction, action_named, target_fields
from .navigation import crumb, crumbs
from .queue_actions import UNDO_SECONDS, undo_words, why_field
from .task_list import SEARCHED, TaskQuery

FEW: Final = 5
LASTS: Final = timedelta(hours=1)
REFRESH_SECONDS: Final = 2
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
    """A dry run and its confirmation; the page reloads after ``refresh`` seconds."""

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
    refresh: int | None


@routes.post(urls.MATCHING, Permission.OPERATE)
def look(context: RequestContext) -> Reply:
    """Begin a dry run on all tasks that match the query of the address."""
    wanted = TaskQuery(context)
    action = action_named(context.request.given("action"))
    if wanted.errors:
        typed = wanted.query(**{SEARCHED: wanted.typed})
        return Redirect(context.url(urls.QUEUE, typed, queue=context.queue))
    return begin_look(context, action.action, (context.queue,), wanted.where)


def begin_look(
    context: RequestContext, action: BulkAction, queues: Sequence[str], where: TaskFilter
) -> Redirect:
    """Begin a dry run, and redirect to its page."""
    found = context.use.actions.look(action, queues, where)
    work_on(context, found)
    return Redirect(context.url(urls.ACTION, {BACK: context.back}, id=found.id))


def confirm(context: RequestContext, found: Action, wanted: str) -> Reply:
    """Begin the action on the tasks that were *found*, or on a few of them."""
    _check_seal(context, found)
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
        return replace(selection_page(context, found, error=error), http_status=error.status)
    work_on(context, run)
    return Redirect(context.url(urls.ACTION, {BACK: context.back}, id=run.id))


def work_on(context: RequestContext, run: Action) -> None:
    """Do a part of an action now, so that a small one is over when its page shows."""
    with suppress(Unavailable):  # then the service does it
        context.use.action_work.resume(run.mark(), time_left=lambda: 0.0)


# -- signatures ------------------------------------------------------------------------------------


def _seal(context: RequestContext, found: Action) -> list[Any]:
    """Return the state that a confirmation signs; it must not have changed since it was shown."""
    fields = repr(sorted(found.where.fields().items()))
    return [
        found.id,
        found.action.value,
        list(found.queues),
        sha256(fields.encode("utf-8", "surrogatepass")).hexdigest(),
        found.found,
        context.session.nonce if context.session else "",
    ]


def _check_seal(context: RequestContext, found: Action) -> None:
    """Raise Forbidden for a confirmation that is not of this set, Conflict for one too old."""
    if context.signing.read(_SEEN, context.request.given(_SEEN)) != _seal(context, found):
        raise Forbidden("this confirmation is not of this set of tasks: open its page again")
    if context.now > found.as_of + LASTS:
        lasts = formatting.duration(LASTS.total_seconds())
        raise Conflict(f"this dry run is over {lasts} old: run it again, and confirm the new one")


# -- the page --------------------------------------------------------------------------------------


def selection_page(
    context: RequestContext, found: Action, *, error: HeadraceError | None = None
) -> SelectionPage:
    """Return the page of a dry run, with the form that confirms it."""
    action = ACTIONS[found.action.value]
    one = found.queues[0] if len(found.queues) == 1 else None
    place = one or formatting.count_of(len(found.queues), "queue")
    way = crumbs(context, one or "")
    if not one:
        way = (*way, crumb(context, "Errors", urls.ERRORS))
    tasks = formatting.count_of(found.found, "task")
    question = f"{formatting.upon(action.verb, f'{tasks} of {place}')}?"
    if found.total is None:
        question = f"{formatting.upon(action.verb, f'all matching tasks of {place}')}: finding them"
    old = context.now > found.as_of + LASTS
    return SelectionPage(
        title=question,
        crumbs=way,
        question=question,
        summary=_summary(found, old=old),
        detail=_detail(found, action),
        trouble=f"The dry run stopped: {found.trouble}. Nothing has changed."
        if found.trouble
        else "",
        filter=which(found.queues, found.where.fields(), found.to_queue, found.as_of, found.by),
        numbers=(
            Fact("Checked", formatting.number(found.looked_at)),
            Fact("Matched", formatting.number(found.found)),
        ),
        samples=_samples(context, found),
        more=f"and {formatting.number(found.found - SAMPLES)} more"
        if found.found > SAMPLES
        else "",
        decision=_decision(context, found, action, way[-1], error=error, old=old),
        refresh=REFRESH_SECONDS if found.goes_on else None,
    )


def _summary(found: Action, *, old: bool) -> str:
    looked = formatting.count_of(found.looked_at, "task")
    if found.total is None:
        fit = formatting.number(found.found)
        return f"Checked {looked} so far; {fit} match. Nothing has changed."
    if old:
        return "This dry run is more than an hour old. Run it again: the tasks may have changed."
    if not found.found:
        return f"No task matches, of {looked} checked."
    return (
        "Nothing has changed yet. The action takes exactly these tasks: no later ones, and none "
        "that change before it reaches them."
    )


def _detail(found: Action, action: TaskAction) -> str:
    """Return the advice to read before confirming."""
    if not found.total:
        return ""
    lasting = f" {undo_words()}" if action.action is BulkAction.DELETE else ""
    return f"{action.detail}{lasting} The service runs it: you can leave the page."


def which(
    queues: Sequence[str],
    where: Mapping[str, Any],
    to_queue: str | None,
    seen_at: datetime,
    by: str,
) -> tuple[Fact, ...]:
    """Return the queues and the filter of an action, in words."""
    facts = [Fact("Queue" if len(queues) == 1 else "Queues", ", ".join(queues))]
    for name, value in where.items():
        text = tags_text(value) if name == "tags" else str(value)
        if name == "state":
            text = text.lower().replace(",", ", ")
        facts.append(Fact(_NAMES.get(name, name.capitalize()), text))
    if to_queue:
        facts.append(Fact("To queue", to_queue))
    return (*facts, Fact("As of", at=seen_at), Fact("By", by))


def _samples(context: RequestContext, found: Action) -> tuple[SeenTask, ...]:
    return tuple(
        SeenTask(
            task.id,
            context.url(urls.TASK, id=task.id),
            task.queue,
            formatting.latest(task.errors, 200),
        )
        for task in context.use.actions.samples(found)
    )


def reason_field(context: RequestContext, error: HeadraceError | None = None) -> Field:
    """Return the field for the reason, which the audit keeps."""
    wrong = (
        next((one.message for one in error.errors if one.field == "reason"), "") if error else ""
    )
    return why_field(context.request.given("reason"), wrong)


def _decision(
    context: RequestContext,
    found: Action,
    action: TaskAction,
    up: Link,
    *,
    error: HeadraceError | None,
    old: bool,
) -> Confirm:
    asks = bool(found.total) and not old
    reason = reason_field(context, error)
    wrong = error.detail if error and not reason.error else ""
    targets = target_fields(context, action, found.queues[0], wrong)
    seal = Hidden(_SEEN, context.signing.write(_SEEN, _seal(context, found)))
    return Confirm(
        action=context.url(urls.ACTION, id=found.id),
        hidden=(seal,) if asks else (),
        fields=(*targets, reason) if asks else (),
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
