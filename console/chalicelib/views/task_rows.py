"""One task in a list: what it does, how it stands, and what finds others like it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from headrace.domain import query
from headrace.domain.filters import TaskFilter
from headrace.domain.query import Query
from headrace.domain.task import State, Status, Task

from .. import formatting, urls
from ..calls import CallLine, call_line
from ..parts import Link
from ..request_context import RequestContext
from .navigation import tag_links

_MEANS: Final = {
    State.ENQUEUED: "due",
    State.INFLIGHT: "lease granted until",
    State.SUCCEEDED: "succeeded",
    State.DEAD: "died",
}


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task in a list; ``at`` is its state's own time, ``at_means`` says which.

    ``terms`` are those of a query by which it, and others like it, would be found.
    """

    id: str
    url: str
    status: Status
    dead_reason: str
    at: datetime
    at_means: str
    attempts: int
    worker: str
    tags: tuple[Link, ...]
    error: str
    priority: str = ""
    terms: tuple[str, ...] = ()
    call: CallLine | None = None


def task_row(context: RequestContext, task: Task, *, mixed: bool) -> TaskRow:
    """Return the row of *task*; in a list of *mixed* states it says what its time is."""
    return TaskRow(
        id=task.id,
        url=context.url(urls.TASK, id=task.id),
        status=task.status(context.now),
        dead_reason=task.dead_reason or "",
        at=task.scheduled_at,
        at_means=_MEANS.get(task.state, "") if mixed else "",
        attempts=task.attempts,
        worker=task.worker or "",
        tags=tag_links(context, task.queue, task.tags, state=context.request.param("state")),
        error=formatting.latest(task.errors, 300),
        priority=task.priority or "",
        terms=tuple(_terms_of(task)),
        call=call_line(task.payload),
    )


def _terms_of(task: Task) -> Iterator[str]:
    for key, value in task.tags.items():
        yield query.written(Query(TaskFilter(tags={key: value})))
    if task.worker:
        yield query.written(Query(TaskFilter(worker=task.worker)))
    if task.errors and task.errors[-1].type:
        yield query.written(Query(TaskFilter(error=task.errors[-1].type)))
