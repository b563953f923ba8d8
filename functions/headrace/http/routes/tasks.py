"""Tasks: enqueue, dequeue, report, show, delete, list, count."""

from typing import Annotated, Final, Literal

from aws_lambda_powertools.event_handler.openapi.params import Body, Query

from headrace.domain.filters import TaskFilter
from headrace.http import examples, views
from headrace.http.bodies import DequeueBody, EnqueueBody, ReportsBody
from headrace.http.routing import (
    Answered,
    Cursor,
    Flag,
    Limit,
    QueueInPath,
    StateFilter,
    TaskInPath,
    answers,
    json_answer,
    max_retries,
    new_router,
    no_body,
    queue_name,
    states,
    task_id,
)
from headrace.runtime.wiring import use_cases

router: Final = new_router()
_TAGS: Final = ["Tasks"]


@router.post(
    "/v1/queues/<queue>/tasks",
    summary="Enqueue tasks",
    description="Each entry on its own; one result for each, in their order.",
    tags=_TAGS,
    operation_id="enqueue",
    responses=answers(200, "One result for each entry.", "EnqueueResults"),
)
def enqueue(
    queue: QueueInPath, body: Annotated[EnqueueBody, Body(openapi_examples=examples.ENQUEUE)]
) -> Answered:
    """Enqueue tasks."""
    use = use_cases()
    results = use.tasks.enqueue(queue_name(queue), [entry.new_task() for entry in body.tasks])
    return json_answer(views.enqueued_json(results, now=use.now(), max_retries=max_retries()))


@router.post(
    "/v1/queues/<queue>/dequeue",
    summary="Lease tasks that are due",
    description="An empty answer is a success. Ask again after `poll_after_seconds`.",
    tags=_TAGS,
    operation_id="dequeue",
    responses=answers(200, "The tasks, each with its lease.", "Dequeued"),
)
def dequeue(
    queue: QueueInPath,
    body: Annotated[DequeueBody | None, Body(openapi_examples=examples.DEQUEUE)] = None,
) -> Answered:
    """Lease tasks."""
    asked = body or DequeueBody()
    found = use_cases().deliveries.dequeue(
        queue_name(queue),
        batch_size=asked.batch_size,
        wait_seconds=asked.wait_seconds,
        worker=asked.worker or "",
        keepalive=asked.keepalive_timeout_in_seconds,
    )
    return json_answer(views.dequeued_json(found, max_retries=max_retries()))


@router.post(
    "/v1/queues/<queue>/reports",
    summary="Report on leased tasks",
    description="Each report on its own; one result for each, in their order. Safe to repeat.",
    tags=_TAGS,
    operation_id="report",
    responses=answers(200, "One result for each report.", "ReportResults"),
)
def report(
    queue: QueueInPath, body: Annotated[ReportsBody, Body(openapi_examples=examples.REPORT)]
) -> Answered:
    """Report on tasks."""
    use = use_cases()
    reports = [entry.report() for entry in body.reports]
    results = use.reports.report(queue_name(queue), reports)
    return json_answer(views.reported_json(reports, results, use.now()))


@router.get(
    "/v1/tasks/<id>",
    summary="Show a task",
    tags=_TAGS,
    operation_id="get_task",
    responses=answers(200, "The task.", "Task"),
)
def show(id: TaskInPath, payload: Flag = "true") -> Answered:
    """Show a task."""
    use = use_cases()
    task = use.tasks.get(task_id(id))
    wanted = payload == "true"
    return json_answer(
        views.task_json(task, now=use.now(), max_retries=max_retries(), payload=wanted)
    )


@router.delete(
    "/v1/tasks/<id>",
    summary="Delete a task",
    tags=_TAGS,
    operation_id="delete_task",
    responses=answers(204, "The task is gone."),
)
def delete(id: TaskInPath, if_not_inflight: Flag = "false") -> Answered:
    """Delete a task."""
    use_cases().tasks.delete(task_id(id), if_not_inflight=if_not_inflight == "true")
    return no_body(204)


@router.get(
    "/v1/queues/<queue>/tasks",
    summary="List tasks",
    description=(
        "State after state (ENQUEUED, INFLIGHT, DEAD, SUCCEEDED), by time within each: "
        "due, end of the lease as first granted, finish."
    ),
    tags=_TAGS,
    operation_id="list_tasks",
    responses=answers(200, "A page of tasks.", "Tasks"),
)
def list_tasks(
    queue: QueueInPath,
    state: StateFilter = None,
    order: Annotated[Literal["asc", "desc"], Query(description="By time.")] = "asc",
    limit: Limit = 50,
    cursor: Cursor = None,
    payload: Flag = "false",
) -> Answered:
    """List tasks."""
    use = use_cases()
    wanted = payload == "true"
    page = use.inspect.list(
        queue_name(queue),
        TaskFilter(states=states(state)),
        descending=order == "desc",
        limit=limit,
        cursor=cursor,
        payload=wanted,
    )
    return json_answer(
        views.tasks_json(page, now=use.now(), max_retries=max_retries(), payload=wanted)
    )


@router.get(
    "/v1/queues/<queue>/count",
    summary="Count tasks",
    tags=_TAGS,
    operation_id="count_tasks",
    responses=answers(200, "How many there are.", "Count"),
)
def count(queue: QueueInPath, state: StateFilter = None) -> Answered:
    """Count tasks."""
    counted = use_cases().inspect.count(queue_name(queue), TaskFilter(states=states(state)))
    return json_answer(views.counted_json(counted))
