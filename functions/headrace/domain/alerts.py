"""Alerts: when one begins and when it is over, from what a look at a queue has measured.

An alert begins with the first look that finds its limit reached, and ends once looks of
``QUIET_FOR`` have found less.  So a value that varies around its limit makes one alert.  An alert
is a state of queue and threshold with a number, written in one transaction with the task about it.

The state belongs to one period in which the queue has alerts.  If alerts are set again, or in
another queue of the same name, the state starts again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from headrace.domain.queue_settings import AlertSettings, Threshold

QUIET_FOR: Final = timedelta(minutes=5)
"""For so long an alert's value is below its limit until it ends."""

BEGAN: Final = "queue.alert.began"
ENDED: Final = "queue.alert.ended"


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of one look; ages are seconds.  ``listened``: the queue has a worker."""

    oldest_ready: float = 0.0
    dead: int = 0
    listened: bool = True


@dataclass(frozen=True, slots=True)
class Alert:
    """The alert of one threshold: the ``number``-th, on ``since`` then, or over (None).

    ``limit`` is the last it was judged by, ``value`` what was measured when it began;
    ``quiet_since`` the first of the last looks in a row that found it below.
    """

    number: int = 0
    since: datetime | None = None
    value: float = 0.0
    limit: float = 0.0
    quiet_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class AlertState:
    """The alerts of a queue whose settings have had alerts since ``epoch``.

    ``silent_since`` is the first of the latest successive looks without a worker.
    """

    epoch: datetime
    alerts: Mapping[Threshold, Alert] = field(default_factory=dict)
    silent_since: datetime | None = None

    def on(self, settings: AlertSettings) -> dict[Threshold, Alert]:
        """Return the current alerts for which *settings* have a limit."""
        return {
            threshold: alert
            for threshold, alert in self.alerts.items()
            if alert.since is not None and settings.limit(threshold) is not None
        }


@dataclass(frozen=True, slots=True)
class AlertEvent:
    """The begin or the end of an alert (``kind``), with the value measured then."""

    kind: str
    threshold: Threshold
    alert: Alert
    value: float

    def facts(self, queue: str, epoch: datetime) -> tuple[str | int, ...]:
        """Return the text from which the id of the alert's task is derived."""
        number = self.alert.number
        return ("alert", self.kind, queue, epoch.isoformat(), self.threshold, number)


def next_alerts(
    state: AlertState, settings: AlertSettings, measured: Measured, now: datetime
) -> tuple[AlertState, tuple[AlertEvent, ...]]:
    """Return the alerts after a look, and the events to notify of."""
    silent_since = None if measured.listened else state.silent_since or now
    values: dict[Threshold, float] = {
        Threshold.OLDEST_READY: measured.oldest_ready,
        Threshold.DEAD: measured.dead,
        Threshold.NO_WORKERS: 0.0 if silent_since is None else (now - silent_since).total_seconds(),
    }
    alerts: dict[Threshold, Alert] = {}
    events: list[AlertEvent] = []
    for threshold, value in values.items():
        before = state.alerts.get(threshold, Alert())
        after = _after(before, settings.limit(threshold), value, now)
        if after != Alert():
            alerts[threshold] = after
        if before.since is None and after.since is not None:
            events.append(AlertEvent(BEGAN, threshold, after, value))
        if before.since is not None and after.since is None:
            events.append(AlertEvent(ENDED, threshold, before, value))
    return AlertState(state.epoch, alerts, silent_since), tuple(events)


def _after(alert: Alert, limit: float | None, value: float, now: datetime) -> Alert:
    reached = limit is not None and value >= limit
    if alert.since is None:
        if limit is None or not reached:
            return alert
        return Alert(alert.number + 1, now, value, limit)
    if limit is None:
        return Alert(alert.number)
    if reached:
        return replace(alert, limit=limit, quiet_since=None)
    quiet_since = alert.quiet_since or now
    if now - quiet_since >= QUIET_FOR:
        return Alert(alert.number)
    return replace(alert, limit=limit, quiet_since=quiet_since)
