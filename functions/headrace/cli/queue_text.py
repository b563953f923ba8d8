"""A queue in words: limits and alerts in a list, settings and counts in a table of facts."""

from datetime import datetime
from typing import Final

import msgspec

from headrace.cli.output import facts, span, when
from headrace.wire.queues import AlertOn, Queue

_MINUTE: Final = 60
_ALERTS: Final = {
    "oldest_ready_seconds": "oldest ready",
    "dead_per_minute": "dead in a minute:",
    "no_workers_for_seconds": "no workers for",
}


def limits_of(queue: Queue) -> str | None:
    """Return the limits on deliveries, or None without any."""
    dequeuing = queue.dequeuing_settings
    parts = [
        "paused" if dequeuing.dequeuing_paused else "",
        f"{dequeuing.max_inflight_tasks} in flight" if dequeuing.max_inflight_tasks else "",
    ]
    if rate := dequeuing.rate_limiting:
        unit = str(rate.interval_unit).lower().removesuffix("s")
        per = unit if rate.interval == 1 else f"{rate.interval} {unit}s"
        parts.append(f"{rate.max_tokens} per {per}")
    return ", ".join(filter(None, parts)) or None


def alerts_of(queue: Queue) -> list[str]:
    """Return the alerts of *queue* that are on; empty for a queue without stats."""
    return [_alert(one) for one in (queue.stats.alerts if queue.stats else None) or ()]


def _alert(alert: AlertOn) -> str:
    name = _ALERTS.get(alert.threshold, alert.threshold)
    return f"{name} {_measured(alert.threshold, alert.value)}"


def _measured(threshold: str, value: float) -> str:
    return span(value) if threshold.endswith("_seconds") else f"{value:,.10g}"


def show_queue(queue: Queue) -> None:
    """Print the settings of a queue, its counts and its schedules."""
    fields = msgspec.to_builtins(queue, builtin_types=(datetime,))
    stats, schedules = fields.pop("stats"), fields.pop("schedules")
    del fields["pause"]
    pairs: list[tuple[str, object]] = []
    for name, value in fields.items():
        if isinstance(value, dict):
            pairs += [(f"{name}.{inner}", one) for inner, one in value.items()]
        else:
            pairs.append((name, value))
    pairs = [(name, _long(value) if "_seconds" in name else value) for name, value in pairs]
    if queue.pause is not None:
        pairs += [("paused by", queue.pause.by), ("paused at", queue.pause.at)]
        pairs += [("paused until", queue.pause.until)] if queue.pause.until else []
        pairs += [("paused because", queue.pause.reason)] if queue.pause.reason else []
    for one in (queue.stats.alerts if queue.stats else None) or ():
        limit = _measured(one.threshold, one.limit)
        pairs.append(("alert", f"{_alert(one)} (limit {limit}) since {when(one.since)}"))
    if stats:
        pairs += [(name, count) for name, count in stats["counts"].items()]
        pairs.append(("oldest ready", span(stats["age_of_oldest_ready_seconds"])))
    for schedule in schedules or ():
        rhythm = schedule["cron"] or f"every {span(schedule['every_seconds'])}"
        pairs.append((f"schedule {schedule['name']}", rhythm))
    facts(pairs)


def _long(seconds: object) -> object:
    """Return a number of seconds with the same in minutes, hours or days."""
    if not isinstance(seconds, float | int) or seconds < _MINUTE:
        return seconds
    return f"{seconds:,.10g} ({span(seconds)})"
