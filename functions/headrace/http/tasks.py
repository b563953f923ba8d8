"""Tasks: enqueue, dequeue, report, show, explain, cancel, delete, list and count."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from headrace.domain import limits
from headrace.domain.access import Permission
from headrace.domain.task import Task
from headrace.http import repeats
from headrace.http.fields import Reason
from headrace.http.parameters import (
    Cursor,
    FilterQuery,
    Flag,
    Limit,
    PayloadFlag,
    QueueInPath,
    TaskInPath,
    max_retries,
    own_task,
    queue_name,
    shows_payload,
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
"""The header with the seconds until a client should ask again for a task that has not ended."""

WaitForEnd: TypeAlias = Annotated[
    float,
    Field(ge=0, le=limits.WAIT_SECONDS, description="How long to wait for the task's end."),
]
UndoSeconds: TypeAlias = Annotated[
    float,
    Field(
        ge=limits.UNDO_SECONDS[0],
        le=limits.UNDO_SECONDS[1],
        description="How long an undo can restore it; 0: not at all.",
    ),
]
WhyDeleted: TypeAlias = Annotated[
    Reason | None, Field(description="The reason, which the audit keeps.")
]
_LEFT_MILLIS: Final = 1500  # kept free for the answer, of the time that API Gateway waits


@routes.add(
    "POST",
    "/v1/queues/{queue}/tasks",
    Permission.ENQUEUE,
    answer="One result for each entry.",
    examples=ENQUEUE,
)
def enqueue(queue: QueueInPath, body: EnqueueBody) -> EnqueueResults:
    """Enqueue tasks.

    Each entry succeeds or fails on its own. The answer has one result for each entry, in the order
    of the entries. An entry whose `id` exists, in any queue, is EXISTING and changes nothing.
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

    An answer without tasks is a success: ask again after `poll_after_seconds`. If the key is
    revoked during a wait, the wait ends with 401. A repeat under the same `Idempotency-Key` returns
    the tasks that the first call leased and that are still leased; it leases no other tasks. 409
    `lease_lost`: the lease of `lease_id` has ended.
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

    Works like a dequeue of one queue, in one call. Each task names its `queue`; report it to that
    queue. `poll_after_seconds` is the lowest of these queues. If a queue is missing, or the key is
    not for it, no task is leased.
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
        has_time=lambda: context.get_remaining_time_in_millis() > _LEFT_MILLIS,
        check_key=lambda: use.keys.known(by.key_id, by.digest),
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

    Each report succeeds or fails on its own. The answer has one result for each report, in the
    order of the reports. Safe to repeat. A report that differs from the report that settled its
    lease is STALE_LEASE.
    """
    use = current_service()
    reports = [entry.report() for entry in body.reports]
    results = use.reports.report(queue_name(queue), reports)
    return reported_answer(reports, results, use.now())


@routes.add("GET", "/v1/tasks/{id}", Permission.READ, answer="The task.", schema="ShownTask")
def get_task(id: TaskInPath, payload: PayloadFlag = None, wait_seconds: WaitForEnd = 0) -> Answered:
    """Show a task.

    With `wait_seconds` the answer comes when the task has ended (SUCCEEDED or DEAD), or after that
    time with the current state of the task. Moves and retries are no ends. 404 if the task does not
    exist, or as soon as it is deleted. If the key is revoked during a wait, the wait ends with 401.
    Each read of the task costs half a read unit for 4 KiB. On AWS, polling is cheaper than waiting:
    `X-Poll-After` is the number of seconds to wait between two requests.
    """
    wanted, use = shows_payload(payload, by_default=True), current_service()
    task = _ended_task(id, wait_seconds) if wait_seconds else own_task(id)
    task = use.texts.shown(task, payload=wanted)
    shown = task_answer(task, now=use.now(), max_retries=max_retries(), payload=wanted)
    answer = Reply(shown)
    answer.headers[POLL_AFTER] = f"{use.settings.poll_after_seconds:g}"
    return answer


def _wait(wanted: float) -> float:
    """Return how many seconds this call may wait if the client asks for *wanted* seconds."""
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
        has_time=lambda: context.get_remaining_time_in_millis() > _LEFT_MILLIS,
        check_key=lambda: use.keys.known(by.key_id, by.digest),
        is_gone=client_gone(context),
    )


@routes.add("GET", "/v1/tasks/{id}/explain", Permission.READ, answer="All reasons.")
def explain_task(id: TaskInPath) -> Explained:
    """Explain why a task is not running.

    Without a reason, the next worker that asks gets the task.
    """
    return explained_answer(current_service().explain.reasons(own_task(id)))


@routes.add(
    "POST", "/v1/tasks/{id}/cancel", Permission.CANCEL, answer="The task.", examples=CANCEL_TASK
)
def cancel_task(id: TaskInPath, body: ReasonBody | None = None) -> CancelledTask:
    """Cancel a task.

    The task ends as DEAD with the reason `cancelled`, even if it is in flight. Its worker learns
    this with the next heartbeat. Safe to repeat. 409 `finished`: the task has ended in another way.
    The audit keeps the `reason`. The key must be allowed to enqueue into the queue of the task.
    """
    use, why = current_service(), (body and body.reason) or ""
    done = visibility.cancel_task(use.cancelling, principal(), task_id(id), reason=why)
    done = replace(done, task=use.texts.shown(done.task))
    return cancelled_answer(done, now=use.now(), max_retries=max_retries())


@routes.add(
    "DELETE",
    "/v1/tasks/{id}",
    Permission.OPERATE,
    answer="The task is deleted; the undo can restore it.",
    schema="DeletedTask",
    also={204: "The task is deleted."},
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
def list_tasks(
    queue: QueueInPath,
    where: FilterQuery,
    order: Annotated[Literal["asc", "desc"], Field(description="By time.")] = "asc",
    limit: Limit = 50,
    cursor: Cursor = None,
    payload: PayloadFlag = None,
) -> Tasks:
    """List tasks.

    By state (ENQUEUED, INFLIGHT, DEAD, SUCCEEDED), and by time within a state: the due time, the
    first end of the lease, or the finish. A page may be short or empty and still have a cursor.
    """
    use = current_service()
    wanted, name = shows_payload(payload, by_default=False), queue_name(queue)
    page = use.inspect.list(
        name,
        where.of_queue(name),
        descending=order == "desc",
        limit=limit,
        cursor=cursor,
        payload=wanted,
    )
    page = visibility.page(principal(), page)
    return tasks_answer(page, now=use.now(), max_retries=max_retries(), payload=wanted)


@routes.add("GET", "/v1/queues/{queue}/count", Permission.READ, answer="The number of tasks.")
def count_tasks(queue: QueueInPath, where: FilterQuery, cursor: Cursor = None) -> Count:
    """Count tasks.

    Counts the tasks that a list with the same filter would show. If one call cannot count them all,
    the answer is `partial`: each call counts other tasks, and the caller adds the numbers.
    """
    name = queue_name(queue)
    counted = current_service().inspect.count(name, where.of_queue(name), cursor=cursor)
    return count_answer(counted)
