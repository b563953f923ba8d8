"""Actions on a whole queue: pause, resume, recount, purge, delete.

Purge and delete ask for the queue's name.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Protocol, TypeVar
from urllib.parse import parse_qsl, urlencode

from headrace.domain import limits
from headrace.domain.access import Permission
from headrace.domain.task import SHOWN_STATES, State
from headrace.domain.times import duration_text
from headrace.history.tally import by_state
from headrace.ops.operators.bulk import BulkAnswer

from .. import formatting, urls
from ..forms import NO_ERRORS, FormErrors
from ..pages import Flash
from ..parts import Choice, Confirm, Field, Hidden, Option
from ..request_context import BACK, RequestContext
from ..routes import Redirect, Reply, routes
from .confirm import ask
from .navigation import crumbs

_STATES: Final = {
    "dead": ("dead tasks", (State.DEAD,)),
    "succeeded": ("succeeded tasks", (State.SUCCEEDED,)),
    "finished": ("dead and succeeded tasks", (State.DEAD, State.SUCCEEDED)),
    "enqueued": ("ready and scheduled tasks", (State.ENQUEUED,)),
    "inflight": ("tasks in flight", (State.INFLIGHT,)),
    "all": ("all tasks", SHOWN_STATES),
}
_TAKES: Final = timedelta(seconds=10)  # the longest time of one page
UNDO_SECONDS: Final = 86_400
"""How long what people delete here can be brought back."""

_UNDOS: Final = 50  # that a message has room for; the page of the whole has all
_WHY: Final = "Optional; others read it in Activity."
_RECOUNT: Final = "recount"  # the part of an address from which a recount continues
CONTINUE_RECOUNT: Final = "Continue recount"
_PAUSES: Final = ("15m", "1h", "4h", "1d")


@routes.post(urls.PAUSE, Permission.OPERATE)
def pause(context: RequestContext) -> Reply:
    """Pause deliveries, until resumed or for a time."""
    errors = FormErrors()
    given = context.request.given("resume_in")
    seconds = errors.length("resume_in", given, (1, limits.PAUSE_SECONDS[1]))
    reason = errors.reason(context.request.given("reason"))
    if errors:
        return ask(
            crumbs(context, context.queue),
            question=f"Pause deliveries of {context.queue}?",
            action=context.url(urls.PAUSE, queue=context.queue),
            button="Pause",
            fields=(
                _resume_in(given, errors.of("resume_in")),
                why_field(reason, errors.of("reason")),
            ),
            status=400,
        )
    context.use.queues.pause(context.queue, resume_in_seconds=seconds, reason=reason)
    until = f" It resumes in {duration_text(seconds)}." if seconds else ""
    done = Flash("done", f"{context.queue} paused.{until}")
    return Redirect(_queue_page(context), done)


def _queue_page(context: RequestContext) -> str:
    """Return the page of the queue, with its filter if the visitor came from there."""
    return context.back or context.url(urls.QUEUE, queue=context.queue)


def _here(context: RequestContext) -> tuple[Hidden, ...]:
    """Return the field of a form of the queue's page that leads back to just this page."""
    return (Hidden(BACK, context.here),)


@routes.post(urls.RESUME, Permission.OPERATE)
def resume(context: RequestContext) -> Reply:
    """Let deliveries go on."""
    context.use.queues.resume(context.queue)
    done = Flash("done", f"{context.queue} resumed.")
    return Redirect(_queue_page(context), done)


def pause_form(context: RequestContext) -> Confirm:
    """Return the form that pauses deliveries, for an hour unless something else is chosen."""
    url = context.url(urls.PAUSE, queue=context.queue)
    fields = (_resume_in("1h"), why_field(""))
    return Confirm(url, (Choice("", "Pause"),), fields=fields, hidden=_here(context))


def _resume_in(given: str, error: str = "") -> Field:
    options = tuple(Option(value, value) for value in _PAUSES)
    hint = "90s, 15m, 2h, 1d; empty: until it is resumed."
    return Field(
        "resume_in", "Pause deliveries for", given, hint=hint, error=error, options=options
    )


def why_field(given: str, error: str = "") -> Field:
    """Return the field for the reason, which others read in Activity."""
    return Field("reason", "Why", given, error=error, hint=_WHY, width="l")


def resume_form(context: RequestContext) -> Confirm:
    """Return the form that resumes deliveries."""
    url = context.url(urls.RESUME, queue=context.queue)
    return Confirm(url, (Choice("", "Resume deliveries"),), hidden=_here(context))


class Step(Protocol):
    """The result of a step; the next one continues at the cursor."""

    @property
    def cursor(self) -> str | None: ...


_Step = TypeVar("_Step", bound=Step)


def steps(
    context: RequestContext, step: Callable[[str | None], _Step], until: datetime | None = None
) -> Iterator[_Step]:
    """Yield the results of *step* from the cursor of the form on, to the end or *until* then.

    By default for ten seconds.
    """
    cursor, until = context.request.given("cursor") or None, until or context.use.now() + _TAKES
    while True:
        result = step(cursor)
        yield result
        cursor = result.cursor
        if cursor is None or context.use.now() >= until:
            return


@routes.post(urls.RECOUNT, Permission.OPERATE)
def recount(context: RequestContext) -> Reply:
    """Recount the queue and correct its counters."""
    *_, step = steps(context, partial(context.use.recounting.step, context.queue))
    here = _queue_page(context)
    number = formatting.count_of(sum(by_state(step.counts).values()), "task")
    if step.cursor is not None:
        so_far = f"{number} counted so far. Press {CONTINUE_RECOUNT} to count the rest."
        return Redirect(recounted_so_far(here, step.cursor), Flash("done", so_far))
    off = sum(abs(right - was) for right, was in zip(step.counts, step.was, strict=True))
    result = f"were off by {formatting.number(off)} and are corrected" if off else "were right"
    changed = "" if step.exact else " They may be off by tasks that changed during the recount."
    done = Flash("done", f"{number} counted. The counters {result}.{changed}")
    return Redirect(recounted_so_far(here, ""), done)


def recount_form(context: RequestContext) -> Confirm:
    """Return the form that begins a recount, or continues the one that the address names."""
    url = context.url(urls.RECOUNT, queue=context.queue)
    return recount_button(context, url)


def recount_button(context: RequestContext, url: str) -> Confirm:
    """Return the form with the one button of a recount, which goes to *url*."""
    cursor = context.request.param(_RECOUNT)
    hidden = (*_here(context), *((Hidden("cursor", cursor),) if cursor else ()))
    return Confirm(url, (Choice("", CONTINUE_RECOUNT if cursor else "Recount"),), hidden=hidden)


def recounted_so_far(here: str, cursor: str) -> str:
    """Return the address *here* from which the recount at *cursor* continues; empty: it is over."""
    path, _, query = here.partition("?")
    pairs = [pair for pair in parse_qsl(query, keep_blank_values=True) if pair[0] != _RECOUNT]
    pairs += [(_RECOUNT, cursor)] if cursor else []
    return f"{path}?{urlencode(pairs)}" if pairs else path


@routes.post(urls.REINDEX, Permission.OPERATE)
def reindex(context: RequestContext) -> Reply:
    """Rebuild the queue's index."""
    context.use.queues.reindex(context.queue)
    begun = Flash("done", "The index is being rebuilt. Until then, lists read every task.")
    return Redirect(_queue_page(context), begun)


def reindex_form(context: RequestContext) -> Confirm:
    """Return the form that rebuilds the index."""
    url = context.url(urls.REINDEX, queue=context.queue)
    return Confirm(url, (Choice("", "Rebuild index"),), hidden=_here(context))


@routes.post(urls.PURGE, Permission.OPERATE)
def purge(context: RequestContext) -> Reply:
    """Remove them, if the name was typed."""
    errors = FormErrors()
    chosen = _STATES.get(context.request.given("tasks"))
    if chosen is None:
        errors.add("tasks", f"must be one of {', '.join(_STATES)}")
    _check_name(context, errors)
    if errors or chosen is None:
        return ask_purge(context, errors)
    what, states = chosen
    done = context.use.queues.purge(context.queue, states, undo_in_seconds=UNDO_SECONDS)
    gone = f"{formatting.count_of(done.deleted, 'task')} of {context.queue} removed: {what}."
    if not done.finished:
        gone += " The service removes the rest in the background."
    gone += f" {undo_words()}"
    undo = done.undo.id if done.undo else ""
    return Redirect(_queue_page(context), Flash("done", gone, undo))


@routes.post(urls.UNDO, Permission.OPERATE)
def undo(context: RequestContext) -> Reply:
    """Restore deleted tasks, for ten seconds."""
    use, undo_ids = context.use, context.request.given("undo").split()
    back = context.back or context.url(urls.QUEUES)
    until, restored, left = use.now() + _TAKES, 0, 0
    while undo_ids:
        step = partial(_restore, context, undo_ids[0])
        for answer in steps(context, step, until):
            restored, left = restored + answer.changed, left + len(answer.results) - answer.changed
        if answer.cursor is None:
            undo_ids.pop(0)
        if use.now() >= until:
            break
    text = f"{formatting.count_of(restored, 'task')} restored."
    if left:
        text += (
            f" {formatting.number(left)} skipped: already restored, past their retention, or"
            " another task has their id or dedupe key."
        )
    if undo_ids:
        more = Flash("done", f"{text} There are more.", " ".join(undo_ids[:_UNDOS]))
        return Redirect(back, more)
    return Redirect(back, Flash("done" if restored else "failed", text))


def _restore(context: RequestContext, undo_id: str, cursor: str | None) -> BulkAnswer:
    return context.use.undos.undo(undo_id, cursor=cursor)


def undo_words() -> str:
    """Return for how long an undo restores deleted tasks."""
    return f"You can undo this for {formatting.duration(UNDO_SECONDS)}."


@routes.post(urls.DELETE_QUEUE, Permission.ADMINISTER)
def delete(context: RequestContext) -> Reply:
    """Delete the queue, if its name was typed."""
    errors = FormErrors()
    _check_name(context, errors)
    if errors:
        return ask_delete(context, errors)
    finished = context.use.queues.delete(context.queue)
    gone = f"Queue {context.queue} deleted."
    if not finished:
        gone += " The service removes its tasks in the background."
    return Redirect(context.url(urls.QUEUES), Flash("done", gone))


def _check_name(context: RequestContext, errors: FormErrors) -> None:
    if context.request.given("name").strip() != context.queue:
        errors.add("name", f"must be exactly {context.queue}")


@routes.get(urls.PURGE, Permission.OPERATE)
def ask_purge(context: RequestContext, errors: FormErrors = NO_ERRORS) -> Reply:
    """Ask which tasks to remove."""
    counts = context.use.stats.of(context.queue).counts
    amounts = ", ".join(
        f"{formatting.number(count)} {status.lower()}" for status, count in counts.items()
    )
    given = context.request.given("tasks", "dead")
    which = Field(
        "tasks", "Remove", given, "select", error=errors.of("tasks"), width="l",
        options=tuple(Option(name, what, name == given) for name, (what, _) in _STATES.items()),
    )  # fmt: skip
    detail = (
        f"Removes these tasks; settings and schedules stay. {undo_words()} "
        f"Currently: {amounts}. "
        "Later tasks stay; a task counts by its state when the purge reaches it. "
        "A worker running one is not stopped; its result is discarded."
    )
    return _ask(context, errors, "Purge", urls.PURGE, detail, which)


@routes.get(urls.DELETE_QUEUE, Permission.ADMINISTER)
def ask_delete(context: RequestContext, errors: FormErrors = NO_ERRORS) -> Reply:
    """Ask whether to delete the queue."""
    counts = context.use.stats.of(context.queue).counts
    tasks = formatting.count_of(sum(counts.values()), "task")
    detail = (
        f"Deletes the queue with {tasks}, its settings and its schedules. This cannot be undone. "
        "Later enqueues to it are refused."
    )
    return _ask(context, errors, "Delete", urls.DELETE_QUEUE, detail)


def _ask(
    context: RequestContext, errors: FormErrors, verb: str, route: str, detail: str, *fields: Field
) -> Reply:
    queue, typed = context.queue, context.request.given("name")
    name = Field("name", "Type the queue's name", typed, hint=queue, error=errors.of("name"),
                 required=True, width="l")  # fmt: skip
    return ask(
        crumbs(context, queue),
        title=f"{verb} {queue}",
        question=f"{verb} {queue}?",
        detail=detail,
        action=context.url(route, queue=queue),
        button=f"{verb} {queue}",
        danger=True,
        fields=(*fields, name),
        status=400 if errors else 200,
    )
