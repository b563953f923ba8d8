"""Snoozing what is wrong with a queue: it stays off home for a while, with the reason."""

from dataclasses import replace
from typing import Final

from headrace.domain.access import Permission
from headrace.domain.errors import NotFound
from headrace.domain.times import duration_text
from headrace.ops.operators.snoozes import SECONDS, Snooze

from .. import urls
from ..cells import Cell, Dim, Fold, Lines
from ..forms import NO_ERRORS, FormErrors
from ..pages import Flash
from ..parts import Choice, Confirm, Field, Hidden, Link, Option
from ..request_context import BACK, RequestContext
from ..routes import Redirect, Reply, routes
from .confirm import ask
from .navigation import crumbs
from .queue_actions import why_field
from .trouble import Rank, Trouble

_TIMES: Final = ("1h", "4h", "1d", "7d")


@routes.get(urls.SNOOZE, Permission.OPERATE)
def ask_snooze(context: RequestContext, errors: FormErrors = NO_ERRORS) -> Reply:
    """Ask for how long, and why."""
    incident, given = _incident(context), context.request.given("snooze_for", "1h")
    length = Field(
        "snooze_for", "For", given, error=errors.of("snooze_for"), hint="At most 7 days: 7d.",
        options=tuple(Option(value, value) for value in _TIMES),
    )  # fmt: skip
    return ask(
        crumbs(context),
        question=f"Snooze “{incident.word}” of {context.queue}?",
        detail="It leaves the list of what needs attention until the time is over. Other "
        "incidents of the queue still show, and its alerts are still sent.",
        action=context.url(urls.SNOOZE, queue=context.queue, incident=incident.key),
        button="Snooze",
        fields=(length, why_field(context.request.given("reason"), errors.of("reason"))),
        back=Link("Back", context.back or context.url(urls.QUEUES)),
        status=400 if errors else 200,
    )


@routes.post(urls.SNOOZE, Permission.OPERATE)
def snooze(context: RequestContext) -> Reply:
    """Snooze an incident, or end its snooze."""
    incident, errors = _incident(context), FormErrors()
    name, word = incident.key, incident.word
    back = context.back or context.url(urls.QUEUES)
    if context.request.given("do") == "wake":
        context.use.snoozes.wake(context.queue, name)
        return Redirect(back, Flash("done", f"“{word}” of {context.queue} shows again."))
    seconds = errors.length("snooze_for", context.request.given("snooze_for"), SECONDS)
    reason = errors.reason(context.request.given("reason"))
    if seconds is None:
        errors.add("snooze_for", "is needed")
    if seconds is None or errors:
        return ask_snooze(context, errors)
    context.use.snoozes.snooze(context.queue, name, seconds, reason=reason)
    done = f"“{word}” of {context.queue} is snoozed for {duration_text(seconds)}."
    return Redirect(back, Flash("done", done))


def without_snoozed(context: RequestContext, troubles: list[Trouble]) -> tuple[list[Trouble], Cell]:
    """Return *troubles* without snoozed incidents, and these as a cell that unfolds."""
    snoozes = context.use.snoozes.all()
    left, lines = [], []
    for trouble in troubles:
        operates = context.allows(Permission.OPERATE, trouble.name)
        found = [snoozes.get((trouble.name, reason.rank.key)) for reason in trouble.reasons]
        reasons = [
            replace(one, snooze=_url(context, trouble.name, one.rank) if operates else "")
            for one, snoozed in zip(trouble.reasons, found, strict=True)
            if not snoozed
        ]
        left += [trouble.of(reasons)] if reasons else []
        lines += [_line(context, one) for one in found if one is not None]
    return left, Fold(f"{len(lines)} snoozed", Lines(tuple(lines))) if lines else None


def _url(context: RequestContext, queue: str, rank: Rank) -> str:
    back = {BACK: context.here}
    return context.url(urls.SNOOZE, back, queue=queue, incident=rank.key)


def _line(context: RequestContext, one: Snooze) -> Cell:
    operates = context.allows(Permission.OPERATE, one.queue)
    wake = Confirm(
        context.url(urls.SNOOZE, queue=one.queue, incident=one.incident),
        (Choice("wake", "Wake"),),
        hidden=(Hidden(BACK, context.here),),
    )
    told = (Dim("by"), f"{one.by}{f': {one.reason}' if one.reason else ''}") if operates else ()
    return (
        Link(one.queue, context.url(urls.QUEUE, queue=one.queue)),
        Rank[one.incident.upper()].word,
        Dim("ends"),
        one.until,
        *told,
        wake if operates else None,
    )


def _incident(context: RequestContext) -> Rank:
    name = context.request.names["incident"]
    try:
        return Rank[name.upper()]
    except KeyError:
        message = f"there is no incident {name[:40]}"
        raise NotFound(message) from None
