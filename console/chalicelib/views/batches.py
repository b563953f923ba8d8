"""Batches: every one, and how far one is; of a workflow its steps, those too that only wait."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final, TypeAlias

from headrace.domain.access import Permission
from headrace.domain.batch import TaskBatch
from headrace.domain.filters import TaskFilter
from headrace.domain.query import Query, query_text
from headrace.domain.query_grammar import term_text
from headrace.domain.workflow import WORKFLOW_TAG, StepNode, part_id, step_tree
from headrace.ops.tasks.steps import BatchStep, BatchSteps, steps_of

from .. import formatting, urls
from ..pages import Page
from ..parts import Confirm, Empty, Fact, Heading, Link, Pager, SearchBox, StepBranch
from ..request_context import RequestContext
from ..routes import Reply, routes
from .batch_actions import cancel_link, recount_form
from .columns import Column, Columns, numbers, times
from .list_search import SEARCHED, ListSearch
from .navigation import crumb, task_url
from .search_box import list_box

_NAMES: Final = 5  # of the steps that one waits for

Names: TypeAlias = Mapping[str, str]
"""What the steps are called, by the ids of their tasks."""


@dataclass(frozen=True, slots=True)
class BatchLine:
    """One batch; ``total`` is None while it is open."""

    batch: Link
    total: int | None
    ended: int
    created: int
    live: int
    succeeded: int
    dead: int
    deleted: int
    created_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchesPage(Page):
    """Every batch that the visitor may see."""

    template: ClassVar[str] = "batches.html"
    search: SearchBox
    headings: tuple[Heading, ...]
    rows: tuple[BatchLine, ...]
    pager: Pager
    empty: Empty


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPage(Page):
    """One batch: its numbers, what it called back, its steps or first members."""

    template: ClassVar[str] = "batch.html"
    id: str
    ended: int
    total: int
    progress: str
    facts: tuple[Fact, ...]
    callbacks: tuple[Link, ...]
    dead: tuple[Link, ...]
    steps: tuple[StepBranch, ...]
    more: str
    elsewhere: tuple[Link, ...]
    actions: tuple[Link, ...]
    recount: Confirm | None


COLUMNS: Final[Columns[BatchLine]] = {
    "id": Column("Batch", lambda row: row.batch.text),
    "members": numbers("Members", lambda row: -1 if row.total is None else row.total),
    "live": numbers("Live", lambda row: row.live),
    "succeeded": numbers("Succeeded", lambda row: row.succeeded),
    "dead": numbers("Dead", lambda row: row.dead),
    "deleted": numbers("Deleted", lambda row: row.deleted),
    "created": times("Created", lambda row: row.created_at),
    "ended": times("Ended", lambda row: row.finished_at),
}


@routes.get(urls.BATCHES, Permission.READ)
def show_all(context: RequestContext) -> Reply:
    """Show a page of batches; those within others where the query names how their ids begin."""
    wanted: ListSearch[TaskBatch] = ListSearch(context, "batches")
    prefix = wanted.where.named.get("id", "")
    page = wanted.look(
        lambda where, limit, cursor: context.use.task_batches.list(
            prefix=prefix, parts=False, where=where, limit=limit, cursor=cursor
        )
    )
    rows = [_line(context, batch) for batch in page.shown]
    return BatchesPage(
        title="Batches",
        http_status=wanted.status,
        search=list_box(context, wanted, page.shown),
        headings=wanted.headings(COLUMNS, "id"),
        rows=wanted.rows(COLUMNS, rows),
        pager=wanted.pager(len(rows), "batch", "batches"),
        empty=wanted.empty(_NONE, _none_begins(prefix)),
    )


@routes.get(urls.BATCH, Permission.READ)
def show(context: RequestContext) -> Reply:
    """Show one batch."""
    batches = context.use.task_batches
    batch = batches.get(context.request.names["id"])
    found = steps_of(batches, batch)
    names = {step.task_id: step.name or step.task_id for step in found.steps}
    line = _line(context, batch)
    total = batch.total if batch.total is not None else batch.created
    total += max(0, batch.created - batch.direct)  # what members made themselves
    tree = step_tree(found.steps, lambda one: one.task_id, lambda one: one.after)
    return BatchPage(
        title=f"Batch {batch.id}",
        crumbs=_crumbs(context, batch),
        id=batch.id,
        ended=line.ended,
        total=max(total, line.ended),
        progress=_progress(batch, line),
        facts=_facts(batch),
        callbacks=tuple(
            _task_link(context, fired.task_id, str(event))
            for event, fired in batch.fired.items()
            if fired.task_id is not None
        ),
        dead=tuple(_task_link(context, task_id, task_id) for task_id in batch.dead_ids),
        steps=tuple(_branch(context, node, names) for node in tree),
        more=_more(found.left_out),
        elsewhere=_elsewhere(context, batch, found),
        actions=cancel_link(context, batch),
        recount=recount_form(context, batch),
    )


def _line(context: RequestContext, batch: TaskBatch) -> BatchLine:
    return BatchLine(
        batch=Link(batch.id, context.url(urls.BATCH, context.onward, id=batch.id)),
        total=batch.total,
        ended=batch.ended,
        created=batch.created,
        live=batch.live,
        succeeded=batch.succeeded,
        dead=batch.dead,
        deleted=batch.deleted,
        created_at=batch.created_at,
        finished_at=batch.finished_at,
    )


def _crumbs(context: RequestContext, batch: TaskBatch) -> tuple[Link, ...]:
    every = crumb(context, "Batches", urls.BATCHES)
    whole = batch.part_of
    return (every, Link(whole, context.url(urls.BATCH, id=whole))) if whole else (every,)


def _progress(batch: TaskBatch, line: BatchLine) -> str:
    ended = formatting.number(line.ended)
    if batch.total is None:
        return f"{ended} of {formatting.number(batch.created)} seen have ended; it is open"
    if batch.finished_at is not None:
        return f"all {ended} have ended"
    left = batch.total - batch.direct
    unseen = f", {formatting.number(left)} not seen yet" if left > 0 else ""
    return f"{ended} of {formatting.number(batch.total)} have ended{unseen}"


def _facts(batch: TaskBatch) -> tuple[Fact, ...]:
    numbers = (
        ("Live", batch.live),
        ("Succeeded", batch.succeeded),
        ("Dead", batch.dead),
        ("Deleted", batch.deleted),
    )
    times = (
        ("Created", batch.created_at),
        ("Cancelled", batch.cancelled_at),
        ("Ended", batch.finished_at),
        ("Counted up to", batch.counted_at),
        ("Kept until", batch.expires_at),
    )
    return (
        *(Fact(name, formatting.number(value)) for name, value in numbers),
        *(Fact(name, at=at) for name, at in times if at is not None),
    )


def _task_link(context: RequestContext, task_id: str, text: str) -> Link:
    return Link(text, task_url(context, task_id))


def _branch(
    context: RequestContext, node: StepNode[BatchStep], names: Names, above: tuple[str, ...] = ()
) -> StepBranch:
    step, part = node.step, node.step.part
    return StepBranch(
        name=step.name,
        task=_task_link(context, step.task_id, step.task_id) if step.made else None,
        queue=step.queue,
        status=None if step.task is None else step.task.status(context.now),
        reason=(step.task.dead_reason or "") if step.task is not None else "",
        after="" if step.after == above else _after([names[one] for one in step.after]),
        waits="" if part is None or step.made else _waits(part),
        stopped=step.stopped,
        next=tuple(_branch(context, one, names, (step.task_id,)) for one in node.next),
    )


def _more(left: int) -> str:
    if not left:
        return ""
    return f"and {formatting.count_of(left, 'member')} more: the first 100 are named here."


def _elsewhere(context: RequestContext, batch: TaskBatch, found: BatchSteps) -> tuple[Link, ...]:
    """Return where the rest is: tasks of a workflow by its tag, what waits among the batches."""
    links: list[Link] = []
    if found.left_out:
        tagged = {SEARCHED: query_text(Query(TaskFilter(tags={WORKFLOW_TAG: batch.id})))}
        links += (
            Link(f"All of {queue}", context.url(urls.QUEUE, tagged, queue=queue))
            for queue in sorted({step.queue for step in found.steps if step.name})
        )
    if found.more_wait:
        query = {SEARCHED: term_text("id", part_id(batch.id, ""))}
        links.append(Link("More steps that wait", context.url(urls.BATCHES, query)))
    return tuple(links)


def _waits(part: TaskBatch) -> str:
    failed = f", {formatting.number(part.dead)} dead" if part.dead else ""
    total = "?" if part.total is None else formatting.number(part.total)
    return f"{formatting.number(part.ended)} of {total} have ended{failed}"


def _after(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more


_NONE: Final = Empty("Batches and workflows would be here. There is none that this key is for.")


def _none_begins(prefix: str) -> Empty | None:
    text = f"No batch that fits has an id that begins with {prefix}. Upper and lower case differ."
    return Empty(text) if prefix else None
