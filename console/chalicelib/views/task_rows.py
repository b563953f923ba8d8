"""A task in a list, terms that find similar tasks, and the heads that sort the list.

A list with several pages is sorted by time only.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from headrace.domain import query
from headrace.domain.filters import TaskFilter
from headrace.domain.list_query import called_function
from headrace.domain.query import Query
from headrace.domain.task import State, Status, Task

from .. import formatting
from ..calls import CallLine, Progress, call_line, progress_of
from ..parts import Heading, Link
from ..request_context import RequestContext
from . import columns
from .columns import Column, Columns, head
from .navigation import tag_links, task_url

_MEANS: Final = {
    State.ENQUEUED: "due",
    State.INFLIGHT: "running for",
    State.SUCCEEDED: "succeeded",
    State.DEAD: "died",
}


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task in a list; ``at`` is its state's own time, ``at_means`` says which.

    ``terms`` are the terms of a query that find this task and similar ones.
    """

    task: Task
    url: str
    status: Status
    at: datetime
    at_means: str
    tags: tuple[Link, ...]
    error: str
    terms: tuple[str, ...]
    call: CallLine | None
    progress: Progress | None


def task_row(context: RequestContext, task: Task, *, mixed: bool) -> TaskRow:
    """Return the row of *task*; in a list of *mixed* states it says what its time is."""
    return TaskRow(
        task=task,
        url=task_url(context, task.id),
        status=task.status(context.now),
        at=_own_time(task),
        at_means=_MEANS.get(task.state, "") if mixed else "",
        tags=tag_links(context, task.queue, task.tags, state=context.request.param("state")),
        error=formatting.latest(task.errors, 300),
        terms=tuple(_terms_of(task)),
        call=call_line(task.payload),
        progress=progress_of(task.own_progress) if task.state is State.INFLIGHT else None,
    )


def _own_time(task: Task) -> datetime:
    """Return the time that a list shows; the order of the list may be another.

    A task with a turn is sorted by its turn, a task in flight by the end of its lease.
    """
    if task.state is State.ENQUEUED:
        return task.due_at
    if task.state is State.INFLIGHT:
        return task.started_at or task.scheduled_at
    return task.scheduled_at


def _terms_of(task: Task) -> Iterator[str]:
    if function := called_function(task.payload):
        yield query.query_text(Query(TaskFilter(payload={"task": function})))
    for key, value in task.tags.items():
        yield query.query_text(Query(TaskFilter(tags={key: value})))
    if task.worker:
        yield query.query_text(Query(TaskFilter(worker=task.worker)))
    if task.errors and task.errors[-1].type:
        yield query.query_text(Query(TaskFilter(error=task.errors[-1].type)))


# Heads of the list.

TIME: Final = "time"
_COLUMNS: Final[Columns[TaskRow]] = {
    "task": Column("Task", lambda row: (row.call.function if row.call else "", row.task.id)),
    "state": Column("State", lambda row: ([*Status].index(row.status), row.task.dead_reason or "")),
    "priority": Column("Priority", lambda row: row.task.priority or ""),
    TIME: Column("", lambda row: row.at),
    "attempts": columns.numbers("Attempts", lambda row: row.task.attempts),
    "worker": Column("Worker", lambda row: row.task.worker or ""),
    "error": Column("Latest error, tags", lambda row: row.error, wide=True),
}


def ordered(rows: Sequence[TaskRow], sort: str) -> tuple[TaskRow, ...]:
    """Return all the tasks of a list by the column *sort*, with a minus the greatest first."""
    return columns.ordered(_COLUMNS, rows, sort)


def headings(
    time: str,
    sort: str,
    *,
    order: str,
    whole: bool,
    ranked: bool,
    url: Callable[[str, str], str],
) -> Iterator[Heading]:
    """Yield the heads; *time* is the head of the states' own time.

    *order* (asc or desc) is the order by this time, empty for another order.  *sort* is the sort
    column of a *whole* list; *url* returns the address for a column and an order.
    """
    sorted_by = sort if whole and sort.removeprefix("-") in _COLUMNS else ""
    for name, column in _COLUMNS.items():
        if name == "priority" and not ranked:
            continue
        if name == TIME:
            now = sorted_by if sorted_by.removeprefix("-") == TIME else ""
            if not sorted_by and order:
                now = f"-{TIME}" if order == "desc" else TIME
            shown = head(TIME, replace(column, text=time), now, None)
            falls = now.startswith("-") or (not now and order == "desc")
            yield replace(shown, url=url("", "asc" if falls else "desc"))
        else:
            yield head(name, column, sorted_by, (lambda to: url(to, "")) if whole else None)
