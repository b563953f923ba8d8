"""How a queue is doing: a glance, and a series for charts."""

from typing import Annotated, Final

from aws_lambda_powertools.event_handler.openapi.params import Query

from headrace.history.metrics import DAYS, POINTS, STEP_SECONDS
from headrace.http import views
from headrace.http.fields import Instant
from headrace.http.routing import (
    Answered,
    Flag,
    QueueInPath,
    answers,
    json_answer,
    new_router,
    queue_name,
)
from headrace.runtime.wiring import use_cases

router: Final = new_router()
_TAGS: Final = ["Stats"]


@router.get(
    "/v1/queues/<queue>/stats",
    summary="Show how a queue is doing",
    description=(
        "Counts, ages, rates, and how old they are: the service counts from the table's stream, a "
        "few seconds behind. `exact=true` counts every entry of the index instead, which costs "
        "reading it; of a queue with more than one call can count, the figures are those of the "
        "stream, and `as_of` says how old."
    ),
    tags=_TAGS,
    operation_id="get_stats",
    responses=answers(200, "The queue at a glance.", "Stats"),
)
def glance(queue: QueueInPath, exact: Flag = "false") -> Answered:
    """Show how a queue is doing."""
    stats = use_cases().stats.of(queue_name(queue), exact=exact == "true")
    return json_answer(views.queue_stats(stats))


@router.get(
    "/v1/queues/<queue>/metrics",
    summary="Show what happened in a queue, step by step",
    description=(
        "From the minute of `from` up to `to`, the last hour by default. "
        f"{DAYS} days are the most. Steps are whole minutes, and at most {POINTS} in number. "
        "Days that the service no longer has come from the lake, once they are rolled up."
    ),
    tags=_TAGS,
    operation_id="get_metrics",
    responses=answers(200, "The series.", "Metrics"),
)
def series(
    queue: QueueInPath,
    since: Annotated[
        Instant | None, Query(alias="from", description="Left out: an hour before the end.")
    ] = None,
    until: Annotated[Instant | None, Query(alias="to", description="Left out: now.")] = None,
    step_seconds: Annotated[
        int, Query(description=f"A multiple of {STEP_SECONDS}.", examples=[STEP_SECONDS])
    ] = STEP_SECONDS,
) -> Answered:
    """Show what happened in a queue."""
    metrics = use_cases().stats.metrics(
        queue_name(queue), since=since, until=until, step_seconds=step_seconds
    )
    return json_answer(views.metrics(metrics))
