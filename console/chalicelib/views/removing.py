"""What cannot be undone: purging a queue and deleting it, each by typing the queue's name."""

from dataclasses import replace
from typing import Final

from console.chalicelib import urls, words
from console.chalicelib.forms import Errors
from console.chalicelib.pages.acting import ConfirmPage
from console.chalicelib.pages.frame import Flash
from console.chalicelib.pages.parts import Confirm, Field, Link, Option
from console.chalicelib.routes import Redirect, Reply, Routes
from console.chalicelib.views.queues import crumb
from console.chalicelib.visit import Visit
from headrace.domain.access import Permission
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


@routes.get(urls.PURGE, Permission.OPERATE)
def ask_purge(visit: Visit) -> Reply:
    """Ask which tasks are to go."""
    return _purge_page(visit, Errors())


@routes.post(urls.PURGE, Permission.OPERATE)
def purge(visit: Visit) -> Reply:
    """Remove them, if the name was typed."""
    errors = Errors()
    chosen = _STATES.get(visit.request.given("tasks"))
    if chosen is None:
        errors.add("tasks", f"must be one of {', '.join(_STATES)}")
    _check_name(visit, errors)
    if errors or chosen is None:
        return replace(_purge_page(visit, errors), http_status=400)
    what, states = chosen
    done = visit.use.queues.purge(visit.queue, states)
    gone = f"{words.count_of(done.deleted, 'task')} of {visit.queue} removed: {what}."
    if not done.finished:
        gone += " There are more, and they go on being removed in the background."
    return Redirect(visit.url(urls.QUEUE, queue=visit.queue), Flash("done", gone))


@routes.get(urls.DELETE_QUEUE, Permission.ADMINISTER)
def ask_delete(visit: Visit) -> Reply:
    """Ask whether the queue is to go."""
    return _delete_page(visit, Errors())


@routes.post(urls.DELETE_QUEUE, Permission.ADMINISTER)
def delete(visit: Visit) -> Reply:
    """Delete the queue, if its name was typed."""
    errors = Errors()
    _check_name(visit, errors)
    if errors:
        return replace(_delete_page(visit, errors), http_status=400)
    finished = visit.use.queues.delete(visit.queue)
    gone = f"Queue {visit.queue} is deleted."
    if not finished:
        gone += " Its tasks go on being removed in the background."
    return Redirect(visit.url(urls.QUEUES), Flash("done", gone))


def _check_name(visit: Visit, errors: Errors) -> None:
    if visit.request.given("name").strip() != visit.queue:
        errors.add("name", f"must be {visit.queue}, letter by letter")


def _purge_page(visit: Visit, errors: Errors) -> ConfirmPage:
    counts = visit.use.stats.of(visit.queue).counts
    told = ", ".join(f"{words.number(count)} {status.lower()}" for status, count in counts.items())
    given = visit.request.given("tasks", "dead")
    which = Field(
        "tasks", "Remove", given, "select", error=errors.of("tasks"), width="l",
        options=tuple(Option(name, what, name == given) for name, (what, _) in _STATES.items()),
    )  # fmt: skip
    return _page(
        visit,
        errors,
        title="Purge",
        tells=f"Those tasks are gone for good; settings and schedules stay. Now there are {told}. "
        "A worker that has one is not stopped, but its report will find nothing.",
        button=f"Purge {visit.queue}",
        action=urls.PURGE,
        fields=(which,),
    )


def _delete_page(visit: Visit, errors: Errors) -> ConfirmPage:
    counts = visit.use.stats.of(visit.queue).counts
    tasks = words.count_of(sum(counts.values()), "task")
    return _page(
        visit,
        errors,
        title="Delete",
        tells=f"The queue goes for good, with {tasks}, its settings and its schedules. What is "
        "sent to it afterwards is refused.",
        button=f"Delete {visit.queue}",
        action=urls.DELETE_QUEUE,
        fields=(),
    )


def _page(
    visit: Visit,
    errors: Errors,
    *,
    title: str,
    tells: str,
    button: str,
    action: str,
    fields: tuple[Field, ...],
) -> ConfirmPage:
    here = visit.url(urls.QUEUE, queue=visit.queue)
    name = Field(
        "name",
        "Type the queue's name",
        visit.request.given("name"),
        hint=visit.queue,
        error=errors.of("name"),
        required=True,
        width="l",
    )
    form = Confirm(
        action=visit.url(action, queue=visit.queue),
        button=button,
        back=here,
        danger=True,
        fields=(*fields, name),
    )
    return ConfirmPage(
        title=f"{title} {visit.queue}",
        crumbs=(crumb(visit), Link(visit.queue, here)),
        question=f"{title} {visit.queue}?",
        tells=tells,
        samples=(),
        more="",
        form=form,
        back=Link("Back to the queue", here),
    )
