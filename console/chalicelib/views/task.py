"""One task: what it is, what happened to it, why it is not running."""

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar, Final

from headrace.domain.access import Permission
from headrace.domain.errors import Unavailable
from headrace.domain.fairness import shown_turn, turn_of_instant
from headrace.domain.task import ErrorKind, State, Status, Task, TaskError
from headrace.ops.operators import visibility

from .. import formatting, urls
from ..diagram import Diagram, lifecycle
from ..pages import Page
from ..parts import Fact, Link, Text
from ..request_context import RequestContext
from ..routes import Reply, routes
from .actions import ACTIONS
from .navigation import crumbs, queue_link, tag_links, worker_link

_LAST_LINE: Final = 200  # letters of it that are shown


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
    diagram: Diagram
    reasons: tuple[ReasonRow, ...]
    actions: tuple[Link, ...]
    facts: tuple[Fact, ...]
    tags: tuple[Link, ...]
    attempts: tuple[AttemptRow, ...]
    trail: tuple[HopRow, ...]
    texts: tuple[Text, ...]
    withheld: str


@routes.get(urls.TASK, Permission.READ)
def show(context: RequestContext) -> Reply:
    """Show a task."""
    task = visibility.task(context.use.tasks, context.by, context.request.names["id"])
    status = task.status(context.now)
    details = context.allows(Permission.DETAILS, task.queue)
    texts, missing = _texts(context, task)
    worker_url = worker_link(context, task.worker or "")
    return TaskPage(
        title=task.id,
        crumbs=crumbs(context, task.queue),
        id=task.id,
        queue=queue_link(context, task.queue),
        status=status,
        dead_reason=task.dead_reason or "",
        diagram=lifecycle(status),
        reasons=tuple(
            ReasonRow(reason.code.value, formatting.sentence(reason.detail), reason.until)
            for reason in context.use.explain.reasons(task)
        )
        if task.state is State.ENQUEUED
        else (),
        actions=_actions(context, task, status),
        facts=_facts(task, worker_url),
        tags=tag_links(context, task.queue, task.tags),
        attempts=_attempts(task, worker_url),
        trail=_trail(context, task),
        texts=texts if details else (),
        withheld=missing
        if details
        else f"Payload, result and progress are not shown to {context.by.role.value} keys.",
    )


def _actions(context: RequestContext, task: Task, status: Status) -> tuple[Link, ...]:
    may = (Permission.ENQUEUE, Permission.DETAILS)
    copies = task.uploaded is None and all(context.allows(each, task.queue) for each in may)
    again = Link("Edit and enqueue as new", context.url(urls.ENQUEUE_AS_NEW, id=task.id))
    copying = (again,) if copies else ()
    buttons = tuple(
        Link(
            f"{each.verb}…",
            context.url(urls.TASK_ACTION, id=task.id, action=each.name),
            danger=each.danger,
        )
        for each in ACTIONS.values()
        if each.fits(task, status) and context.allows(each.permission, task.queue)
    )
    safe = tuple(button for button in buttons if not button.danger)
    return (*safe, *copying, *(button for button in buttons if button.danger))


def _facts(task: Task, worker_url: str | None) -> tuple[Fact, ...]:
    every = (
        Fact("Created", at=task.created_at),
        Fact("Due", at=task.due_at) if task.state is State.ENQUEUED else None,
        Fact("Expires", at=task.expires_at) if task.expires_at and _waits(task) else None,
        Fact("Priority", task.priority) if task.priority else None,
        Fact("Group", task.group_key) if task.group_key else None,
        Fact("Turn", f"{shown_turn(turn_of_instant(task.turn)):g}") if task.turn else None,
        Fact("Attempts", str(task.attempts)),
        Fact("Worker", task.worker, url=worker_url or "") if task.worker else None,
        Fact("Started", at=task.started_at) if task.started_at else None,
        Fact("Lease ends", at=task.lease_expires_at) if task.lease_expires_at else None,
        Fact("Finished", at=task.finished_at) if task.finished_at else None,
        Fact("Kept until", at=task.retained_until) if task.retained_until else None,
        Fact("Dedupe key", task.dedupe_key, code=True) if task.dedupe_key else None,
        Fact("Schedule", task.schedule) if task.schedule else None,
    )
    return tuple(fact for fact in every if fact is not None)


def _waits(task: Task) -> bool:
    return task.state in (State.ENQUEUED, State.INFLIGHT)


def _attempts(task: Task, worker_url: str | None) -> tuple[AttemptRow, ...]:
    """Return the attempts as far as they are known, the newest first.

    *worker_url* leads to the worker that had the latest.
    """
    found = [_failed(task, error) for error in task.errors]
    if task.state is State.SUCCEEDED and task.finished_at:
        found.append(_last(task, "succeeded", Status.SUCCEEDED, task.finished_at))
    elif task.state is State.INFLIGHT and task.started_at:
        found.append(_last(task, "running since", Status.INFLIGHT, task.started_at))
    elif task.cancelled and task.finished_at and _never_came_back(task):
        found.append(_last(task, "cancelled", Status.DEAD, task.finished_at))
    return tuple(
        replace(row, worker_url=worker_url) if row.worker == task.worker else row
        for row in reversed(found)
    )


def _never_came_back(task: Task) -> bool:
    """Whether the latest delivery ended where the task did."""
    started, returned = task.started_at, task.returned_at
    return started is not None and (returned is None or returned < started)


def _failed(task: Task, error: TaskError) -> AttemptRow:
    ended = "lease expired" if error.kind is ErrorKind.LEASE_EXPIRED else "failed"
    latest = error is task.errors[-1] and task.state is not State.SUCCEEDED
    run = None
    if latest and task.started_at and task.started_at <= error.at:
        run = (error.at - task.started_at).total_seconds()
    return AttemptRow(
        error.attempt,
        ended,
        Status.DEAD,
        error.at,
        error.worker or "",
        run,
        error.type,
        error.message,
        error.detail,
        _last_line(error.detail),
        unfolded=error is task.errors[-1],
    )


def _last_line(detail: str) -> str:
    """Return where a traceback ends, which says most; nothing of a single line."""
    lines = [line.strip() for line in detail.splitlines() if line.strip()]
    return lines[-1][:_LAST_LINE] if lines[1:] else ""


def _last(task: Task, ended: str, status: Status, at: datetime) -> AttemptRow:
    run = (at - task.started_at).total_seconds() if task.started_at else None
    if status is Status.INFLIGHT:
        run = None
    return AttemptRow(task.attempts, ended, status, at, task.worker or "", run, "", "", "")


def _trail(context: RequestContext, task: Task) -> tuple[HopRow, ...]:
    if not task.trail:
        return ()
    hops = [
        HopRow(
            hop.queue if context.allows(Permission.READ, hop.queue) else "another queue",
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
    every = (("Payload", task.payload), ("Result", task.result), ("Progress", task.progress))
    shown = tuple(Text.of(title, text) for title, text in every if text is not None)
    words = " and ".join(missing)
    notes = [f"Kept outside the table, and not to be read now: {words}."] if words else []
    if (one := task.uploaded) is not None:
        size = formatting.size(one.bytes)
        notes.insert(0, f"Its producer uploaded the payload: {size}, sha256 {one.sha256}.")
    return shown, " ".join(notes)
