"""A new task from one that is there: its payload edited, its text kept letter by letter."""

from typing import Final

from headrace.domain import limits
from headrace.domain.access import Permission
from headrace.domain.errors import InvalidRequest, NotFound
from headrace.domain.ids import new_task_id
from headrace.domain.plan import TaskSpec
from headrace.domain.task import Task
from headrace.domain.times import DURATION_EXAMPLES
from headrace.ops.tasks.enqueue import EnqueueOutcome, EnqueueResult

from .. import urls
from ..differences import differing
from ..forms import FormErrors, pretty, tags_text
from ..pages import Flash, Page
from ..parts import Choice, Confirm, Field, Hidden, Link
from ..request_context import BACK, RequestContext
from ..routes import Redirect, Reply, routes
from .confirm import ask
from .navigation import crumbs, priority_options, queue_options
from .queue_actions import why_field
from .settings import Difference

_EDIT: Final = "edit"
_TYPED: Final = ("payload", "queue", "tags", "delay", "priority", "reason")


@routes.get(urls.ENQUEUE_AS_NEW, Permission.ENQUEUE)
def edit(context: RequestContext) -> Reply:
    """Show the payload to be edited."""
    task = _task(context)
    return _page(context, task, FormErrors())


@routes.post(urls.ENQUEUE_AS_NEW, Permission.ENQUEUE)
def enqueue(context: RequestContext) -> Reply:
    """Put the new task in, or say what is wrong."""
    task = _task(context)
    errors = FormErrors()
    payload = _payload(context, task, errors)
    tags = errors.tags("tags", context.request.given("tags"))
    delay = errors.length("delay", context.request.given("delay"), limits.DELAY_SECONDS)
    priority = errors.priority("priority", context.request.given("priority"))
    queue = context.request.given("queue").strip()
    if not limits.NAME_RE.fullmatch(queue):
        errors.add("queue", "must be the name of a queue")
    reason = errors.reason(context.request.given("reason"))
    if errors:
        return _page(context, task, errors, status=400)
    context.require(Permission.ENQUEUE, queue)
    if context.request.given("do") == _EDIT:
        return _page(context, task, errors)
    new = TaskSpec(
        payload,
        new_task_id(context.now),  # the audit names it before it is there
        delay_in_seconds=delay,
        tags=tags,
        priority=priority,
    )
    try:
        if not context.request.given("confirmed"):
            context.use.queues.get(queue)
            return _differences(context, task, payload)
        made = _made(context, task, queue, new, reason)
    except NotFound as error:
        errors.add("queue", error.detail)
        return _page(context, task, errors, status=404)
    if made.outcome is not EnqueueOutcome.CREATED or made.id is None:
        field, _, _ = (made.detail or "").partition(" ")
        errors.add("priority" if field == "priority" else "payload", made.detail or "was not taken")
        return _page(context, task, errors, status=400)
    done = Flash("done", f"Task {made.id} is in {queue}. This is the new one.")
    return Redirect(context.url(urls.TASK, {BACK: context.back}, id=made.id), done)


def _made(
    context: RequestContext, task: Task, queue: str, new: TaskSpec, reason: str
) -> EnqueueResult:
    """Put *new*, made from *task*, into *queue*; the audit has who did so, and the *reason*."""
    where, ids = {"copy_of": task.id}, [str(new.id)]
    with context.use.audit.action(
        "enqueue_as_new", queue=queue, where=where, ids=ids, reason=reason
    ) as done:
        [made] = context.use.tasks.enqueue(queue, [new])
        done.changed = int(made.outcome is EnqueueOutcome.CREATED)
    return made


def _task(context: RequestContext) -> Task:
    task = context.task()
    context.require(Permission.ENQUEUE, task.queue)
    context.require(Permission.DETAILS, task.queue)
    if task.uploaded is not None:
        raise InvalidRequest.of("payload", "was uploaded: a new task needs another upload")
    return context.use.texts.shown(task)


def _payload(context: RequestContext, task: Task, errors: FormErrors) -> str:
    """Return the payload as typed; the text of the old task where it was not touched."""
    typed = context.request.given("payload").strip()
    old = task.payload or "null"
    return errors.payload("payload", old if typed == pretty(old).strip() else typed)


def _differences(context: RequestContext, task: Task, payload: str) -> Page:
    """Show what is different in the new task, and ask whether to enqueue it."""
    given = {name: context.request.given(name).strip() for name in _TYPED}
    before = {
        "Queue": task.queue,
        "Tags": tags_text(task.tags),
        "Due in": "",
        "Priority": task.priority or "",
    }
    after = {
        "Queue": given["queue"],
        "Tags": tags_text(FormErrors().tags("tags", given["tags"])),
        "Due in": given["delay"],
        "Priority": given["priority"],
    }
    rows = tuple(
        Difference(name, before[name], None, text)
        for name, text in after.items()
        if text != before[name]
    )
    lines = differing(pretty(task.payload or "null"), pretty(payload))
    same = "" if lines else " Its payload is the same."
    if not lines and payload != (task.payload or "null"):
        same = " Only spaces and line breaks of its payload differ."
    back = Link("Cancel", context.url(urls.TASK, {BACK: context.back}, id=task.id))
    typed = (Hidden(name, context.request.given(name)) for name in _TYPED)
    question = f"Enqueue this as a new task of {given['queue']}?"
    return Page(
        "copy_diff.html",
        title=question,
        crumbs=crumbs(context, task.queue, task.id),
        question=question,
        detail=f"Task {task.id} stays as it is.{same}",
        form=Confirm(
            context.url(urls.ENQUEUE_AS_NEW, id=task.id),
            (Choice(_EDIT, "Edit again"), Choice("", "Enqueue as new")),
            back,
            hidden=(*typed, Hidden("confirmed", "yes")),
        ),
        rows=rows,
        lines=lines,
    )


def _page(context: RequestContext, task: Task, errors: FormErrors, *, status: int = 200) -> Reply:
    given = context.request.given
    tags = tags_text(task.tags)
    fields = (
        Field("payload", "Payload, JSON", given("payload", pretty(task.payload or "null")),
              "textarea", "Sent exactly as typed; long numbers keep all digits.",
              errors.of("payload"), width="xl"),
        Field("queue", "Queue", given("queue", task.queue), required=True, width="l",
              error=errors.of("queue"),
              options=queue_options(context)),
        Field("tags", "Tags", given("tags", tags), hint="key=value, key=value", width="l",
              error=errors.of("tags")),
        Field("delay", "Due in", given("delay"), "text", f"{DURATION_EXAMPLES}; empty: now.",
              errors.of("delay")),
        Field("priority", "Priority", given("priority", task.priority or ""), "select",
              "In a queue with priorities.", errors.of("priority"), width="s",
              options=priority_options(given("priority", task.priority or ""), "default")),
        why_field(given("reason"), errors.of("reason")),
    )  # fmt: skip
    return ask(
        crumbs(context, task.queue, task.id),
        question="Edit and enqueue as new",
        detail=f"A new task with another id. Task {task.id} stays as it is; its dedupe "
        "key, retries and lease length stay with it.",
        action=context.url(urls.ENQUEUE_AS_NEW, id=task.id),
        button="Review changes",
        fields=fields,
        status=status,
    )
