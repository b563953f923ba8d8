"""The charts of a queue: what happened, how long tasks waited and ran, how many are waiting."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from headrace.domain.task import Status
from headrace.history.metrics import STEP_SECONDS, MetricSeries
from headrace.history.stats import QueueStats
from headrace.history.tally import Activity, Histogram
from headrace.history.transitions import Event

from .. import charts, formatting, urls
from ..charts import Chart, ChartLine
from ..parts import Tab
from ..request_context import RequestContext

SPAN: Final = "span"
_EVENTS: Final = (Event.ENQUEUED, Event.STARTED, Event.SUCCEEDED, Event.FAILED)
_SHARES: Final = (("p50", 0.5), ("p99", 0.99))


@dataclass(frozen=True, slots=True)
class _Span:
    """How far back, in steps of how many seconds; ``times`` is how steps are named."""

    name: str
    back: timedelta
    step: int
    times: str = "%H:%M"

    def begin(self, now: datetime) -> datetime:
        """Return where the first step begins, so that the last one ends at *now* or after."""
        end = math.ceil(now.timestamp() / self.step) * self.step
        return datetime.fromtimestamp(end, UTC) - self.back


_SPANS: Final[Mapping[str, _Span]] = {
    "": _Span("Last hour", timedelta(hours=1), 60),
    "day": _Span("Last day", timedelta(days=1), 1_800),
    "week": _Span("Last week", timedelta(days=7), 7_200, "%d %b %H:%M"),
    "month": _Span("Last month", timedelta(days=30), 43_200, "%d %b %H:%M"),
}


def wanted_metrics(context: RequestContext, queue: str) -> MetricSeries:
    """Return the series that the address asks for; the last hour if none."""
    span = _wanted_span(context)
    since = span.begin(context.now)
    return context.use.stats.metrics(queue, since=since, step_seconds=span.step)


def spans(context: RequestContext, query: dict[str, object]) -> tuple[Tab, ...]:
    """Return the links to each length of time; *query* is the rest of the page's query."""
    wanted = _wanted_span(context)
    return tuple(
        Tab(
            span.name,
            context.url(urls.QUEUE, {**query, SPAN: value}, queue=context.queue),
            span is wanted,
        )
        for value, span in _SPANS.items()
    )


def gaps(metrics: MetricSeries) -> bool:
    """Tell whether something is missing."""
    return any(point.activity is None for point in metrics.points)


def charts_of(metrics: MetricSeries, stats: QueueStats) -> tuple[Chart, ...]:
    """Return the four charts, and one of what is dead where there is any."""
    points = metrics.points
    activities = [point.activity for point in points]
    named = next(span.times for span in _SPANS.values() if span.step == metrics.step_seconds)
    times = [point.at.strftime(named) for point in points]
    minute = metrics.step_seconds == STEP_SECONDS
    per = " a minute" if minute else f" in {formatting.duration(metrics.step_seconds)}"
    return (
        charts.chart(
            "Events",
            [_events(activities, event) for event in _EVENTS],
            times=times,
            format_value=formatting.number,
            unit=per,
        ),
        _lengths("Wait", activities, times, lambda activity: activity.wait),
        _lengths("Run", activities, times, lambda activity: activity.run),
        charts.chart(
            "Waiting",
            [ChartLine("ready or scheduled", backlog(activities, stats))],
            times=times,
            format_value=formatting.number,
            filled=True,
        ),
        *_dead(activities, times, per),
    )


def _events(
    activities: Sequence[Activity | None], event: Event, style: str | None = None
) -> ChartLine:
    values = [None if one is None else one.number(event) for one in activities]
    return ChartLine(event.value, values, style)


def _dead(
    activities: Sequence[Activity | None], times: Sequence[str], per: str
) -> tuple[Chart, ...]:
    """Return the chart of what died, and beside it what was cancelled, which is no failure."""
    lines = [
        _events(activities, Event.DEAD, charts.LOUD),
        _events(activities, Event.CANCELLED, "dashed"),
    ]
    if not any(value for line in lines for value in line.values):
        return ()
    return (charts.chart("Dead", lines, times=times, format_value=formatting.number, unit=per),)


def backlog(activities: Sequence[Activity | None], stats: QueueStats) -> Sequence[int | None]:
    """Return how many tasks were ENQUEUED at the end of each step: counted back from now.

    Before a step that nothing is known of, nothing is known.
    """
    waiting: int | None = stats.counts[Status.SCHEDULED] + stats.counts[Status.READY]
    found: list[int | None] = []
    for activity in reversed(activities):
        found.append(None if waiting is None else max(0, waiting))
        waiting = None if waiting is None or activity is None else waiting - activity.backlog
    return found[::-1]


def _lengths(
    title: str,
    activities: Sequence[Activity | None],
    times: Sequence[str],
    which: Callable[[Activity], Histogram],
) -> Chart:
    lines = [
        ChartLine(
            name, [None if one is None else which(one).percentile(share) for one in activities]
        )
        for name, share in _SHARES
    ]
    return charts.chart(title, lines, times=times, format_value=formatting.duration)


def _wanted_span(context: RequestContext) -> _Span:
    return _SPANS.get(context.request.param(SPAN), _SPANS[""])
