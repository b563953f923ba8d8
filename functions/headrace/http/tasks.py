"""Tasks: enqueue, dequeue, report, show, explain, delete, list, count."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from headrace.domain import limits
from headrace.domain.access import Permission
from headrace.domain.filters import TaskFilter
from headrace.domain.query import narrowed
from headrace.domain.task import Task
from headrace.http import repeats
from headrace.http.fields import Reason
from headrace.http.parameters import (
    AfterFilter,
    AttemptsFilter,
    BeforeFilter,
    Cursor,
    ErrorFilter,
    Flag,
    GroupFilter,
    Limit,
    PayloadFlag,
    PriorityFilter,
    QueryFilter,
    QueueInPath,
    StateFilter,
    TagFilter,
    TaskInPath,
    WorkerFilter,
    max_retries,
    own_task,
    queue_name,
    shows_payload,
    task_filter,
    task_id,
)
from headrace.http.report_bodies import REPORT, ReportsBody
from headrace.http.request import Reply, principal, this_request
from headrace.http.routing import Answered, Routes
from headrace.http.task_answers import (
    cancelled_answer,
    count_answer,
    dequeued_answer,
    enqueued_answer,
    explained_answer,
    reported_answer,
    task_answer,
    tasks_answer,
    undoable_answer,
)
from headrace.http.task_bodies import (
    CANCEL_TASK,
    DEQUEUE,
    DEQUEUE_MANY,
    ENQUEUE,
    DequeueBody,
    DequeueManyBody,
    EnqueueBody,
    ReasonBody,
)
from headrace.ops.delivery.dequeue import Order
from headrace.ops.operators import visibility
from headrace.runtime.wiring import current_service
from headrace.store.call_scope import client_gone, time_to_wait
from headrace.wire.tasks import (
    CancelledTask,
    Count,
    DeletedTask,
    EnqueueResults,
    Explained,
    ReportResults,
    Tasks,
)

routes: Final = Routes("Tasks")
POLL_AFTER: Final = "X-Poll-After"
"""After how many seconds to ask again for a task that has not ended."""

WaitForEnd: TypeAlias = Annotated[
    float,
    Field(ge=0, le=limits.WAIT_SECONDS, description="How long to wait for the task's end."),
]
UndoSeconds: TypeAlias = Annotated[
    float,
    Field(
        ge=limits.UNDO_SECONDS[0],
        le=limits.UNDO_SECONDS[1],
        description="For how long it can be brought back; 0: not at all.",
    ),
]
WhyDeleted: TypeAlias = Annotated[
    Reason | None, Field(description="Why, in your words: the audit keeps it.")
]
_LEFT_MILLIS: Final = 1500  # what an answer needs of the time that API Gateway waits


@routes.add(
    "POST",
    "/v1/queues/{queue}/tasks",
    Permission.ENQUEUE,
    answer="One result for each entry.",
    examples=ENQUEUE,
)
def enqueue(queue: QueueInPath, body: EnqueueBody) -> EnqueueResults:
    """Enqueue tasks.

    Each entry on its own; one result for each, in their order. An id that exists, in whatever
    queue, is EXISTING, and changes nothing.
    """
    use, by = current_service(), principal()
    results = use.tasks.enqueue(queue_name(queue), [entry.new_task() for entry in body.tasks])
    shown = [result.as_seen_by(by) for result in results]
    return enqueued_answer(shown, now=use.now(), max_retries=max_retries())


@routes.add(
    "POST",
    "/v1/queues/{queue}/dequeue",
    Permission.WORK,
    answer="The tasks, each with its lease.",
    schema="Dequeued",
    examples=DEQUEUE,
)
def dequeue(queue: QueueInPath, body: DequeueBody | None = None) -> Answered:
    """Lease tasks that are due.

    An empty answer is a success. Ask again after `poll_after_seconds`. A wait ends with 401
    when its key is revoked meanwhile. Sent again under the same `Idempotency-Key`, it gives the
    tasks that it leased before, as far as they are still under their lease, and leases no
    others. 409 `lease_lost`: the `lease_id` is of a lease that has ended.
    """
    return _leased(queue_name(queue), body or DequeueBody())


@routes.add(
    "POST",
    "/v1/dequeue",
    Permission.WORK,
    answer="The tasks, each with its lease.",
    schema="Dequeued",
    examples=DEQUEUE_MANY,
)
def dequeue_many(body: DequeueManyBody) -> Answered:
    """Lease tasks that are due in several queues.

    As of one queue, in one call; each task says its `queue`, and reports go to that.
    `poll_after_seconds` is the least of theirs. Where a queue is missing, or not for the key,
    nothing is leased.
    """
    return _leased(body.queues, body, order=body.order)


def _leased(
    queues: str | Sequence[str], wanted: DequeueBody, *, order: Order = Order.PREFERENCE
) -> Answered:
    request, use, by = this_request(), current_service(), principal()
    context = request.context
    found = use.deliveries.dequeue(
        queues,
        order=order,
        batch_size=wanted.batch_size,
        wait_seconds=_wait(wanted.wait_seconds),
        worker=wanted.worker or "",
        keepalive=wanted.keepalive_timeout_in_seconds,
        lease_id=wanted.lease_id,
        batch=repeats.batch_of(request, grouped=wanted.lease_id is not None),
        go_on=lambda: context.get_remaining_time_in_millis() > _LEFT_MILLIS,
        still_may=lambda: use.keys.known(by.key_id, by.digest),
        is_gone=client_gone(context),
    )
    answer = Reply(dequeued_answer(found, max_retries=max_retries()))
    if found.replayed:
        answer.headers[repeats.REPLAYED] = "true"
    return answer


@routes.add(
    "POST",
    "/v1/queues/{queue}/reports",
    Permission.WORK,
    answer="One result for each report.",
    examples=REPORT,
)
def report(queue: QueueInPath, body: ReportsBody) -> ReportResults:
    """Report on leased tasks.

    Each report on its own; one result for each, in their order. Safe to repeat; a report that
    differs from the one that settled its lease is STALE_LEASE.
    """
    use = current_service()
    reports = [entry.report() for entry in body.reports]
    results = use.reports.report(queue_name(queue), reports)
    return reported_answer(reports, results, use.now())


@routes.add("GET", "/v1/tasks/{id}", Permission.READ, answer="The task.", schema="ShownTask")
def get_task(id: TaskInPath, payload: PayloadFlag = None, wait_seconds: WaitForEnd = 0) -> Answered:
    """Show a task.

    With `wait_seconds` the answer comes when the task has ended, SUCCEEDED or DEAD, or when
    that time is over, and then with the task as it stands. Moves and retries are no end. 404 at
    once where there is no such task, and as soon as it is gone. A wait ends with 401 when its
    key is revoked meanwhile. Each look takes half a read unit for 4 KiB. `X-Poll-After` in the
    answer is after how many seconds to ask again instead: on AWS waiting costs more than that.
    """
    wanted, use = shows_payload(payload, by_default=True), current_service()
    task = _ended_task(id, wait_seconds) if wait_seconds else own_task(id)
    task = use.texts.shown(task, payload=wanted)
    shown = task_answer(task, now=use.now(), max_retries=max_retries(), payload=wanted)
    answer = Reply(shown)
    answer.headers[POLL_AFTER] = f"{use.settings.poll_after_seconds:g}"
    return answer


def _wait(wanted: float) -> float:
    """Return the seconds that this call waits if a client asks for *wanted* seconds."""
    return min(
        wanted, current_service().settings.long_poll_seconds, time_to_wait(this_request().context)
    )


def _ended_task(id: str, wait_seconds: float) -> Task:
    context, use, by = this_request().context, current_service(), principal()
    return visibility.ended_task(
        use.waiting,
        by,
        task_id(id),
        seconds=_wait(wait_seconds),
        go_on=lambda: context.get_remaining_time_in_millis() > _LEFT_MILLIS,
        still_may=lambda: use.keys.known(by.key_id, by.digest),
        is_gone=client_gone(context),
    )


@routes.add("GET", "/v1/tasks/{id}/explain", Permission.READ, answer="Every reason.")
def explain_task(id: TaskInPath) -> Explained:
    """Tell why a task is not running.

    No reason at all: it goes to the next worker that asks.
    """
    return explained_answer(current_service().explain.reasons(own_task(id)))


@routes.add(
    "POST", "/v1/tasks/{id}/cancel", Permission.CANCEL, answer="The task.", examples=CANCEL_TASK
)
def cancel_task(id: TaskInPath, body: ReasonBody | None = None) -> CancelledTask:
    """Cancel a task.

    It ends, waiting or in flight: DEAD, `cancelled`. Whoever works on it hears of it with the
    next heartbeat. Safe to repeat. 409 `finished`: it has ended otherwise. The audit keeps the
    `reason`. Takes a key that may enqueue into its queue.
    """
    use, why = current_service(), (body and body.reason) or ""
    done = visibility.cancel_task(use.cancelling, principal(), task_id(id), reason=why)
    done = replace(done, task=use.texts.shown(done.task))
    return cancelled_answer(done, now=use.now(), max_retries=max_retries())


@routes.add(
    "DELETE",
    "/v1/tasks/{id}",
    Permission.OPERATE,
    answer="It can be brought back: `undo_in_seconds` was given.",
    schema="DeletedTask",
    also={204: "The task is gone."},
)
def delete_task(
    id: TaskInPath,
    if_not_inflight: Flag = "false",
    undo_in_seconds: UndoSeconds = 0,
    reason: WhyDeleted = None,
) -> Answered:
    """Delete a task."""
    undo = visibility.delete_task(
        current_service().tasks,
        principal(),
        task_id(id),
        if_not_inflight=if_not_inflight == "true",
        undo_in_seconds=undo_in_seconds,
        reason=reason or "",
    )
    if undo is None:
        return Reply(None, 204)
    return DeletedTask(undo=undoable_answer(undo))


@routes.add("GET", "/v1/queues/{queue}/tasks", Permission.LIST, answer="A page of tasks.")
def list_tasks(  # noqa: PLR0913, PLR0917  they are the request's parameters
    queue: QueueInPath,
    state: StateFilter = None,
    tags: TagFilter = None,
    worker: WorkerFilter = None,
    scheduled_after: AfterFilter = None,
    scheduled_before: BeforeFilter = None,
    min_attempts: AttemptsFilter = None,
    error: ErrorFilter = None,
    priority: PriorityFilter = None,
    group_key: GroupFilter = None,
    query: QueryFilter = None,
    order: Annotated[Literal["asc", "desc"], Field(description="By time.")] = "asc",
    limit: Limit = 50,
    cursor: Cursor = None,
    payload: PayloadFlag = None,
) -> Tasks:
    """List tasks.

    State after state (ENQUEUED, INFLIGHT, DEAD, SUCCEEDED), by time within each: due, end of
    the lease as first granted, finish. A page may be short or empty and still have a cursor.
    """
    use = current_service()
    wanted, name = shows_payload(payload, by_default=False), queue_name(queue)
    where = task_filter(
        *(state, tags, worker, scheduled_after, scheduled_before),
        *(min_attempts, error),
        priority=priority,
        group_key=group_key,
    )
    page = use.inspect.list(
        name,
        _narrowed(query, where, name),
        descending=order == "desc",
        limit=limit,
        cursor=cursor,
        payload=wanted,
    )
    page = visibility.page(principal(), page)
    return tasks_answer(page, now=use.now(), max_retries=max_retries(), payload=wanted)


@routes.add("GET", "/v1/queues/{queue}/count", Permission.READ, answer="How many there are.")
def count_tasks(  # noqa: PLR0913, PLR0917  they are the request's parameters
    queue: QueueInPath,
    state: StateFilter = None,
    tags: TagFilter = None,
    worker: WorkerFilter = None,
    scheduled_after: AfterFilter = None,
    scheduled_before: BeforeFilter = None,
    min_attempts: AttemptsFilter = None,
    error: ErrorFilter = None,
    priority: PriorityFilter = None,
    group_key: GroupFilter = None,
    query: QueryFilter = None,
    cursor: Cursor = None,
) -> Count:
    """Count tasks.

    Those that a list with the same filter would show. Where they are too many for one call, the
    answer is `partial`: each step counts its own, and the caller adds them up.
    """
    name = queue_name(queue)
    where = task_filter(
        *(state, tags, worker, scheduled_after, scheduled_before),
        *(min_attempts, error),
        priority=priority,
        group_key=group_key,
    )
    counted = current_service().inspect.count(name, _narrowed(query, where, name), cursor=cursor)
    return count_answer(counted)


def _narrowed(text: str | None, where: TaskFilter, queue: str) -> TaskFilter:
    """Return *where* with what the query asks for; a payload only whoever may see it may name."""
    if text is None:
        return where
    found = narrowed(text, where, queue)
    if found.payload:
        principal().require(Permission.DETAILS)
    return found
