"""The body of requests about schedules."""

from typing import Annotated, Final, LiteralString, TypeAlias

from pydantic import Field, model_validator

from headrace.domain.errors import FieldError, InvalidRequest
from headrace.domain.schedule import ScheduleSettings
from headrace.http.fields import (
    Body,
    DedupeKey,
    Expiry,
    Ignored,
    Keepalive,
    Name,
    Payload,
    Tags,
    contradiction,
)
from headrace.http.queue_bodies import RetryStrategyBody

EVERY_SECONDS: Final = (1, 31_536_000)
CRON_LENGTH: Final = 256
TIMEZONE_LENGTH: Final = 64

_DEFAULT: Final = ScheduleSettings()

# An empty one is refused by who reads it, which says what belongs there.
CronText: TypeAlias = Annotated[str, Field(max_length=CRON_LENGTH)]
EverySeconds: TypeAlias = Annotated[
    float, Field(ge=EVERY_SECONDS[0], le=EVERY_SECONDS[1], allow_inf_nan=False)
]


class ScheduleBody(Body):
    """A schedule, in the form in which it is shown."""

    name: Name | None = Field(default=None, description="If given, the same as in the path.")
    cron: CronText | None = Field(
        default=None,
        description="Minute, hour, day of month, month and weekday; with seconds before them, and "
        "with the year behind them too. Knows `L`, `W`, `#`, names, lists, ranges and steps.",
        examples=["*/5 * * * *", "0 9 LW * *", "0 30 8 ? * MON-FRI 2027"],
    )
    every_seconds: EverySeconds | None = Field(
        default=None, description="Instead of cron. Counts from when it was set."
    )
    timezone: Annotated[str, Field(max_length=TIMEZONE_LENGTH)] = Field(
        default=_DEFAULT.timezone, description="Of IANA; what the local times of cron mean."
    )
    payload: Payload | None = Field(default=None, description="Left out, it is `{}`.")
    tags: Tags | None = None
    dedupe_key: DedupeKey | None = Field(
        default=None, description="A tick for which it is held is tried for a minute, then skipped."
    )
    expires_in_seconds: Expiry | None = Field(
        default=None, description="Of each task, from its due time; null: as the queue says."
    )
    keepalive_timeout_in_seconds: Keepalive | None = None
    retry_strategy: RetryStrategyBody | None = None
    paused: bool = Field(default=_DEFAULT.paused, description="No ticks, and none made up for.")
    next_run_at: Ignored = None
    last_run_at: Ignored = None
    created_at: Ignored = None
    updated_at: Ignored = None

    @model_validator(mode="after")
    def _has_one_rhythm(self) -> "ScheduleBody":
        if (self.cron is None) == (self.every_seconds is None):
            message: LiteralString = "give exactly one of cron and every_seconds"
            raise contradiction(("cron", message), ("every_seconds", message))
        return self

    def settings_of(self, name: str) -> ScheduleSettings:
        """Return the settings.  Raises InvalidRequest when they are another schedule's."""
        if self.name is not None and self.name != name:
            message = f"must be the name in the path, {name[:128]}"
            raise InvalidRequest(f"name {message}", errors=[FieldError("name", message)])
        every = self.every_seconds
        return ScheduleSettings(
            cron=self.cron,
            every_seconds=int(every) if every is not None and every.is_integer() else every,
            timezone=self.timezone,
            payload=str(self.payload) if self.payload is not None else _DEFAULT.payload,
            tags=self.tags or {},
            dedupe_key=self.dedupe_key,
            expires_in_seconds=self.expires_in_seconds,
            keepalive_timeout_in_seconds=self.keepalive_timeout_in_seconds,
            retry_strategy=self.retry_strategy.strategy() if self.retry_strategy else None,
            paused=self.paused,
        )
