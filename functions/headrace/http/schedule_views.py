"""Schedules as the JSON that goes out, their payloads exactly as they came in."""

from dataclasses import asdict
from typing import Any

from headrace.http.views import dumps, rfc3339
from headrace.ops.scheduling.schedules import Seen


def schedule_json(seen: Seen, *, payload: bool) -> str:
    """Return a schedule, its payload only to who may see it."""
    schedule = seen.schedule
    fields = {
        "name": schedule.name,
        **asdict(schedule.settings),
        "next_run_at": rfc3339(seen.next_run_at),
        "last_run_at": rfc3339(seen.last_run_at),
        "created_at": rfc3339(schedule.created_at),
        "updated_at": rfc3339(schedule.updated_at),
    }
    text = fields.pop("payload")
    shown = f',"payload":{text}}}' if payload else "}"
    return dumps(fields)[:-1] + shown


def in_short(seen: Seen) -> dict[str, Any]:
    """Return the short form of a schedule, as its queue shows it."""
    settings = seen.schedule.settings
    return {
        "name": seen.schedule.name,
        "cron": settings.cron,
        "every_seconds": settings.every_seconds,
        "timezone": settings.timezone,
        "paused": settings.paused,
        "next_run_at": rfc3339(seen.next_run_at),
    }
