"""Bulk actions: delete, restart, run, move and cancel tasks by ids or by filter."""

from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field, model_validator

from headrace.domain import limits
from headrace.domain.access import Permission
from headrace.domain.operate import BulkAction
from headrace.http.fields import (
    CURSOR_LENGTH,
    Examples,
    Name,
    Reason,
    RequestBody,
    TaskId,
    UndoFor,
    contradiction,
    example,
)
from headrace.http.parameters import FilterBody, QueueInPath
from headrace.http.queue_bodies import FIRST_STEP, StepBody
from headrace.http.routing import Routes
from headrace.http.tasks import undoable_answer
from headrace.runtime.wiring import current_service
from headrace.wire import tasks as task_wire
from headrace.wire.base import LEFT_OUT

if TYPE_CHECKING:
    from headrace.ops.operators.bulk import BulkAnswer

routes: Final = Routes("Bulk actions")
_HOW: Final = (
    "Each task is changed on its own, in one atomic write. A repeated call changes no task twice. "
    "If the answer to a filter has a `cursor`, more tasks may follow: send the same filter with "
    "the cursor to continue."
)


class BulkBody(RequestBody):
    """The tasks of a bulk action: exactly one of ids and filter."""

    ids: Annotated[list[TaskId], Field(min_length=1, max_length=limits.BULK_IDS)] | None = Field(
        default=None, description="The answer has one result for each, in this order."
    )
    filter: FilterBody | None = Field(
        default=None, description="Instead of ids; `{}` is every task that the action can take."
    )
    limit: Annotated[int, Field(ge=1, le=limits.BULK_TASKS)] | None = Field(
        default=None, description="With a filter: the most tasks to act on."
    )
    cursor: Annotated[str, Field(max_length=CURSOR_LENGTH)] | None = Field(
        default=None, description="With a filter: the cursor of the last answer."
    )
    dry_run: bool = Field(default=False, description="Only show what the call would change.")
    reason: Reason | None = None

    @model_validator(mode="after")
    def _goes_together(self) -> "BulkBody":
        if (self.ids is None) == (self.filter is None):
            raise contradiction("give exactly one of ids and filter", "ids", "filter")
        if self.filter is not None:
            return self
        misplaced = [name for name in ("limit", "cursor") if getattr(self, name) is not None]
        if misplaced:
            raise contradiction("has no meaning with ids", *misplaced)
        return self


class DeleteBody(BulkBody):
    """The tasks to delete, and how long an undo can restore them."""

    undo_in_seconds: UndoFor = 0
    undo_id: Annotated[str, Field(max_length=limits.UNDO_ID)] | None = Field(
        default=None,
        description="With ids: the undo of an earlier call, which then restores these tasks too.",
    )

    @model_validator(mode="after")
    def _one_undo(self) -> "DeleteBody":
        if self.undo_id is None:
            return self
        if self.undo_in_seconds:
            raise contradiction(
                "give at most one of undo_in_seconds and undo_id", "undo_in_seconds", "undo_id"
            )
        if self.filter is not None:
            raise contradiction(
                "has no meaning with filter, whose cursor knows its undo", "undo_id"
            )
        return self


class MoveBody(BulkBody):
    """The tasks to move, and the queue that they are moved to."""

    to_queue: Name = Field(description="Another queue.")


_IDS: Final = {"ids": ["tsk_01kc5m3v0e8x2r7n4q9w6y1z0a", "invoice-2026-0042"]}
DELETE_TASKS: Final[Examples] = {
    "ids": example("Two tasks", _IDS),
    "undo": example(
        "All dead tasks, which an undo can restore for a day",
        {"filter": {"state": "DEAD"}, "undo_in_seconds": 86400},
    ),
    "dry_run": example(
        "Count the dead tasks of one service",
        {"filter": {"state": "DEAD", "tags": {"service": "billing"}}, "dry_run": True},
    ),
}
RESTART_TASKS: Final[Examples] = {
    "dead": example(
        "All dead tasks whose last error was a timeout",
        {"filter": {"state": "DEAD", "error": "timeout"}},
    ),
    "replay": example(
        "A thousand of the tasks that succeeded since eight o'clock",
        {
            "filter": {"state": "SUCCEEDED", "scheduled_after": "2026-11-21T08:00:00Z"},
            "limit": 1000,
        },
    ),
}
RUN_TASKS: Final[Examples] = {"all": example("All waiting tasks", {"filter": {}})}
CANCEL_TASKS: Final[Examples] = {
    "ids": example("Two tasks", _IDS),
    "tags": example("All tasks of one customer", {"filter": {"tags": {"customer": "acme"}}}),
}
MOVE_TASKS: Final[Examples] = {
    "dead": example(
        "Move dead tasks aside", {"filter": {"state": "DEAD"}, "to_queue": "ngsi.quarantine"}
    ),
    "ids": example("Two tasks", {**_IDS, "to_queue": "ngsi.quarantine"}),
}


# ------------------------------------------------------------------------------------------ answers


def bulk_answer(answer: "BulkAnswer") -> task_wire.Bulk:
    """Return the outcome for each task."""
    results = [task_wire.BulkResult.of(one) for one in answer.results]
    undo = LEFT_OUT if answer.undo is None else undoable_answer(answer.undo)
    return task_wire.Bulk.of(answer, results=results, undo=undo)


# ------------------------------------------------------------------------------------------- routes


@routes.add(
    "POST",
    "/v1/queues/{queue}/tasks/delete",
    Permission.OPERATE,
    description=_HOW,
    examples=DELETE_TASKS,
)
def delete_tasks(queue: QueueInPath, body: DeleteBody) -> task_wire.Bulk:
    """Delete tasks.

    Takes tasks in every state. With `undo_in_seconds`, the `undo` of the answer can restore the
    tasks until then: one undo for all pages of a cursor, and with `undo_id` for several calls by
    ids. It costs one more write unit for each task.
    """
    return _carry_out(
        BulkAction.DELETE,
        queue,
        body,
        undo_in_seconds=body.undo_in_seconds,
        undo_id=body.undo_id,
    )


@routes.add("POST", "/v1/undos/{id}", Permission.OPERATE, examples=FIRST_STEP)
def undo(
    id: Annotated[str, Field(description="The undo id of the deletion's answer.")],
    body: StepBody | None = None,
) -> task_wire.Bulk:
    """Restore deleted tasks.

    Restores the tasks that one call deleted with `undo_in_seconds`. Waiting tasks wait again, tasks
    in flight are due now with their attempts, finished tasks are finished again. A task is SKIPPED
    if its retention has ended, or if another task has its id or its dedupe key. If the answer has a
    `cursor`, more tasks may follow: send the cursor to continue. A repeat changes nothing, but it
    finds tasks that a lagging index did not show before. 404: the undo is unknown or has expired,
    or the queue was deleted.
    """
    cursor = body.cursor if body else None
    return bulk_answer(current_service().undos.undo(id, cursor=cursor))


@routes.add(
    "POST",
    "/v1/queues/{queue}/tasks/restart",
    Permission.OPERATE,
    description=_HOW,
    examples=RESTART_TASKS,
)
def restart_tasks(queue: QueueInPath, body: BulkBody) -> task_wire.Bulk:
    """Restart finished tasks.

    Takes DEAD tasks, and SUCCEEDED tasks (a replay). They start again and keep their errors.
    """
    return _carry_out(BulkAction.RESTART, queue, body)


@routes.add(
    "POST", "/v1/queues/{queue}/tasks/run", Permission.OPERATE, description=_HOW, examples=RUN_TASKS
)
def run_tasks(queue: QueueInPath, body: BulkBody) -> task_wire.Bulk:
    """Make waiting tasks due now.

    Attempts and expiry do not change.
    """
    return _carry_out(BulkAction.RUN, queue, body)


@routes.add(
    "POST",
    "/v1/queues/{queue}/tasks/move",
    Permission.OPERATE,
    description=_HOW,
    examples=MOVE_TASKS,
)
def move_tasks(queue: QueueInPath, body: MoveBody) -> task_wire.Bulk:
    """Move tasks to another queue.

    Waiting tasks keep their due time. Dead tasks are due now.
    """
    return _carry_out(BulkAction.MOVE, queue, body, to_queue=body.to_queue)


@routes.add(
    "POST",
    "/v1/queues/{queue}/tasks/cancel",
    Permission.CANCEL,
    description=_HOW,
    examples=CANCEL_TASKS,
)
def cancel_tasks(queue: QueueInPath, body: BulkBody) -> task_wire.Bulk:
    """Cancel tasks.

    Takes waiting tasks and tasks in flight. They are DEAD with the reason `cancelled`.
    """
    return _carry_out(BulkAction.CANCEL, queue, body)


def _carry_out(
    action: BulkAction,
    queue: str,
    body: BulkBody,
    *,
    to_queue: str | None = None,
    undo_in_seconds: float = 0,
    undo_id: str | None = None,
) -> task_wire.Bulk:
    bulk = current_service().bulk
    if body.filter is None:
        done = bulk.by_ids(
            queue,
            action,
            body.ids or (),
            to_queue=to_queue,
            dry_run=body.dry_run,
            undo_in_seconds=undo_in_seconds,
            undo_id=undo_id,
            reason=body.reason or "",
        )
    else:
        done = bulk.by_filter(
            queue,
            action,
            body.filter.task_filter(),
            to_queue=to_queue,
            limit=body.limit,
            cursor=body.cursor,
            dry_run=body.dry_run,
            undo_in_seconds=undo_in_seconds,
            reason=body.reason or "",
        )
    return bulk_answer(done)
