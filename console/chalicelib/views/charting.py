"""The charts of a queue: what happened, how long tasks waited and ran, how many are waiting."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from console.chalicelib import charts, urls, words
from console.chalicelib.charts import Line
from console.chalicelib.pages.parts import Chart, Tab
from console.chalicelib.visit import Visit
from headrace.domain.histogram import Histogram
from headrace.domain.tally import Activity
from headrace.domain.task import Status
from headrace.domain.transitions import Event
from headrace.ops.metrics import Metrics
from headrace.ops.stats import QueueStats

SPAN: Final = "span"
_DAY: Final = "day"
_DAY_STEP: Final = 1800  # seconds
_EVENTS: Final = (Event.ENQUEUED, Event.STARTED, Event.SUCCEEDED, Event.FAILED)
_SHARES: Final = (("p50", 0.5), ("p99", 0.99))


def metrics_asked(visit: Visit, queue: str) -> Metrics:
    """Return the series that the address asks for: the last hour, or the last day."""
    if visit.request.asked(SPAN) != _DAY:
        return visit.use.stats.metrics(queue)
    since = _half_hour(visit.now) - timedelta(days=1) + timedelta(seconds=_DAY_STEP)
    return visit.use.stats.metrics(queue, since=since, step_seconds=_DAY_STEP)


def spans(visit: Visit, query: dict[str, object]) -> tuple[Tab, ...]:
    """Return the links to both lengths of time; *query* is what else the page was asked."""
    day = visit.request.asked(SPAN) == _DAY
    return tuple(
        Tab(text, visit.url(urls.QUEUE, {**query, SPAN: value}, queue=visit.queue), is_day is day)
        for text, value, is_day in (("Last hour", "", False), ("Last day", _DAY, True))
    )


def charts_of(metrics: Metrics, stats: QueueStats) -> tuple[Chart, ...]:
    """Return the four charts."""
    points = metrics.points
    activities = [point.activity for point in points]
    times = [f"{point.at:%H:%M}" for point in points]
    minutes = metrics.step_seconds // 60
    per = " a minute" if minutes == 1 else f" in {minutes} min"
    return (
        charts.chart(
            "Events",
            [
                Line(event.value, [activity.number(event) for activity in activities])
                for event in _EVENTS
            ],
            times=times,
            said=words.number,
            unit=per,
        ),
        _lengths("Wait", activities, times, lambda activity: activity.wait),
        _lengths("Run", activities, times, lambda activity: activity.run),
        charts.chart(
            "Waiting",
            [Line("ready or scheduled", backlog(activities, stats))],
            times=times,
            said=words.number,
            filled=True,
        ),
    )


def backlog(activities: Sequence[Activity], stats: QueueStats) -> Sequence[int]:
    """Return how many tasks were ENQUEUED at the end of each step: counted back from now."""
    waiting = stats.counts[Status.SCHEDULED] + stats.counts[Status.READY]
    found: list[int] = []
    for activity in reversed(activities):
        found.append(max(0, waiting))
        waiting -= activity.backlog
    return found[::-1]


def _lengths(
    title: str,
    activities: Sequence[Activity],
    times: Sequence[str],
    which: Callable[[Activity], Histogram],
) -> Chart:
    lines = [
        Line(name, [which(activity).percentile(share) for activity in activities])
        for name, share in _SHARES
    ]
    return charts.chart(title, lines, times=times, said=words.duration)


def _half_hour(at: datetime) -> datetime:
    return at.replace(minute=at.minute - at.minute % 30, second=0, microsecond=0)
