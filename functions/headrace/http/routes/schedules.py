"""Schedules: make or replace, show, delete, run now."""

from typing import Annotated, Final, TypeAlias
from urllib.parse import unquote

from aws_lambda_powertools.event_handler.openapi.params import Body, Path

from headrace.domain.access import Permission
from headrace.http import examples, views
from headrace.http.permissions import principal
from headrace.http.queue_bodies import ResumeBody
from headrace.http.routing import (
    Answered,
    QueueInPath,
    answers,
    json_answer,
    max_retries,
    new_router,
    no_body,
    queue_name,
)
from headrace.http.schedule_bodies import ScheduleBody
from headrace.runtime.wiring import use_cases

router: Final = new_router()
_TAGS: Final = ["Schedules"]

NameInPath: TypeAlias = Annotated[str, Path(description="The name of the schedule.")]


@router.put(
    "/v1/queues/<queue>/schedules/<name>",
    summary="Make or replace a schedule",
    description=(
        "What is left out takes its default. What GET shows may be sent back. Tasks are enqueued "
        "up to three minutes ahead; a change takes back those of the settings before that are not "
        "due yet, and no tick runs twice."
    ),
    tags=_TAGS,
    operation_id="put_schedule",
    responses=answers(200, "The schedule.", "Schedule"),
)
def put(
    queue: QueueInPath,
    name: NameInPath,
    body: Annotated[ScheduleBody, Body(openapi_examples=examples.PUT_SCHEDULE)],
) -> Answered:
    """Make or replace a schedule."""
    called = unquote(name)
    seen = use_cases().schedules.put(queue_name(queue), called, body.settings_of(called))
    return json_answer(views.schedule(seen, payload=True))


@router.get(
    "/v1/queues/<queue>/schedules/<name>",
    summary="Show a schedule",
    tags=_TAGS,
    operation_id="get_schedule",
    responses=answers(200, "The schedule.", "Schedule"),
)
def show(queue: QueueInPath, name: NameInPath) -> Answered:
    """Show a schedule."""
    seen = use_cases().schedules.get(queue_name(queue), unquote(name))
    return json_answer(views.schedule(seen, payload=principal().may(Permission.DETAILS)))


@router.delete(
    "/v1/queues/<queue>/schedules/<name>",
    summary="Delete a schedule and its tasks that are not due yet",
    tags=_TAGS,
    operation_id="delete_schedule",
    responses=answers(204, "The schedule is gone."),
)
def delete(queue: QueueInPath, name: NameInPath) -> Answered:
    """Delete a schedule."""
    use_cases().schedules.delete(queue_name(queue), unquote(name))
    return no_body(204)


@router.post(
    "/v1/queues/<queue>/schedules/<name>/run",
    summary="Enqueue a task of a schedule now",
    description="Paused or not. One result, as enqueue has it.",
    tags=_TAGS,
    operation_id="run_schedule",
    responses=answers(200, "What became of it.", "EnqueueResults"),
)
def run(
    queue: QueueInPath,
    name: NameInPath,
    body: Annotated[ResumeBody | None, Body()] = None,  # noqa: ARG001  it may only be empty
) -> Answered:
    """Enqueue a task now."""
    use = use_cases()
    result = use.schedules.run(queue_name(queue), unquote(name))
    return json_answer(views.enqueued([result], now=use.now(), max_retries=max_retries()))
