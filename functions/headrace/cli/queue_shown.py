"""A queue in words: its limits in a list, all of it in a table of facts."""

from datetime import datetime
from typing import Final

import msgspec

from headrace.cli.output import facts, span
from headrace.cli.target import alerts_on
from headrace.wire.queues import Queue

_MINUTE: Final = 60


def limits_of(queue: Queue) -> str | None:
    """Return what limits its deliveries; None for nothing."""
    dequeuing = queue.dequeuing_settings
    parts = [
        "paused" if dequeuing.dequeuing_paused else "",
        f"{dequeuing.max_inflight_tasks} at once" if dequeuing.max_inflight_tasks else "",
    ]
    if rate := dequeuing.rate_limiting:
        unit = str(rate.interval_unit).lower().removesuffix("s")
        per = unit if rate.interval == 1 else f"{rate.interval} {unit}s"
        parts.append(f"{rate.max_tokens} per {per}")
    return ", ".join(filter(None, parts)) or None


def show_queue(queue: Queue) -> None:
    """Show its settings, how it is doing, its schedules."""
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
    pairs += [("alert", one) for one in alerts_on(queue)]
    if stats:
        pairs += [(name, count) for name, count in stats["counts"].items()]
        pairs.append(("oldest ready", span(stats["age_of_oldest_ready_seconds"])))
    for schedule in schedules or ():
        rhythm = schedule["cron"] or f"every {span(schedule['every_seconds'])}"
        pairs.append((f"schedule {schedule['name']}", rhythm))
    facts(pairs)


def _long(seconds: object) -> object:
    """Return a long time in seconds with what it is in days or hours."""
    if not isinstance(seconds, float | int) or seconds < _MINUTE:
        return seconds
    return f"{seconds:,.10g} ({span(seconds)})"
