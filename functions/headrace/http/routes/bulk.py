"""Bulk actions of operators: delete, restart, run now and move tasks by ids or by filter."""

from typing import Annotated, Final

from aws_lambda_powertools.event_handler.openapi.params import Body

from headrace.domain.operate import BulkAction
from headrace.http import examples, views
from headrace.http.bulk_bodies import BulkBody, MoveBody
from headrace.http.routing import (
    Answered,
    QueueInPath,
    answers,
    json_answer,
    new_router,
    queue_name,
)
from headrace.runtime.wiring import use_cases

router: Final = new_router()
_TAGS: Final = ["Bulk actions"]
_HOW: Final = (
    " Each task on its own and atomically; repeating a call never does a thing twice. With a "
    "filter, an answer with a `cursor` has not seen every task yet: send the same filter with it "
    "to go on."
)
_DONE: Final = answers(200, "How many there were and what became of them.", "BulkDone")


@router.post(
    "/v1/queues/<queue>/tasks/delete",
    summary="Delete tasks",
    description="In whatever state." + _HOW,
    tags=_TAGS,
    operation_id="delete_tasks",
    responses=_DONE,
)
def delete(
    queue: QueueInPath, body: Annotated[BulkBody, Body(openapi_examples=examples.DELETE_TASKS)]
) -> Answered:
    """Delete tasks."""
    return _carry_out(BulkAction.DELETE, queue, body)


@router.post(
    "/v1/queues/<queue>/tasks/restart",
    summary="Restart tasks that are finished",
    description="DEAD ones, or SUCCEEDED ones: a replay. They begin anew, errors kept." + _HOW,
    tags=_TAGS,
    operation_id="restart_tasks",
    responses=_DONE,
)
def restart(
    queue: QueueInPath, body: Annotated[BulkBody, Body(openapi_examples=examples.RESTART_TASKS)]
) -> Answered:
    """Restart tasks."""
    return _carry_out(BulkAction.RESTART, queue, body)


@router.post(
    "/v1/queues/<queue>/tasks/run",
    summary="Make waiting tasks due now",
    description="Attempts and expiry stay as they are." + _HOW,
    tags=_TAGS,
    operation_id="run_tasks",
    responses=_DONE,
)
def run(
    queue: QueueInPath, body: Annotated[BulkBody, Body(openapi_examples=examples.RUN_TASKS)]
) -> Answered:
    """Make tasks due."""
    return _carry_out(BulkAction.RUN, queue, body)


@router.post(
    "/v1/queues/<queue>/tasks/move",
    summary="Move tasks to another queue",
    description="Waiting ones keep their due time, dead ones are due now." + _HOW,
    tags=_TAGS,
    operation_id="move_tasks",
    responses=_DONE,
)
def move(
    queue: QueueInPath, body: Annotated[MoveBody, Body(openapi_examples=examples.MOVE_TASKS)]
) -> Answered:
    """Move tasks."""
    return _carry_out(BulkAction.MOVE, queue, body, to_queue=body.to_queue)


def _carry_out(
    action: BulkAction, queue: str, body: BulkBody, *, to_queue: str | None = None
) -> Answered:
    name, bulk = queue_name(queue), use_cases().bulk
    if body.filter is None:
        done = bulk.by_ids(name, action, body.ids or (), to_queue=to_queue, dry_run=body.dry_run)
    else:
        done = bulk.by_filter(
            name,
            action,
            body.filter.task_filter(),
            to_queue=to_queue,
            limit=body.limit,
            cursor=body.cursor,
            dry_run=body.dry_run,
        )
    return json_answer(views.bulk(done))
