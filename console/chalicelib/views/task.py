"""One task: what it is, what happened to it, why it is not running."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar, Final

from headrace.domain.access import Permission
from headrace.domain.errors import Forbidden, NotFound, Unavailable
from headrace.domain.operate import BulkAction
from headrace.domain.task import ErrorKind, State, Status, Task, TaskError
from headrace.domain.task_fields import TITLED
from headrace.domain.task_groups import shown_turn, turn_of_instant
from headrace.ops.tasks.spawn import ids_of_children

from .. import formatting, snippets, story, urls
from ..calls import call_line
from ..pages import Page
from ..parts import Fact, Link, StepBranch, Text
from ..request_context import BACK, RequestContext
from ..routes import Reply, routes
from ..snippets import Snippet
from ..story import Ended, StoryAttempt, StoryEvent, Strip
from .actions import ACTIONS
from .navigation import crumbs, queue_link, tag_links, worker_link

ANOTHER: Final = "another queue"  # one that the visitor may not know of
_LAST_LINE: Final = 200  # letters of it that are shown
_STATUS: Final = {Ended.SUCCEEDED: Status.SUCCEEDED, Ended.RUNNING: Status.INFLIGHT}


@dataclass(frozen=True, slots=True)
class ReasonRow:
    """Why a task is not running, and until when."""

    code: str
    text: str
    until: datetime | None


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt and how it ended; ``run`` is seconds, None where it is not known."""

    number: int
    ended: str  #: failed, lease expired, succeeded, running
    status: Status
    at: datetime
    worker: str
    run: float | None
    type: str
    message: str
    detail: str
    last_line: str = ""  #: of a detail of several lines
    unfolded: bool = False
    worker_url: str | None = None
    queue: Link | None = None  #: of a task that was in several
    waited: float | None = None  #: seconds before it began


@dataclass(frozen=True, slots=True)
class TurnRow:
    """What happened between attempts: moved on, restarted, given back."""

    what: str
    at: datetime | None
    queue: Link | None
    to: Link | None


@dataclass(frozen=True, slots=True)
class HopRow:
    """A queue that the task was in; ``left`` is None for the one it is in now."""

    queue: str
    url: str | None
    left: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPage(Page):
    """Everything about a task that the visitor may see."""

    template: ClassVar[str] = "task.html"
    id: str
    queue: Link
    status: Status
    dead_reason: str
    reasons: tuple[ReasonRow, ...]
    restart: Link | None  #: of a dead task, for who may
    actions: tuple[Link, ...]
    facts: tuple[Fact, ...]
    tags: tuple[Link, ...]
    life: Strip | None
    attempts: tuple[AttemptRow | TurnRow, ...]
    trail: tuple[HopRow, ...]
    texts: tuple[Text, ...]
    withheld: str
    snippets: tuple[Snippet, ...] = ()
    children: tuple[StepBranch, ...] = ()


@routes.get(urls.TASK, Permission.READ)
def show(context: RequestContext) -> Reply:
    """Show a task."""
    task = context.task()
    status = task.status(context.now)
    details = context.allows(Permission.DETAILS, task.queue)
    texts, missing = _texts(context, task)
    worker_url = worker_link(context, task.worker or "")
    told = _told(context, task)
    return TaskPage(
        title=task.id,
        crumbs=crumbs(context, task.queue),
        id=task.id,
        queue=queue_link(context, task.queue),
        status=status,
        dead_reason=task.dead_reason or "",
        reasons=tuple(
            ReasonRow(reason.code.value, formatting.sentence(reason.detail), reason.until)
            for reason in context.use.explain.reasons(task)
        )
        if task.state in (State.ENQUEUED, State.DEAD)
        else (),
        restart=_restart(context, task, status),
        actions=_actions(context, task, status),
        facts=(*_facts(task, worker_url), *_batches(context, task)),
        tags=tag_links(context, task.queue, task.tags),
        life=story.strip(task, context.now, told),
        attempts=_rows(context, task, told, worker_url),
        trail=_trail(context, task),
        texts=texts if details else (),
        withheld=missing
        if details
        else f"Payload, result and progress are not shown to {context.by.role.value} keys.",
        children=_children(context, task),
        snippets=snippets.of_task(task, payload=details and task.uploaded is None),
    )


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
    """Return the way to run a dead task again; None for any other, and who may not."""
    action = ACTIONS[BulkAction.RESTART.value]
    if not action.fits(task, status) or not context.allows(action.permission, task.queue):
        return None
    back = {BACK: context.back}
    url = context.url(urls.TASK_ACTION, back, id=task.id, action=action.name)
    return Link("Restart it", url)


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
    named += [("Called back by", task.batch.id)] if task.batch is not None else []
    for name, batch in named:
        with suppress(NotFound, Forbidden):
            context.use.task_batches.get(batch)
            yield Fact(name, batch, url=context.url(urls.BATCH, id=batch))


def _children(context: RequestContext, task: Task) -> tuple[StepBranch, ...]:
    """Return what the task's report made, as far as it is kept and the visitor may see it."""
    found: list[StepBranch] = []
    for child_id in ids_of_children(task):
        try:
            child = context.task(child_id)
        except Forbidden:
            continue
        except NotFound:
            if not found:
                break  # the first is not there: it made none, and nothing more is read
            continue
        call = call_line(child.payload) if context.allows(Permission.DETAILS, child.queue) else None
        found.append(
            StepBranch(
                name=call.function if call is not None else "",
                task=Link(child.id, context.url(urls.TASK, id=child.id)),
                queue=child.queue,
                status=child.status(context.now),
                reason=child.dead_reason or "",
                after="",
                waits="",
            )
        )
    return tuple(found)


def _waits(task: Task) -> bool:
    return task.state in (State.ENQUEUED, State.INFLIGHT)


def _told(context: RequestContext, task: Task) -> tuple[StoryAttempt | StoryEvent, ...]:
    """Return what happened to a task, with the queues that the visitor may know of."""

    def named(queue: str) -> str:
        return queue if not queue or context.allows(Permission.READ, queue) else ANOTHER

    return tuple(
        replace(one, queue=named(one.queue), to=named(one.to))
        if isinstance(one, StoryEvent)
        else replace(one, queue=named(one.queue))
        for one in story.events(task)
    )


def _rows(
    context: RequestContext,
    task: Task,
    told: Sequence[StoryAttempt | StoryEvent],
    worker_url: str | None,
) -> tuple[AttemptRow | TurnRow, ...]:
    """Return what happened, the newest first; *worker_url* leads to the latest worker's page."""

    def place(queue: str) -> Link | None:
        """Return the queue, where the task was in several."""
        if not task.trail or not queue:
            return None
        return Link(queue, "") if queue == ANOTHER else queue_link(context, queue)

    return tuple(
        _row(one, task, place(one.queue), worker_url if one.worker == task.worker else None)
        if isinstance(one, StoryAttempt)
        else TurnRow(one.what, one.at, place(one.queue), place(one.to))
        for one in reversed(told)
    )


def _row(one: StoryAttempt, task: Task, queue: Link | None, worker_url: str | None) -> AttemptRow:
    error = one.error or TaskError(one.number, task.created_at, None, ErrorKind.FAILED)
    at = one.started_at if one.ended is Ended.RUNNING else one.ended_at
    return AttemptRow(
        one.number,
        str(one.ended),
        _STATUS.get(one.ended, Status.DEAD),
        at or task.created_at,
        one.worker,
        one.run,
        error.type,
        error.message,
        error.detail,
        _last_line(error.detail),
        unfolded=one.error is not None and one.error is task.errors[-1],
        worker_url=worker_url,
        queue=queue,
        waited=one.waited,
    )


def _last_line(detail: str) -> str:
    """Return where a traceback ends, which says most; nothing of a single line."""
    lines = [line.strip() for line in detail.splitlines() if line.strip()]
    return lines[-1][:_LAST_LINE] if lines[1:] else ""


def _trail(context: RequestContext, task: Task) -> tuple[HopRow, ...]:
    if not task.trail:
        return ()
    hops = [
        HopRow(
            hop.queue if context.allows(Permission.READ, hop.queue) else ANOTHER,
            context.url(urls.QUEUE, queue=hop.queue)
            if context.allows(Permission.READ, hop.queue)
            else None,
            hop.at,
        )
        for hop in task.trail
    ]
    return (*hops, HopRow(task.queue, None, None))


def _texts(context: RequestContext, task: Task) -> tuple[tuple[Text, ...], str]:
    """Return what is shown, and what of it is kept elsewhere and cannot be read now."""
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
        ("Progress of the delivery before", task.last_progress),
    )
    shown = tuple(Text.of(title, text) for title, text in every if text is not None)
    words = " and ".join(missing)
    notes = [f"Kept outside the table, and not to be read now: {words}."] if words else []
    if (one := task.uploaded) is not None:
        size = formatting.size(one.bytes)
        notes.insert(0, f"Its producer uploaded the payload: {size}, sha256 {one.sha256}.")
    return shown, " ".join(notes)
