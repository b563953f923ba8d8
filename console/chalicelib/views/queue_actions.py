"""What is done to a queue as a whole: pause, resume, count anew, purge, delete.

What cannot be undone asks for the queue's name, typed.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Final

from console.chalicelib import formatting, urls
from console.chalicelib.forms import Errors
from console.chalicelib.pages import Flash
from console.chalicelib.parts import (
    Confirm,
    Field,
    Hidden,
    Link,
    Option,
)
from console.chalicelib.request_context import RequestContext
from console.chalicelib.routes import Redirect, Reply, Routes
from console.chalicelib.views.confirm import ConfirmPage, FormPage
from console.chalicelib.views.queues import crumb
from headrace.domain import limits
from headrace.domain.access import Permission
from headrace.domain.errors import InvalidRequest
from headrace.domain.task import State

routes: Final = Routes()
_STATES: Final = {
    "dead": ("dead tasks", (State.DEAD,)),
    "succeeded": ("succeeded tasks", (State.SUCCEEDED,)),
    "finished": ("dead and succeeded tasks", (State.DEAD, State.SUCCEEDED)),
    "enqueued": ("tasks that wait", (State.ENQUEUED,)),
    "inflight": ("tasks in flight", (State.INFLIGHT,)),
    "all": ("all tasks", tuple(State)),
}
_COUNTS_FOR: Final = timedelta(seconds=10)  # a page must not take longer; then it goes on
_PAUSES: Final = (
    ("", "until someone resumes it"),
    ("900", "for 15 minutes"),
    ("3600", "for an hour"),
    ("14400", "for 4 hours"),
    ("86400", "for a day"),
)


@routes.post(urls.PAUSE, Permission.OPERATE)
def pause(context: RequestContext) -> Reply:
    """Stop deliveries, for good or for a time."""
    errors = Errors()
    seconds = errors.whole("resume_in", context.request.given("resume_in"), limits.PAUSE_SECONDS)
    if errors:
        raise InvalidRequest(f"resume_in {errors.of('resume_in')}")
    context.use.queues.pause(context.queue, resume_in_seconds=seconds)
    until = f" It resumes by itself in {formatting.duration(seconds)}." if seconds else ""
    done = Flash("done", f"Deliveries of {context.queue} are paused.{until}")
    return Redirect(context.url(urls.QUEUE, queue=context.queue), done)


@routes.post(urls.RESUME, Permission.OPERATE)
def resume(context: RequestContext) -> Reply:
    """Let deliveries go on."""
    context.use.queues.resume(context.queue)
    done = Flash("done", f"Deliveries of {context.queue} go on.")
    return Redirect(context.url(urls.QUEUE, queue=context.queue), done)


def pause_form(context: RequestContext) -> Confirm:
    """Return the form that pauses deliveries, for an hour unless something else is chosen."""
    options = tuple(Option(value, text, value == "3600") for value, text in _PAUSES)
    field = Field("resume_in", "Pause deliveries", "3600", "select", options=options)
    return Confirm(
        action=context.url(urls.PAUSE, queue=context.queue),
        button="Pause",
        back="",
        fields=(field,),
    )


def resume_form(context: RequestContext) -> Confirm:
    """Return the form that lets deliveries go on."""
    return Confirm(
        action=context.url(urls.RESUME, queue=context.queue), button="Resume deliveries", back=""
    )


@routes.post(urls.RECOUNT, Permission.OPERATE)
def recount(context: RequestContext) -> Reply:
    """Count the queue anew and mend its counters."""
    use, cursor = context.use, context.request.given("cursor") or None
    until = use.now() + _COUNTS_FOR
    step = use.recounting.step(context.queue, cursor)
    while step.cursor is not None and use.now() < until:
        step = use.recounting.step(context.queue, step.cursor)
    here = context.url(urls.QUEUE, queue=context.queue)
    number = formatting.count_of(sum(step.counts), "task")
    if step.cursor is not None:
        return FormPage(
            title=f"Counting {context.queue} anew",
            crumbs=(crumb(context), Link(context.queue, here)),
            detail=f"{number} counted so far. Workers need not stop for it.",
            form=recount_form(context, "Go on counting", step.cursor),
        )
    off = sum(abs(right - was) for right, was in zip(step.counts, step.was, strict=True))
    outcome = f"were off by {formatting.number(off)} and are mended" if off else "were right"
    return Redirect(here, Flash("done", f"{number} counted. The counters {outcome}."))


def recount_form(context: RequestContext, button: str, cursor: str | None = None) -> Confirm:
    """Return the form that begins a recount, or goes on at *cursor*."""
    return Confirm(
        action=context.url(urls.RECOUNT, queue=context.queue),
        button=button,
        back=context.url(urls.QUEUE, queue=context.queue) if cursor else "",
        hidden=(Hidden("cursor", cursor),) if cursor else (),
    )


@routes.get(urls.PURGE, Permission.OPERATE)
def ask_purge(context: RequestContext) -> Reply:
    """Ask which tasks are to go."""
    return _purge_page(context, Errors())


@routes.post(urls.PURGE, Permission.OPERATE)
def purge(context: RequestContext) -> Reply:
    """Remove them, if the name was typed."""
    errors = Errors()
    chosen = _STATES.get(context.request.given("tasks"))
    if chosen is None:
        errors.add("tasks", f"must be one of {', '.join(_STATES)}")
    _check_name(context, errors)
    if errors or chosen is None:
        return replace(_purge_page(context, errors), http_status=400)
    what, states = chosen
    done = context.use.queues.purge(context.queue, states)
    gone = f"{formatting.count_of(done.deleted, 'task')} of {context.queue} removed: {what}."
    if not done.finished:
        gone += " There are more, and they go on being removed in the background."
    return Redirect(context.url(urls.QUEUE, queue=context.queue), Flash("done", gone))


@routes.get(urls.DELETE_QUEUE, Permission.ADMINISTER)
def ask_delete(context: RequestContext) -> Reply:
    """Ask whether the queue is to go."""
    return _delete_page(context, Errors())


@routes.post(urls.DELETE_QUEUE, Permission.ADMINISTER)
def delete(context: RequestContext) -> Reply:
    """Delete the queue, if its name was typed."""
    errors = Errors()
    _check_name(context, errors)
    if errors:
        return replace(_delete_page(context, errors), http_status=400)
    finished = context.use.queues.delete(context.queue)
    gone = f"Queue {context.queue} is deleted."
    if not finished:
        gone += " Its tasks go on being removed in the background."
    return Redirect(context.url(urls.QUEUES), Flash("done", gone))


def _check_name(context: RequestContext, errors: Errors) -> None:
    if context.request.given("name").strip() != context.queue:
        errors.add("name", f"must be {context.queue}, letter by letter")


def _purge_page(context: RequestContext, errors: Errors) -> ConfirmPage:
    counts = context.use.stats.of(context.queue).counts
    amounts = ", ".join(
        f"{formatting.number(count)} {status.lower()}" for status, count in counts.items()
    )
    given = context.request.given("tasks", "dead")
    which = Field(
        "tasks", "Remove", given, "select", error=errors.of("tasks"), width="l",
        options=tuple(Option(name, what, name == given) for name, (what, _) in _STATES.items()),
    )  # fmt: skip
    return _page(
        context,
        errors,
        title="Purge",
        detail=f"Those tasks are gone for good; settings and schedules stay. Now there are "
        f"{amounts}. A worker that has one is not stopped, but its report will find nothing.",
        button=f"Purge {context.queue}",
        action=urls.PURGE,
        fields=(which,),
    )


def _delete_page(context: RequestContext, errors: Errors) -> ConfirmPage:
    counts = context.use.stats.of(context.queue).counts
    tasks = formatting.count_of(sum(counts.values()), "task")
    return _page(
        context,
        errors,
        title="Delete",
        detail=f"The queue goes for good, with {tasks}, its settings and its schedules. What is "
        "sent to it afterwards is refused.",
        button=f"Delete {context.queue}",
        action=urls.DELETE_QUEUE,
        fields=(),
    )


def _page(
    context: RequestContext,
    errors: Errors,
    *,
    title: str,
    detail: str,
    button: str,
    action: str,
    fields: tuple[Field, ...],
) -> ConfirmPage:
    here = context.url(urls.QUEUE, queue=context.queue)
    name = Field(
        "name",
        "Type the queue's name",
        context.request.given("name"),
        hint=context.queue,
        error=errors.of("name"),
        required=True,
        width="l",
    )
    form = Confirm(
        action=context.url(action, queue=context.queue),
        button=button,
        back=here,
        danger=True,
        fields=(*fields, name),
    )
    return ConfirmPage(
        title=f"{title} {context.queue}",
        crumbs=(crumb(context), Link(context.queue, here)),
        question=f"{title} {context.queue}?",
        detail=detail,
        samples=(),
        more="",
        form=form,
        back=Link("Back to the queue", here),
    )
