"""The shapes of answers about schedules."""

from typing import Annotated, Any

from pydantic import Field

from headrace.http.answers import Answer, At, Queue, RetryStrategy
from headrace.http.stats_answers import Stats


class ScheduleInShort(Answer):
    """What its queue shows of a schedule."""

    name: str
    cron: str | None
    every_seconds: float | None
    timezone: str
    paused: bool
    next_run_at: Annotated[At | None, Field(description="null: none, or it is paused.")]


class Schedule(ScheduleInShort):
    """A schedule and its settings."""

    payload: Annotated[Any, Field(description="Left out for a viewer.")] = None
    tags: dict[str, str]
    dedupe_key: str | None
    expires_in_seconds: float | None
    keepalive_timeout_in_seconds: float | None
    retry_strategy: RetryStrategy | None
    last_run_at: Annotated[
        At | None, Field(description="The latest tick that has come, or when it was run by hand.")
    ]
    created_at: At
    updated_at: At


class QueueInFull(Queue):
    """A queue, its settings, how it is doing, and its schedules."""

    stats: Stats
    schedules: Annotated[list[ScheduleInShort], Field(description="By name.")]


SHOWN: tuple[type[Answer], ...] = (Schedule, QueueInFull)
"""What routes name in their documented answers."""
