"""The bodies of requests about queues."""

from typing import Annotated, Final, LiteralString, TypeAlias

from aws_lambda_powertools.event_handler.openapi.params import Body
from msgspec import convert
from pydantic import Field, model_validator

from headrace.domain import limits
from headrace.domain.errors import InvalidRequest
from headrace.domain.queue import IntervalUnit, QueueSettings
from headrace.domain.retry import DEFAULT_RETRY, Backoff, RetryStrategy
from headrace.domain.task import State
from headrace.http.fields import (
    CURSOR_LENGTH,
    BaseSeconds,
    Count,
    Description,
    Examples,
    Expiry,
    Ignored,
    Inflight,
    Interval,
    Jitter,
    Keepalive,
    MaxRetries,
    Name,
    PauseLength,
    RequestBody,
    Retention,
    RetryDelay,
    Shards,
    Tokens,
    Version,
    contradiction,
    example,
)

_DEFAULT = QueueSettings()


class RetryStrategyBody(RequestBody):
    """How often and when a failed task is tried again."""

    kind: Annotated[Backoff, Field(strict=False)] = DEFAULT_RETRY.kind
    max_retries: MaxRetries = DEFAULT_RETRY.max_retries
    base_seconds: BaseSeconds = DEFAULT_RETRY.base_seconds
    max_delay_seconds: RetryDelay = DEFAULT_RETRY.max_delay_seconds
    jitter: Jitter = DEFAULT_RETRY.jitter
    intervals: Annotated[list[RetryDelay], Field(max_length=limits.INTERVALS[1])] = Field(
        default=[]
    )

    @model_validator(mode="after")
    def _goes_together(self) -> "RetryStrategyBody":
        if self.kind is not Backoff.INTERVALS:
            if self.intervals:
                raise contradiction(("intervals", "must be empty unless kind is intervals"))
            return self
        if not self.intervals:
            raise contradiction(("intervals", "must have 1 to 100 entries when kind is intervals"))
        if "max_retries" in self.model_fields_set and self.max_retries != len(self.intervals):
            message: LiteralString = "must be the number of intervals, or left out"
            raise contradiction(("max_retries", message))
        self.max_retries = len(self.intervals)
        return self

    def strategy(self) -> RetryStrategy:
        """Return the strategy as the domain has it."""
        return convert(self.model_dump(), RetryStrategy)


class RateLimitingBody(RequestBody):
    """A token bucket: full at first, refilled continuously, one token a delivery."""

    max_tokens: Tokens
    interval: Interval = 1
    interval_unit: Annotated[IntervalUnit, Field(strict=False)] = IntervalUnit.SECONDS


class DequeuingSettingsBody(RequestBody):
    """What holds deliveries back."""

    max_inflight_tasks: Inflight = 0
    rate_limiting: RateLimitingBody | None = None
    dequeuing_paused: bool = False


class DeadLetterBody(RequestBody):
    """Whether tasks out of attempts are kept, how long and how many."""

    enable: bool = True
    retention_period_in_seconds: Retention = (
        _DEFAULT.dead_letter_queue_config.retention_period_in_seconds
    )
    max_size: Count = 0


class SettingsBody(RequestBody):
    """What the owner of a queue decides; what is left out takes its default."""

    description: Description = ""
    keepalive_timeout_in_seconds: Keepalive = _DEFAULT.keepalive_timeout_in_seconds
    expires_in_seconds: Expiry = _DEFAULT.expires_in_seconds
    retry_strategy: RetryStrategyBody = RetryStrategyBody()
    dequeuing_settings: DequeuingSettingsBody = DequeuingSettingsBody()
    dead_letter_queue_config: DeadLetterBody = DeadLetterBody()
    history_retention_in_seconds: Retention = _DEFAULT.history_retention_in_seconds
    shards: Shards = _DEFAULT.shards

    def settings(self) -> QueueSettings:
        """Return the settings as the domain has them."""
        return convert(self.model_dump(), QueueSettings)


class CreateQueueBody(SettingsBody):
    """A new queue; only its name is required."""

    name: Name


class ReplaceQueueBody(SettingsBody):
    """New settings for a queue, in the form in which it is shown."""

    name: Name | None = Field(default=None, description="If given, the same as in the path.")
    version: Version | None = Field(
        default=None, description="If given, the settings are replaced only while it is current."
    )
    created_at: Ignored = None
    updated_at: Ignored = None
    stats: Ignored = None
    schedules: Ignored = None

    def settings_of(self, name: str) -> QueueSettings:
        """Return the settings.  Raises InvalidRequest when they are another queue's."""
        if self.name is not None and self.name != name:
            raise InvalidRequest.of("name", f"must be the name in the path, {name}")
        return self.settings()


class PauseBody(RequestBody):
    """Whether the pause ends by itself."""

    resume_in_seconds: PauseLength | None = None


class ResumeBody(RequestBody):
    """Nothing needs to be said."""


EmptyBody: TypeAlias = Annotated[ResumeBody | None, Body(title="Body")]
"""Of requests that say all in their path: what is in it is refused, and it may be left out."""


class RecountBody(RequestBody):
    """Where a recount goes on; nothing to begin one."""

    cursor: Annotated[str, Field(max_length=CURSOR_LENGTH)] | None = None


class PurgeBody(RequestBody):
    """The states whose tasks are removed."""

    states: Annotated[
        list[Annotated[State, Field(strict=False)]], Field(min_length=1, max_length=len(State))
    ]

    def chosen(self) -> tuple[State, ...]:
        """Return the states, each once."""
        return tuple(dict.fromkeys(self.states))


CREATE_QUEUE: Final[Examples] = {
    "defaults": example("With the defaults", {"name": "ngsi.notify"}),
    "settings": example(
        "Long tasks, retried at chosen times",
        {
            "name": "reports.monthly",
            "description": "PDF reports of all cities",
            "keepalive_timeout_in_seconds": 300,
            "retry_strategy": {"kind": "intervals", "intervals": [60, 600, 3600], "jitter": 0},
            "dead_letter_queue_config": {"retention_period_in_seconds": 2592000},
        },
    ),
}
REPLACE_QUEUE: Final[Examples] = {
    "slower": example(
        "Slower, and only if nobody else has changed it",
        {
            "version": 1,
            "dequeuing_settings": {
                "rate_limiting": {"max_tokens": 1000, "interval": 1, "interval_unit": "SECONDS"}
            },
        },
    ),
}
PAUSE: Final[Examples] = {"ten_minutes": example("For ten minutes", {"resume_in_seconds": 600})}
RECOUNT: Final[Examples] = {"begin": example("The first step", {"cursor": None})}
PURGE: Final[Examples] = {"dead": example("Drop the dead letters", {"states": ["DEAD"]})}
