"""The charts of a queue: what happened, how long tasks waited and ran, how many are waiting."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from headrace.domain.access import Permission
from headrace.domain.task import Status
from headrace.domain.transitions import Event
from headrace.history.series import STEP_SECONDS, MetricSeries
from headrace.history.stats import QueueStats
from headrace.history.tally import Activity, Histogram
from headrace.ops.shared.audit import AuditFilter

from .. import charts
from ..charts import Chart, ChartLine, Mark
from ..forms import FormErrors
from ..request_context import RequestContext
from . import spans
from .spans import Period

if TYPE_CHECKING:
    from headrace.history.listening import OnDuty

_EVENTS: Final = (Event.ENQUEUED, Event.STARTED, Event.SUCCEEDED, Event.FAILED)
_SHARES: Final = (("p50", 0.5), ("p99", 0.99))
_MARKED: Final = {
    "pause": ("pause", "paused"),
    "resume": ("pause", "resumed"),
    "update_queue": ("edit", "settings edited"),
    "purge": ("edit", "purged"),
}
"""The marked actions of the audit, each with the kind of its mark and its name."""

_MARKS: Final = 20
_DAY: Final = 86_400  # seconds


@dataclass(frozen=True, slots=True)
class MarkNote:
    """A mark of the charts in words."""

    kind: str
    text: str
    at: datetime


def drawn(
    context: RequestContext, stats: QueueStats, on_duty: "OnDuty", query: dict[str, object]
) -> Mapping[str, object]:
    """Return the charts that the address asks for, the links to other times, and what is marked.

    *query* is the rest of the page's.
    """
    errors = FormErrors()
    period = Period.wanted(context, errors)
    series = _series(context, period)
    against = spans.compared(context, period)
    called, before = ("", None) if against is None else (against[0], _series(context, against[1]))
    notes = tuple(_notes(context, period, on_duty))
    marks = [
        Mark(period.place(note.at), note.kind, f"{note.at:%H:%M} {note.text}") for note in notes
    ]
    waiting = stats.counts[Status.SCHEDULED] + stats.counts[Status.READY]
    # Of a burst of ready tasks the estimate would draw most as scheduled, where none is.
    whole = period.fixed or before is not None or not stats.counts[Status.SCHEDULED]
    every = _Drawing(
        period,
        series,
        before,
        called,
        marks,
        _levels(series, waiting, _changed_since(context, series)),
        () if before is None else _levels(before, waiting, _changed_since(context, before)),
        () if whole else _ready(series, stats, context.now),
    )
    return {
        "all": tuple(every.charts()),
        "spans": spans.lengths(context, period, query),
        "nearby": spans.nearby(context, period, query),
        "comparisons": spans.comparisons(context, period, query),
        "since": period.since,
        "last": series.points[-1].at,  # where the axis ends
        "until": period.until,
        "fixed": period.fixed,
        "gaps": any(point.activity is None for point in series.points),
        "marks": notes,
        "compared": called,
        "wrong": errors.of(spans.FROM) or errors.of(spans.TO),
        "large": any(spans.kept(context).values()),  # the address asks for a time
    }


def _series(context: RequestContext, period: Period) -> MetricSeries:
    until = period.until if period.fixed else None
    return context.use.stats.metrics(
        context.queue, since=period.since, until=until, step_seconds=period.step
    )


def _changed_since(context: RequestContext, series: MetricSeries) -> int | None:
    """Return by how many more tasks wait now than when *series* ended; None if that is unknown."""
    end = series.points[-1].at + timedelta(seconds=series.step_seconds)
    if end >= context.now:
        return 0
    later = context.use.stats.metrics(context.queue, since=end, step_seconds=_DAY)
    changes = [point.activity and point.activity.backlog for point in later.points]
    return None if None in changes else sum(change or 0 for change in changes)


def _levels(series: MetricSeries, waiting: int, changed: int | None) -> Sequence[int | None]:
    """Return the most that waited in each step: counted back from the *waiting* of now.

    Before a step that nothing is known of, nothing is known.
    """
    level = None if changed is None else waiting - changed
    found: list[int | None] = []
    for point in reversed(series.points):
        above = 0 if series.step_seconds == STEP_SECONDS else point.above
        found.append(None if level is None else max(0, level + above))
        activity = point.activity
        level = None if level is None or activity is None else level - activity.backlog
    return found[::-1]


def _ready(series: MetricSeries, stats: QueueStats, now: datetime) -> Sequence[int]:
    """Estimate the number of ready tasks at the end of each step, up to *now*.

    A started task was ready during its wait.  The tasks that are ready now are assumed to have
    become ready at an even rate since the oldest of them.  Tasks that were removed while they
    were ready are missing.
    """
    step, begin = series.step_seconds, series.points[0].at
    changes = [0] * (len(series.points) + 1)
    for place, point in enumerate(series.points):
        for wait, count in point.activity.wait.durations() if point.activity else ():
            first = max(0, math.ceil(place - 0.5 - wait / step))  # it was ready after this step
            if first < place:
                changes[first] += count
                changes[place] -= count
    oldest = stats.age_of_oldest_ready or 0.0
    found = []
    for place, level in enumerate(itertools.accumulate(changes[:-1])):
        ago = max(0.0, (now - begin).total_seconds() - (place + 1) * step)
        share = 1.0 if ago == 0 else max(0.0, 1 - ago / oldest) if oldest else 0.0
        found.append(level + round(stats.counts[Status.READY] * share))
    return found


def _notes(context: RequestContext, period: Period, on_duty: "OnDuty") -> Iterator[MarkNote]:
    """Yield the actions on the queue, and the starts of new versions of workers."""
    if context.allows(Permission.OPERATE, context.queue):
        where = AuditFilter(queue=context.queue, since=period.since, before=period.until)
        for entry in context.use.audit.list(where, limit=_MARKS).shown:
            if entry.action in _MARKED and entry.changed != 0:
                kind, word = _MARKED[entry.action]
                yield MarkNote(kind, f"{word} by {entry.actor}", entry.at)
    if context.allows(Permission.LIST, context.queue):
        for version, since in on_duty.versions.get(context.queue, {}).items():
            if period.since <= since <= period.until:
                yield MarkNote("deploy", f"workers of version {version}", since)


@dataclass(frozen=True, slots=True)
class _Drawing:
    """What the charts of one period are drawn from."""

    period: Period
    series: MetricSeries
    before: MetricSeries | None
    compared: str
    marks: Sequence[Mark]
    waiting: Sequence[int | None]
    waiting_before: Sequence[int | None]
    ready: Sequence[int]  #: empty where it is not known apart

    def charts(self) -> Iterator[Chart]:
        """Yield the four charts, and one of what is dead where there is any."""
        per = self.period.per
        events = [self._line(event.value, _number(event)) for event in _EVENTS]
        moved = self._line("moved on", _number(Event.MOVED))
        if any(moved.values):
            events.append(moved)
        yield self._chart("Events", events, counts=f"tasks {per}", unit=f" {per}")
        yield self._lengths("Wait", "due to started", lambda activity: activity.wait)
        yield self._lengths("Run", "started to ended", lambda activity: activity.run)
        most = "" if self._minutes else f", most {per}"
        if self.ready:
            levels = [*zip(self.waiting, self.ready, strict=True)]
            ready = [None if level is None else min(level, due) for level, due in levels]
            later = [None if level is None else max(0, level - due) for level, due in levels]
            lines = [ChartLine("ready", ready), ChartLine("scheduled", later)]
            counts = f"ready, scheduled, estimated{most}"
        else:
            lines = [ChartLine("waiting", self.waiting, before=self.waiting_before)]
            counts = f"ready or scheduled{most}"
        yield self._chart("Waiting", lines, counts=counts, filled=True)
        # What was cancelled is no failure.
        dead = [
            self._line("dead", _number(Event.DEAD), charts.LOUD),
            self._line("cancelled", _number(Event.CANCELLED), "dashed"),
        ]
        if any(value for line in dead for value in line.values):
            yield self._chart("Dead", dead, counts=f"tasks {per}", unit=f" {per}")

    @property
    def _minutes(self) -> bool:
        return self.period.step == STEP_SECONDS

    def _chart(self, title: str, lines: Sequence[ChartLine], **more: object) -> Chart:
        times = [point.at.strftime(self.period.times) for point in self.series.points]
        return charts.chart(
            title,
            lines,
            times=times,
            ticks=self.period.ticks(),
            compared=self.compared,
            marks=self.marks,
            **more,  # type: ignore[arg-type]
        )

    def _line(
        self, name: str, value: Callable[[Activity], float | None], style: str | None = None
    ) -> ChartLine:
        def values(series: MetricSeries | None) -> list[float | None]:
            points = () if series is None else series.points
            return [None if one.activity is None else value(one.activity) for one in points]

        return ChartLine(name, values(self.series), style, values(self.before))

    def _lengths(self, title: str, counts: str, which: Callable[[Activity], Histogram]) -> Chart:
        def share_of(share: float) -> Callable[[Activity], float | None]:
            return lambda activity: which(activity).percentile(share)

        lines = [self._line(name, share_of(share)) for name, share in _SHARES]
        return self._chart(title, lines, counts=counts, axis=charts.LENGTHS)


def _number(event: Event) -> Callable[[Activity], int]:
    return lambda activity: activity.number(event)
