"""One task: its payload, its attempts, and why it is not running."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from headrace.domain.access import Permission
from headrace.domain.errors import Forbidden, NotFound, Unavailable
from headrace.domain.list_query import called_function
from headrace.domain.operate import BulkAction
from headrace.domain.task import State, Status, Task
from headrace.domain.task_fields import TITLED
from headrace.domain.task_groups import shown_turn, turn_of_instant
from headrace.ops.tasks.explain import NotRunningReason, ReasonCode
from headrace.ops.tasks.spawn import ids_of_children

from .. import formatting, snippets, story, urls
from ..calls import call_line, progress_of
from ..cells import Badge, Id
from ..pages import Page
from ..parts import Fact, Link, Text
from ..request_context import BACK, RequestContext
from ..routes import Reply, routes
from ..story import StoryAttempt, StoryEvent
from .actions import ACTIONS
from .columns import Column, Columns, table
from .deleted import deleted_page
from .navigation import crumbs, queue_link, tag_links, worker_link

_CHIPS: Final = {
    ReasonCode.TARGET_BACKING_OFF: "Backing off",
    ReasonCode.LEASED: "Lease ended",  # a task in flight shows no reason before
}
ANOTHER: Final = "another queue"  # one that the visitor may not know of


@dataclass(frozen=True, slots=True)
class ReasonRow:
    """Why a task is not running, and when that ends."""

    word: str
    text: str
    ends: str
    until: datetime | None


@routes.get(urls.TASK, Permission.READ)
def show(context: RequestContext) -> Reply:
    """Show a task."""
    try:
        task = context.task()
    except NotFound as error:
        return deleted_page(context, error)
    status = task.status(context.now)
    details = context.allows(Permission.DETAILS, task.queue)
    texts, missing = _texts(context, task)
    worker_url = worker_link(context, task.worker or "")
    events = _events(context, task)
    runs = task.state is State.INFLIGHT
    lapsed = runs and (task.lease_expires_at or context.now) <= context.now
    call = call_line(task.payload) if details else None
    return Page(
        "task.html",
        title=f"{call.function}{call.arguments}" if call else task.id,
        crumbs=crumbs(context, task.queue),
        task=task,
        call=call,
        queue=queue_link(context, task.queue),
        status=status,
        running_since=task.started_at if runs and not lapsed else None,
        progress=progress_of(task.own_progress) if runs else None,
        reasons=tuple(map(_reason, context.use.explain.reasons(task)))
        if lapsed or (not runs and status is not Status.SUCCEEDED)
        else (),
        restart=_restart(context, task, status),
        actions=_actions(context, task, status),
        facts=(*_facts(task, worker_url), *_batches(context, task)),
        tags=tag_links(context, task.queue, task.tags),
        life=story.strip(task, context.now, events),
        events=events[::-1],
        places=_places(context, events) if task.trail else {},
        worker_url=worker_url,
        texts=texts if details else (),
        withheld=missing
        if details
        else f"Payload, result and progress are not shown to {context.by.role.value} keys.",
        children=table("children", _child_columns(context), [*_children(context, task)]),
        snippets=snippets.of_task(task, payload=details and task.uploaded is None),
    )


def _reason(reason: NotRunningReason) -> ReasonRow:
    code = reason.code
    ends = "Due" if code is ReasonCode.SCHEDULED else "Ends"
    words = _CHIPS.get(code) or code.replace("_", " ").capitalize()
    return ReasonRow(words, formatting.sentence(reason.detail), ends, reason.until)


def _actions(context: RequestContext, task: Task, status: Status) -> tuple[Link, ...]:
    may, back = (Permission.ENQUEUE, Permission.DETAILS), {BACK: context.back}
    copies = task.uploaded is None and all(context.allows(each, task.queue) for each in may)
    again = Link("Edit and enqueue as new", context.url(urls.ENQUEUE_AS_NEW, back, id=task.id))
    copying = (again,) if copies else ()
    buttons = tuple(
        Link(
            f"{each.verb}…",
            context.url(urls.TASK_ACTION, back, id=task.id, action=each.name),
            danger=each.danger,
        )
        for each in ACTIONS.values()
        if each.fits(task, status) and context.allows(each.permission, task.queue)
    )
    safe = tuple(button for button in buttons if not button.danger)
    return (*safe, *copying, *(button for button in buttons if button.danger))


def _restart(context: RequestContext, task: Task, status: Status) -> Link | None:
    """Return the link that restarts a dead task; None if the visitor cannot restart it."""
    action = ACTIONS[BulkAction.RESTART.value]
    if not action.fits(task, status) or not context.allows(action.permission, task.queue):
        return None
    back = {BACK: context.back}
    url = context.url(urls.TASK_ACTION, back, id=task.id, action=action.name)
    return Link("Restart", url)


def _facts(task: Task, worker_url: str | None) -> tuple[Fact, ...]:
    every = (
        Fact("Created", at=task.created_at),
        Fact("Due", at=task.due_at) if task.state is State.ENQUEUED else None,
        Fact("Expires", at=task.expires_at) if task.expires_at and _waits(task) else None,
        *(Fact(one.title, text) for one in TITLED if (text := getattr(task, one.name))),
        Fact("Turn", f"{shown_turn(turn_of_instant(task.turn)):g}") if task.turn else None,
        Fact("Attempts", str(task.attempts)),
        Fact("Worker", task.worker, url=worker_url or "") if task.worker else None,
        Fact("Started", at=task.started_at) if task.started_at else None,
        Fact("Lease ends", at=task.lease_expires_at) if task.lease_expires_at else None,
        Fact("Finished", at=task.finished_at) if task.finished_at else None,
        Fact("Kept until", at=task.retained_until) if task.retained_until else None,
        Fact("Key held until", "the task starts") if task.dedupe_until else None,
    )
    return tuple(fact for fact in every if fact is not None)


def _batches(context: RequestContext, task: Task) -> Iterator[Fact]:
    """Yield the batches that count the task, and the one that made it, as far as one may see."""
    named = [("Batch", one) for one in task.batch_ids]
    named += [("Callback of", task.batch.id)] if task.batch is not None else []
    for name, batch in named:
        with suppress(NotFound, Forbidden):
            context.use.task_batches.get(batch)
            yield Fact(name, batch, url=context.url(urls.WORKFLOW, id=batch))


def _children(context: RequestContext, task: Task) -> Iterator[Task]:
    """Yield the tasks that the report spawned, if they are kept and the visitor may see them."""
    for number, child_id in enumerate(ids_of_children(task)):
        try:
            yield context.task(child_id)
        except Forbidden:
            continue
        except NotFound:
            if number == 0:
                return  # the first is not there: it made none, and nothing more is read


def _child_columns(context: RequestContext) -> Columns[Task]:
    def called(task: Task) -> str:
        details = context.allows(Permission.DETAILS, task.queue)
        return called_function(task.payload) if details else ""

    return {
        "task": Column("Task", cell=lambda one: Id(one.id, context.url(urls.TASK, id=one.id))),
        "function": Column("Function", cell=called),
        "state": Column(
            "State", cell=lambda one: Badge(one.status(context.now), one.dead_reason or "")
        ),
        "queue": Column("Queue", cell=lambda one: one.queue),
    }


def _waits(task: Task) -> bool:
    return task.state in (State.ENQUEUED, State.INFLIGHT)


def _events(context: RequestContext, task: Task) -> tuple[StoryAttempt | StoryEvent, ...]:
    """Return the story of a task; queues that the visitor may not see have no name."""

    def named(queue: str) -> str:
        return queue if not queue or context.allows(Permission.READ, queue) else ANOTHER

    return tuple(
        replace(one, queue=named(one.queue), to=named(one.to))
        if isinstance(one, StoryEvent)
        else replace(one, queue=named(one.queue))
        for one in story.events(task)
    )


def _places(
    context: RequestContext, events: Sequence[StoryAttempt | StoryEvent]
) -> dict[str, Link]:
    """Return the links of the queues that *events* name."""
    names = {one.queue for one in events}
    names |= {one.to for one in events if isinstance(one, StoryEvent)}
    return {
        name: Link(name, "") if name == ANOTHER else queue_link(context, name)
        for name in names
        if name
    }


def _texts(context: RequestContext, task: Task) -> tuple[tuple[Text, ...], str]:
    """Return payload, result and progress, and a note on texts that cannot be read now."""
    with suppress(Unavailable):
        task = context.use.texts.filled([task])[0]
    missing = [
        f"{name} ({formatting.size(task.offloaded[name].bytes)})"
        for name in context.use.texts.lost(task)
    ]
    every = (
        ("Payload", task.payload),
        ("Result", task.result),
        ("Progress", task.own_progress),
        ("Previous progress", task.last_progress),
    )
    shown = tuple(Text.of(title, text) for title, text in every if text is not None)
    words = " and ".join(missing)
    notes = [f"Stored outside the table and not readable now: {words}."] if words else []
    if (one := task.uploaded) is not None:
        size = formatting.size(one.bytes)
        notes.insert(0, f"Uploaded payload: {size}, sha256 {one.sha256}.")
    return shown, " ".join(notes)
