"""The answers about tasks, and the outcomes of requests for tasks.

Payloads, results and progress are in them exactly as they came, without being parsed again.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from headrace.domain.ids import shown_lease
from headrace.domain.limits import AnswerRoom
from headrace.domain.operate import Undo
from headrace.domain.task import SHOWN_STATES, Task
from headrace.ops.delivery.reports import ReportOutcome, ReportStatus
from headrace.store.call_scope import current_actor
from headrace.wire import tasks as task_wire
from headrace.wire.base import (
    LEFT_OUT,
    MaxRetries,
    Written,
    instant,
    raw,
    task_members,
    to_json,
    word,
)

if TYPE_CHECKING:
    from headrace.ops.delivery.dequeue import DequeueResult
    from headrace.ops.delivery.reports import ReportResult, TaskReport
    from headrace.ops.tasks.cancel import CancelResult
    from headrace.ops.tasks.enqueue import EnqueueResult
    from headrace.ops.tasks.explain import NotRunningReason
    from headrace.ops.tasks.inspect import Counted, TaskListing


def task_answer(
    task: Task, *, now: datetime, max_retries: MaxRetries, payload: bool = True
) -> task_wire.Task:
    """Return the answer about a task at *now*."""
    return task_wire.Task(**_members(task, now, max_retries, payload=payload))


def cancelled_answer(
    result: "CancelResult", *, now: datetime, max_retries: MaxRetries
) -> task_wire.CancelledTask:
    """Return a cancelled task with its payload; the state is null if the task is not kept."""
    members = _members(result.task, now, max_retries, payload=True)
    if not result.kept:
        members["state"] = None
    return task_wire.CancelledTask(**members)


def _members(
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


def enqueued_answer(
    results: Iterable["EnqueueResult"], *, now: datetime, max_retries: MaxRetries
) -> task_wire.EnqueueResults:
    """Return the outcome of each entry of an enqueue."""
    shown = []
    room = AnswerRoom()
    for result in results:
        made: Written = None
        if result.task is not None:
            text = to_json(
                task_answer(result.task, now=now, max_retries=max_retries, payload=False)
            )
            if room.takes(text):  # tasks made long ago may have results and errors
                made = raw(text)
        shown.append(
            task_wire.Enqueued(
                outcome=word(result.outcome),
                id=result.id,
                task=made,
                queue=result.queue,
                detail=result.detail,
            )
        )
    return task_wire.EnqueueResults(results=shown)


def dequeued_answer(found: "DequeueResult", *, max_retries: MaxRetries) -> task_wire.Dequeued:
    """Return the leased tasks."""
    leased = [
        task_wire.LeasedTask(
            **_members(task, found.now, max_retries, payload=True), lease=_lease(task)
        )
        for task in found.tasks
    ]
    return task_wire.Dequeued(
        tasks=leased, now=instant(found.now), poll_after_seconds=found.poll_after_seconds
    )


def reported_answer(
    reports: Iterable["TaskReport"], results: Iterable["ReportResult"], now: datetime
) -> task_wire.ReportResults:
    """Return the outcome of each report."""
    return task_wire.ReportResults(
        results=[
            _reported(report, result) for report, result in zip(reports, results, strict=True)
        ],
        now=instant(now),
    )


def _reported(report: "TaskReport", result: "ReportResult") -> task_wire.Reported:
    task, done = result.task, result.outcome is ReportOutcome.OK
    beats = done and report.status is ReportStatus.INFLIGHT
    over = task if result.outcome is ReportOutcome.NOT_INFLIGHT else None
    return task_wire.Reported(
        task_id=result.task_id,
        outcome=word(result.outcome),
        state=None if task is None else task.place.state,
        scheduled_at=None if task is None else instant(task.due_at),
        lease=_lease(task) if task is not None and beats else None,
        spawned=[
            task_wire.Spawned(outcome=word(child.outcome), id=child.id) for child in result.spawned
        ],
        detail=result.detail,
        dead_reason=LEFT_OUT if over is None or not over.dead_reason else word(over.dead_reason),
        now=LEFT_OUT,
    )


def count_answer(counted: "Counted") -> task_wire.Count:
    """Return the number of tasks."""
    by_state = {state: counted.by_state.get(state, 0) for state in SHOWN_STATES}
    return task_wire.Count.of(counted, by_state=by_state, exact=not counted.partial)


def explained_answer(reasons: Iterable["NotRunningReason"]) -> task_wire.Explained:
    """Return the reasons why a task is not running."""
    return task_wire.Explained(reasons=[task_wire.Reason.of(reason) for reason in reasons])


def _lease(task: Task) -> task_wire.Lease:
    return task_wire.Lease(id=shown_lease(task), expires_at=instant(task.lease_expires_at))


def _trail(task: Task) -> list[task_wire.Hop]:
    if not task.trail:
        return []
    by = current_actor()
    return [
        task_wire.Hop(queue=by.shown(hop.queue) if by else hop.queue, at=instant(hop.at))
        for hop in task.trail
    ]
