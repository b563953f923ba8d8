"""Tasks: show, explain, cancel, delete, list and count; and tasks in answers.

Payloads, results and progress are in the answers exactly as they came, without being parsed again.
"""

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field

from headrace.domain import limits
from headrace.domain.access import Permission, as_seen_by
from headrace.domain.ids import shown_lease
from headrace.domain.operate import Undo
from headrace.domain.task import SHOWN_STATES, Task
from headrace.http.fields import Examples, Reason, RequestBody, example
from headrace.http.parameters import (
    Cursor,
    FilterQuery,
    Flag,
    Limit,
    PayloadFlag,
    QueueInPath,
    TaskInPath,
    own_task,
    shows_payload,
    task_id,
)
from headrace.http.request import POLL_AFTER, Reply, principal
from headrace.http.routing import Routes
from headrace.runtime.wiring import current_service
from headrace.store.call_scope import current_actor, time_to_wait
from headrace.wire import tasks as task_wire
from headrace.wire.base import MaxRetries, instant, task_members
from headrace.wire.tasks import CancelledTask, Count, DeletedTask, Explained, Tasks

if TYPE_CHECKING:
    from headrace.ops.tasks.cancel import CancelResult
    from headrace.ops.tasks.inspect import TaskListing

routes: Final = Routes("Tasks")
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


class ReasonBody(RequestBody):
    """Why it is done."""

    reason: Reason | None = None


CANCEL_TASK: Final[Examples] = {"reason": example("Why", {"reason": "the order was withdrawn"})}


# ------------------------------------------------------------------------------------------ answers


def task_answer(
    task: Task, *, now: datetime, max_retries: MaxRetries, payload: bool = True
) -> task_wire.Task:
    """Return the answer about a task at *now*."""
    return task_wire.Task(**shown_members(task, now, max_retries, payload=payload))


def cancelled_answer(
    result: "CancelResult", *, now: datetime, max_retries: MaxRetries
) -> task_wire.CancelledTask:
    """Return a cancelled task with its payload; the state is null if the task is not kept."""
    members = shown_members(result.task, now, max_retries, payload=True)
    if not result.kept:
        members["state"] = None
    return task_wire.CancelledTask(**members)


def shown_members(
    task: Task, now: datetime, max_retries: MaxRetries, *, payload: bool
) -> dict[str, Any]:
    members = task_members(
        task,
        now,
        max_retries,
        payload=payload,
        trail=_trail(task),
        errors=[task_wire.TaskError.of(error) for error in task.errors] if task.errors else [],
        batch=None if task.batch is None else task_wire.BatchEnd.of(task.batch),
    )
    return members | _uploaded(task) if payload and task.uploaded is not None else members


def _uploaded(task: Task) -> dict[str, Any]:
    """Return the members about the payload that the producer of *task* has uploaded."""
    one = task.uploaded
    if one is None:
        return {}
    from headrace.http.payloads import url_of  # noqa: PLC0415  most tasks have none

    return {
        "payload_url": url_of(one),
        "payload_bytes": one.bytes,
        "payload_sha256": one.sha256,
    }


def undoable_answer(undo: Undo) -> task_wire.Undoable:
    """Return the undo of a deletion."""
    return task_wire.Undoable(id=undo.id, until=instant(undo.until))


def tasks_answer(
    page: "TaskListing", *, now: datetime, max_retries: MaxRetries, payload: bool
) -> task_wire.Tasks:
    """Return a page of tasks."""
    shown = [
        task_answer(one, now=now, max_retries=max_retries, payload=payload) for one in page.tasks
    ]
    return task_wire.Tasks(tasks=shown, cursor=page.cursor)


def lease_answer(task: Task) -> task_wire.Lease:
    """Return the lease of a task in flight."""
    return task_wire.Lease(id=shown_lease(task), expires_at=instant(task.lease_expires_at))


def _trail(task: Task) -> list[task_wire.Hop]:
    if not task.trail:
        return []
    by = current_actor()
    return [
        task_wire.Hop(queue=by.shown(hop.queue) if by else hop.queue, at=instant(hop.at))
        for hop in task.trail
    ]


# ------------------------------------------------------------------------------------------- routes


@routes.add("GET", "/v1/tasks/{id}", Permission.READ, schema="ShownTask")
def get_task(
    id: TaskInPath, payload: PayloadFlag = None, wait_seconds: WaitForEnd = 0
) -> task_wire.Task | Reply:
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
    shown = task_answer(task, now=use.now(), max_retries=use.queues.max_retries, payload=wanted)
    answer = Reply(shown)
    answer.headers[POLL_AFTER] = f"{use.settings.poll_after_seconds:g}"
    return answer


def seconds_to_wait(wanted: float) -> float:
    """Return how many seconds this call may wait if the client asks for *wanted* seconds."""
    return min(wanted, current_service().settings.long_poll_seconds, time_to_wait())


def _ended_task(id: str, wait_seconds: float) -> Task:
    seconds = seconds_to_wait(wait_seconds)
    task = current_service().waiting.wait(task_id(id), seconds=seconds)
    return as_seen_by(principal(), task)


@routes.add("GET", "/v1/tasks/{id}/explain", Permission.READ)
def explain_task(id: TaskInPath) -> Explained:
    """Explain why a task is not running.

    Without a reason, the next worker that asks gets the task.
    """
    reasons = current_service().explain.reasons(own_task(id))
    return Explained(reasons=[task_wire.Reason.of(reason) for reason in reasons])


@routes.add("POST", "/v1/tasks/{id}/cancel", Permission.CANCEL, examples=CANCEL_TASK)
def cancel_task(id: TaskInPath, body: ReasonBody | None = None) -> CancelledTask:
    """Cancel a task.

    The task ends as DEAD with the reason `cancelled`, even if it is in flight. Its worker learns
    this with the next heartbeat. Safe to repeat. 409 `finished`: the task has ended in another way.
    The audit keeps the `reason`. The key must be allowed to enqueue into the queue of the task.
    """
    use, why = current_service(), (body and body.reason) or ""
    done = use.cancelling.cancel(task_id(id), reason=why)
    done = replace(done, task=use.texts.shown(as_seen_by(principal(), done.task)))
    return cancelled_answer(done, now=use.now(), max_retries=use.queues.max_retries)


@routes.add("DELETE", "/v1/tasks/{id}", Permission.OPERATE, also={204: "The task is deleted."})
def delete_task(
    id: TaskInPath,
    if_not_inflight: Flag = "false",
    undo_in_seconds: UndoSeconds = 0,
    reason: WhyDeleted = None,
) -> DeletedTask | Reply:
    """Delete a task."""
    undo = current_service().tasks.delete(
        task_id(id),
        if_not_inflight=if_not_inflight == "true",
        undo_in_seconds=undo_in_seconds,
        reason=reason or "",
    )
    if undo is None:
        return Reply(None, 204)
    return DeletedTask(undo=undoable_answer(undo))


@routes.add("GET", "/v1/queues/{queue}/tasks", Permission.LIST)
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
    wanted = shows_payload(payload, by_default=False)
    page = use.inspect.list(
        queue,
        where.of_queue(queue),
        descending=order == "desc",
        limit=limit,
        cursor=cursor,
        payload=wanted,
    )
    page = page.as_seen_by(principal())
    return tasks_answer(page, now=use.now(), max_retries=use.queues.max_retries, payload=wanted)


@routes.add("GET", "/v1/queues/{queue}/count", Permission.READ)
def count_tasks(queue: QueueInPath, where: FilterQuery, cursor: Cursor = None) -> Count:
    """Count tasks.

    Counts the tasks that a list with the same filter would show. If one call cannot count them all,
    the answer is `partial`: each call counts other tasks, and the caller adds the numbers.
    """
    counted = current_service().inspect.count(queue, where.of_queue(queue), cursor=cursor)
    by_state = {state: counted.by_state.get(state, 0) for state in SHOWN_STATES}
    return Count.of(counted, by_state=by_state, exact=not counted.partial)
