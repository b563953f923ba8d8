"""Queues: create, list, show, replace, delete, pause, resume, purge."""

from typing import Annotated, Final

from aws_lambda_powertools.event_handler.openapi.params import Body, Query

from headrace.http import examples, views
from headrace.http.permissions import principal
from headrace.http.queue_bodies import (
    CreateQueueBody,
    PauseBody,
    PurgeBody,
    RecountBody,
    ReplaceQueueBody,
    ResumeBody,
)
from headrace.http.routing import (
    Answered,
    Cursor,
    Limit,
    QueueInPath,
    answers,
    json_answer,
    new_router,
    no_body,
    queue_name,
)
from headrace.ops.operators import visibility
from headrace.runtime.wiring import use_cases

router: Final = new_router()
_TAGS: Final = ["Queues"]
_BACKGROUND: Final = "It goes on in the background."


@router.post(
    "/v1/queues",
    summary="Create a queue",
    tags=_TAGS,
    operation_id="create_queue",
    responses=answers(201, "The queue.", "Queue"),
)
def create(
    body: Annotated[CreateQueueBody, Body(openapi_examples=examples.CREATE_QUEUE)],
) -> Answered:
    """Create a queue."""
    queue = use_cases().queues.create(body.name, body.settings())
    return json_answer(views.queue(queue), 201)


@router.get(
    "/v1/queues",
    summary="List queues by name",
    description="Those that the key is for.",
    tags=_TAGS,
    operation_id="list_queues",
    responses=answers(200, "A page of queues.", "Queues"),
)
def list_queues(
    prefix: Annotated[str, Query(description="Only names that begin so.", max_length=128)] = "",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Answered:
    """List queues."""
    every = use_cases().queues
    page = visibility.queues(every, principal(), prefix=prefix, limit=limit, cursor=cursor)
    return json_answer(views.queues(page))


@router.get(
    "/v1/queues/<queue>",
    summary="Show a queue",
    tags=_TAGS,
    operation_id="get_queue",
    responses=answers(200, "The queue, how it is doing, and its schedules.", "QueueInFull"),
)
def show(queue: QueueInPath) -> Answered:
    """Show a queue."""
    use = use_cases()
    found = use.queues.get(queue_name(queue))
    schedules = use.schedules.of_queue(found)
    return json_answer(views.queue(found, use.stats.of(found.name), schedules))


@router.put(
    "/v1/queues/<queue>",
    summary="Replace a queue's settings",
    description="What is left out takes its default. What GET shows may be sent back.",
    tags=_TAGS,
    operation_id="replace_queue",
    responses=answers(200, "The queue.", "Queue"),
)
def replace(
    queue: QueueInPath,
    body: Annotated[ReplaceQueueBody, Body(openapi_examples=examples.REPLACE_QUEUE)],
) -> Answered:
    """Replace settings."""
    name = queue_name(queue)
    changed = use_cases().queues.replace(name, body.settings_of(name), version=body.version)
    return json_answer(views.queue(changed))


@router.delete(
    "/v1/queues/<queue>",
    summary="Delete a queue with all its tasks",
    tags=_TAGS,
    operation_id="delete_queue",
    responses=answers(204, "The queue and its tasks are gone.", also_202=_BACKGROUND),
)
def delete(queue: QueueInPath) -> Answered:
    """Delete a queue."""
    finished = use_cases().queues.delete(queue_name(queue))
    return no_body(204 if finished else 202)


@router.post(
    "/v1/queues/<queue>/pause",
    summary="Pause deliveries",
    description="Leases end and tasks expire as before.",
    tags=_TAGS,
    operation_id="pause_queue",
    responses=answers(200, "The queue.", "Queue"),
)
def pause(
    queue: QueueInPath,
    body: Annotated[PauseBody | None, Body(openapi_examples=examples.PAUSE)] = None,
) -> Answered:
    """Pause a queue."""
    seconds = body.resume_in_seconds if body else None
    changed = use_cases().queues.pause(queue_name(queue), resume_in_seconds=seconds)
    return json_answer(views.queue(changed))


@router.post(
    "/v1/queues/<queue>/resume",
    summary="Resume deliveries",
    tags=_TAGS,
    operation_id="resume_queue",
    responses=answers(200, "The queue.", "Queue"),
)
def resume(queue: QueueInPath, body: Annotated[ResumeBody | None, Body()] = None) -> Answered:  # noqa: ARG001  it may only be empty
    """Resume a queue."""
    return json_answer(views.queue(use_cases().queues.resume(queue_name(queue))))


@router.post(
    "/v1/queues/<queue>/purge",
    summary="Remove all tasks of some states",
    tags=_TAGS,
    operation_id="purge_queue",
    responses=answers(200, "All are gone.", "Purged", also_202=_BACKGROUND),
)
def purge(
    queue: QueueInPath, body: Annotated[PurgeBody, Body(openapi_examples=examples.PURGE)]
) -> Answered:
    """Purge a queue."""
    purged = use_cases().queues.purge(queue_name(queue), body.chosen())
    return json_answer(views.purged(purged), 200 if purged.finished else 202)


@router.post(
    "/v1/queues/<queue>/recount",
    summary="Count a queue anew and mend its counters",
    description=(
        "For when the recorder was away for longer than the stream keeps its changes. Each call "
        "counts for some seconds; while there is a `cursor`, send it for the next step. The last "
        "one mends the counters, which are true once the recorder has come to everything, however "
        "far it is behind. A task that changes in the very second in which it is counted may be "
        "missed or counted twice. A recount that nobody goes on with for an hour changes nothing."
    ),
    tags=_TAGS,
    operation_id="recount_queue",
    responses=answers(200, "What it has come to.", "Recount"),
)
def recount(
    queue: QueueInPath,
    body: Annotated[RecountBody | None, Body(openapi_examples=examples.RECOUNT)] = None,
) -> Answered:
    """Count a queue anew."""
    cursor = body.cursor if body else None
    step = use_cases().recounting.step(queue_name(queue), cursor)
    return json_answer(views.recount(step))
