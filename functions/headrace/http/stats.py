"""The statistics of a queue, and its time series for charts."""

from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field

from headrace.domain import limits
from headrace.domain.access import Permission
from headrace.domain.task import Status
from headrace.history.series import (
    LONGEST_STEP_SECONDS,
    POINTS,
    STEP_SECONDS,
    MetricPoint,
)
from headrace.history.tally import COUNTED, Histogram
from headrace.http.fields import Instant
from headrace.http.parameters import Flag, QueueInPath
from headrace.http.routing import Alias, Routes
from headrace.ops.shared.group_limits import Blocking
from headrace.runtime.wiring import current_service
from headrace.wire import queues as queue_wire
from headrace.wire.base import instant

if TYPE_CHECKING:
    from headrace.history.stats import QueueStats

routes: Final = Routes("Stats")

_MICROSECONDS: Final = 6  # decimals of a second


_RATE: Final = 4


# ------------------------------------------------------------------------------------------ answers


def stats_answer(stats: "QueueStats") -> queue_wire.Stats:
    """Return the statistics of a queue."""
    rates = stats.rates
    return queue_wire.Stats(
        counts=queue_wire.Counts(
            **{status.value.lower(): stats.counts[status] for status in Status},
            cancelled=stats.cancelled,
        ),
        age_of_oldest_ready_seconds=_seconds(stats.age_of_oldest_ready),
        age_of_oldest_inflight_seconds=_seconds(stats.age_of_oldest_inflight),
        rates=queue_wire.Rates(
            enqueued_per_second=round(rates.enqueued, _RATE),
            dequeued_per_second=round(rates.dequeued, _RATE),
            succeeded_per_second=round(rates.succeeded, _RATE),
            failed_per_second=round(rates.failed, _RATE),
        ),
        as_of=instant(stats.as_of),
        staleness_seconds=round(stats.staleness, _MICROSECONDS),
        groups=None
        if stats.groups is None
        else [
            queue_wire.GroupInShort(
                group_key=one.group_key,
                turns=one.turns,
                age_of_oldest_seconds=round(one.age, _MICROSECONDS),
                dequeued_per_second=round(one.dequeued, _RATE),
                blocked=blocked_answer(one.blocked),
            )
            for one in stats.groups
        ],
        alerts=None
        if stats.alerts is None
        else [
            queue_wire.AlertOn(
                threshold=threshold,
                since=instant(alert.since),
                limit=alert.limit,
                value=round(alert.value, _MICROSECONDS),
            )
            for threshold, alert in stats.alerts.items()
        ],
    )


def blocked_answer(blocking: Blocking | None) -> queue_wire.Blocked | None:
    """Return why a group cannot have another task in flight, None if it can."""
    if blocking is None:
        return None
    until = None if blocking.until is None else instant(blocking.until)
    return queue_wire.Blocked(task_id=blocking.task_id, why=blocking.why, until=until)


def _point(point: MetricPoint) -> queue_wire.Point:
    activity = point.activity
    wait = Histogram() if activity is None else activity.wait
    run = Histogram() if activity is None else activity.run
    numbers = {
        event.value: None if activity is None else activity.number(event) for event in COUNTED
    }
    return queue_wire.Point(
        at=instant(point.at),
        **numbers,
        wait_p50=_seconds(wait.percentile(0.5)),
        wait_p99=_seconds(wait.percentile(0.99)),
        run_p50=_seconds(run.percentile(0.5)),
        run_p99=_seconds(run.percentile(0.99)),
    )


def _seconds(value: float | None) -> float | None:
    return None if value is None else round(value, _MICROSECONDS)


# ------------------------------------------------------------------------------------------- routes


@routes.add("GET", "/v1/queues/{queue}/stats", Permission.READ)
def get_stats(queue: QueueInPath, exact: Flag = "false") -> queue_wire.Stats:
    """Show the statistics of a queue.

    Counts, ages, rates, and the age of these numbers: the service counts from the stream of the
    table, a few seconds behind. `exact=true` counts the entries of the index and all dead tasks
    instead, which costs reading them. If a queue has more than one call can count (10,000 dead
    tasks), the numbers are still those of the stream, and `as_of` has their time.
    """
    stats = current_service().stats.of(queue, exact=exact == "true")
    return stats_answer(stats)


@routes.add(
    "GET",
    "/v1/queues/{queue}/metrics",
    Permission.READ,
    description="From the minute of `from` up to `to`, by default the last hour, at most "
    f"{limits.METRIC_DAYS} days. Steps are whole minutes; there are at most {POINTS} points. Days "
    "that the service no longer stores come from the lake, after their rollup.",
)
def get_metrics(
    queue: QueueInPath,
    since: Annotated[
        Instant | None, Alias("from"), Field(description="The default is an hour before the end.")
    ] = None,
    until: Annotated[Instant | None, Alias("to"), Field(description="The default is now.")] = None,
    step_seconds: Annotated[
        int,
        Field(
            description=f"A multiple of {STEP_SECONDS}.",
            examples=[STEP_SECONDS],
            json_schema_extra={
                "minimum": STEP_SECONDS,
                "maximum": LONGEST_STEP_SECONDS,
                "multipleOf": STEP_SECONDS,
            },
        ),
    ] = STEP_SECONDS,
) -> queue_wire.Metrics:
    """Show a time series of a queue."""
    series = current_service().stats.metrics(
        queue, since=since, until=until, step_seconds=step_seconds
    )
    return queue_wire.Metrics(
        points=[_point(point) for point in series.points],
        step_seconds=series.step_seconds,
        as_of=instant(series.as_of),
        staleness_seconds=round(series.staleness, _MICROSECONDS),
    )
