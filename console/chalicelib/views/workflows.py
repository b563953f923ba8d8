"""Workflows and other batches: the list, and for each a row for every step."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from headrace.domain.access import Permission
from headrace.domain.batch import TaskBatch
from headrace.domain.filters import EVERY_TASK, TaskFilter
from headrace.domain.list_query import called_function
from headrace.domain.operate import BulkAction
from headrace.domain.query import Query, query_text
from headrace.domain.query_grammar import term_text
from headrace.domain.task import State
from headrace.domain.workflow import WORKFLOW_TAG, part_id
from headrace.ops.search.list_queries import batch_state
from headrace.ops.tasks.steps import BatchStep, BatchSteps, steps_of

from .. import formatting, urls
from ..cells import Badge, Cell, Clip, Code, Dim, Id, Lines, Meter, Note
from ..pages import Page
from ..parts import Choice, Confirm, Empty, Fact, Hidden, Link
from ..request_context import RequestContext
from ..routes import Reply, routes
from .columns import Column, Columns, numbers, table, times
from .list_page import list_page
from .list_search import SEARCHED, ListSearch
from .navigation import crumb, task_url
from .workflow_actions import cancel_link, recount_form

_NAMES: Final = 5  # of the steps that a step waits for
_GENERATED: Final = ("wfl_", "bat_")
_LEVELS: Final = {"stalled": "bad", "running": "", "open": ""}
_NONE: Final = Empty("No workflows or batches yet.")


# -- the list --------------------------------------------------------------------------------------


@routes.get(urls.WORKFLOWS, Permission.READ)
def show_all(context: RequestContext) -> Reply:
    """Show a page of workflows; their parts only where the query names how the ids begin."""
    wanted: ListSearch[TaskBatch] = ListSearch(context, "workflows")
    prefix = wanted.where.named.get("id", "")
    page = wanted.look(
        lambda where, limit, cursor: context.use.task_batches.list(
            prefix=prefix, parts=False, where=where, limit=limit, cursor=cursor
        )
    )
    none_begins = f"No workflow that fits has an id that begins with {prefix}. Upper and lower case"
    return list_page(
        context,
        wanted,
        page.shown,
        _list_columns(context, _names(context, page.shown)),
        page.shown,
        title="Workflows",
        usual="id",
        empty=_NONE,
        none_fits=Empty(f"{none_begins} differ.") if prefix else None,
    )


def _list_columns(context: RequestContext, names: Mapping[str, str]) -> Columns[TaskBatch]:
    def title(batch: TaskBatch) -> Cell:
        url = context.url(urls.WORKFLOW, context.onward, id=batch.id)
        name = names.get(batch.id, "")
        return Lines((Link(name, url), Id(batch.id))) if name else Link(batch.id, url)

    return {
        "id": Column("Workflow", lambda batch: batch.id, title),
        "state": Column(
            "State",
            lambda batch: batch_state(batch, context.now),
            lambda batch: state_note(batch, context.now),
        ),
        "progress": numbers("Finished", lambda batch: batch.ended, _bar),
        "live": numbers("Live", lambda batch: batch.live),
        "dead": numbers("Dead", lambda batch: batch.dead),
        "created": times("Created", lambda batch: batch.created_at),
        "ended": times("Ended", lambda batch: batch.finished_at, lambda batch: batch.finished_at),
    }


def _names(context: RequestContext, batches: Sequence[TaskBatch]) -> dict[str, str]:
    """Return the function of the first member of each batch whose id is generated."""
    if not context.allows(Permission.DETAILS):
        return {}
    first = {
        batch.id: batch.members[0]
        for batch in batches
        if batch.members and batch.id.startswith(_GENERATED)
    }
    tasks = context.use.inspect.read(list(first.values()), EVERY_TASK, payload=True)
    return {
        batch_id: called_function(tasks[task_id].payload)
        for batch_id, task_id in first.items()
        if task_id in tasks
    }


def state_note(batch: TaskBatch, now: datetime) -> Cell:
    """Return the state of a batch."""
    state = batch_state(batch, now)
    return Note(state, _LEVELS[state]) if state in _LEVELS else Dim(state)


def _bar(batch: TaskBatch) -> Cell:
    most = max(batch.total or 0, batch.created, 1)
    return Meter(batch.ended, most, f"{batch.ended} of {most} finished")


# -- one workflow ----------------------------------------------------------------------------------


@routes.get(urls.WORKFLOW, Permission.READ)
def show(context: RequestContext) -> Reply:
    """Show one workflow."""
    batches = context.use.task_batches
    batch = batches.get(context.request.names["id"])
    found = steps_of(batches, batch, details=context.allows(Permission.DETAILS))
    names = {step.task_id: step.name or step.task_id for step in found.steps}
    total = batch.total if batch.total is not None else batch.created
    total += max(0, batch.created - batch.direct)  # what members made themselves
    steps = sorted(found.steps, key=_urgency)  # stable: the rest stays in the order of creation
    named = any(step.name for step in steps)
    kind = "Workflow" if named or batch.id.startswith("wfl_") else "Batch"
    columns = _step_columns(context, batch, names, named=named)
    return Page(
        "workflow.html",
        title=f"{kind} {batch.id}",
        crumbs=_crumbs(context, batch),
        state=state_note(batch, context.now),
        ended=batch.ended,
        total=max(total, batch.ended, 1),
        progress=_progress(batch, context.now),
        facts=_facts(batch),
        callbacks=tuple(
            Link(str(event), task_url(context, fired.task_id))
            for event, fired in batch.fired.items()
            if fired.task_id is not None
        ),
        steps=table("steps", columns, steps),
        more=f"{formatting.count_of(found.left_out, 'member')} more." if found.left_out else "",
        elsewhere=tuple(_elsewhere(context, batch, found)),
        actions=cancel_link(context, batch),
        recount=recount_form(context, batch),
    )


def _urgency(step: BatchStep) -> int:
    """Return the place of a step: failing ones first, finished ones last."""
    task = step.task
    if task is None:
        return 6 if step.made else 4
    if task.state is State.DEAD:
        return 0
    if task.state is State.ENQUEUED:
        return 1 if task.errors else 3
    return 2 if task.state is State.INFLIGHT else 5


def _step_columns(
    context: RequestContext, batch: TaskBatch, names: Mapping[str, str], *, named: bool
) -> Columns[BatchStep]:
    operates = context.allows(Permission.OPERATE)

    def title(step: BatchStep) -> Cell:
        url = task_url(context, step.task_id) if step.made else ""
        name: Cell = Link(step.name, url) if step.name else Id(step.task_id, url)
        after = Dim(f"after {_after([names[one] for one in step.after])}") if step.after else None
        return Lines((name, after)) if after else name

    def function(step: BatchStep) -> Cell:
        called = called_function(step.task.payload if step.task else step.payload)
        return Lines((Code(called), Dim(step.queue))) if called else Dim(step.queue)

    def error(step: BatchStep) -> Cell:
        text = formatting.latest(step.task.errors, 300) if step.task else ""
        return Clip(text, task_url(context, step.task_id)) if text else None

    def restart(step: BatchStep) -> Cell:
        if step.task is None or step.task.state is not State.DEAD or not operates:
            return None
        label = f"Restart this step: {step.name}" if step.name else f"Restart {step.task_id}"
        return Confirm(
            context.url(urls.RESTART_STEP, id=batch.id),
            (Choice("", "Restart this step" if named else "Restart", label=label),),
            hidden=(Hidden("task", step.task_id), Hidden("queue", step.queue)),
        )

    return {
        "step": Column("Step" if named else "Task", cell=title),
        "function": Column("Function", cell=function),
        "state": Column("State", cell=lambda step: _state(step, context.now)),
        "attempt": Column("Attempt", cell=lambda step: _attempt(context, step), number=True),
        "error": Column("Error", cell=error, wide=True),
        "duration": Column("Duration", cell=lambda step: _duration(step, context.now)),
        "retry": Column("Next retry", cell=_next_retry),
        "restart": Column(BulkAction.RESTART.value.capitalize(), cell=restart, hidden=True),
    }


def _state(step: BatchStep, now: datetime) -> Cell:
    if step.task is not None:
        return Badge(step.task.status(now), step.task.dead_reason or "")
    if step.made:
        return Dim("no longer kept")
    return Note("cancelled") if step.stopped else Dim("not started")


def _attempt(context: RequestContext, step: BatchStep) -> Cell:
    task = step.task
    if task is None or not task.attempts:
        return None
    retry = task.retry or context.use.queues.cached(task.queue).settings.retry_strategy
    return f"{formatting.number(task.attempts)} of {formatting.number(retry.max_retries + 1)}"


def _duration(step: BatchStep, now: datetime) -> Cell:
    task = step.task
    if task is None or task.started_at is None or task.state is State.ENQUEUED:
        return None
    end = task.finished_at or now
    return formatting.duration((end - task.started_at).total_seconds())


def _next_retry(step: BatchStep) -> Cell:
    task = step.task
    waits = task is not None and task.state is State.ENQUEUED and task.errors
    return task.due_at if task is not None and waits else None


def _crumbs(context: RequestContext, batch: TaskBatch) -> tuple[Link, ...]:
    every = crumb(context, "Workflows", urls.WORKFLOWS)
    whole = batch.part_of
    return (every, Link(whole, context.url(urls.WORKFLOW, id=whole))) if whole else (every,)


def _progress(batch: TaskBatch, now: datetime) -> str:
    ended = formatting.number(batch.ended)
    if batch.total is None:
        return f"{ended} of {formatting.number(batch.created)} so far finished; open for more"
    if batch.finished_at is not None:
        return f"all {ended} finished"
    running = f" · {formatting.number(batch.live)} running or waiting" if batch.live else ""
    missing = batch.total - batch.direct
    not_started = f" · {formatting.number(missing)} not started" if missing > 0 else ""
    stalled = ""
    if batch.is_stalled(now):
        stalled = f". Stalled: {formatting.number(batch.dead)} dead, and nothing runs"
    total = formatting.number(batch.total)
    return f"{ended} of {total} finished{running}{not_started}{stalled}"


def _facts(batch: TaskBatch) -> tuple[Fact, ...]:
    counts = (
        ("Live", batch.live),
        ("Succeeded", batch.succeeded),
        ("Dead", batch.dead),
        ("Deleted", batch.deleted),
    )
    instants = (
        ("Created", batch.created_at),
        ("Cancelled", batch.cancelled_at),
        ("Finished", batch.finished_at),
        ("Counted up to", batch.counted_at),
        ("Kept until", batch.expires_at),
    )
    return (
        *(Fact(name, formatting.number(value)) for name, value in counts),
        *(Fact(name, at=at) for name, at in instants if at is not None),
    )


def _elsewhere(context: RequestContext, batch: TaskBatch, found: BatchSteps) -> Iterator[Link]:
    """Yield where the rest is: tasks of a workflow by its tag, waiting steps among the batches."""
    if found.left_out:
        tagged = {SEARCHED: query_text(Query(TaskFilter(tags={WORKFLOW_TAG: batch.id})))}
        for queue in sorted({step.queue for step in found.steps if step.name}):
            yield Link(f"All in {queue}", context.url(urls.QUEUE, tagged, queue=queue))
    if found.more_wait:
        query = {SEARCHED: term_text("id", part_id(batch.id, ""))}
        yield Link("More steps that wait", context.url(urls.WORKFLOWS, query))


def _after(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more
