"""A queue and its settings."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from headrace.domain.retry import DEFAULT_RETRY, RetryStrategy, Seconds


class IntervalUnit(StrEnum):
    """The unit of a token bucket's interval."""

    SECONDS = "SECONDS"
    MINUTES = "MINUTES"
    HOURS = "HOURS"


@dataclass(frozen=True, slots=True)
class RateLimiting:
    """A token bucket: full at first, refilled continuously, one token a delivery."""

    max_tokens: int
    interval: int
    interval_unit: IntervalUnit = IntervalUnit.SECONDS


@dataclass(frozen=True, slots=True)
class DequeuingSettings:
    """What holds deliveries back; 0 and None mean no limit."""

    max_inflight_tasks: int = 0
    rate_limiting: RateLimiting | None = None
    dequeuing_paused: bool = False


@dataclass(frozen=True, slots=True)
class DeadLetterConfig:
    """Whether tasks out of attempts are kept, how long (seconds) and how many (0: no limit)."""

    enable: bool = True
    retention_period_in_seconds: Seconds = 1_209_600
    max_size: int = 0


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What the owner of a queue decides.  Times are seconds; 0 for expiry means never."""

    description: str = ""
    keepalive_timeout_in_seconds: Seconds = 30
    expires_in_seconds: Seconds = 1_209_600
    retry_strategy: RetryStrategy = DEFAULT_RETRY
    dequeuing_settings: DequeuingSettings = field(default_factory=DequeuingSettings)
    dead_letter_queue_config: DeadLetterConfig = field(default_factory=DeadLetterConfig)
    history_retention_in_seconds: Seconds = 86_400
    shards: int = 1


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue as stored.

    ``resume_at`` ends a pause by itself; ``shards_in_use`` is the highest number of shards the
    queue ever had, because tasks stay on the shard they were put on.  ``uncounted_since`` is when
    ``max_inflight_tasks`` was last set or lowered, until all tasks in flight are counted by it.
    """

    name: str
    settings: QueueSettings
    created_at: datetime
    updated_at: datetime
    version: int = 1
    resume_at: datetime | None = None
    shards_in_use: int = 1
    uncounted_since: datetime | None = None

    def paused(self, now: datetime) -> bool:
        """Tell whether deliveries are paused at *now*."""
        if not self.settings.dequeuing_settings.dequeuing_paused:
            return False
        return self.resume_at is None or now < self.resume_at

    def as_seen(self, now: datetime) -> "Queue":
        """Return the queue as people should see it: a pause that has run out is over."""
        stored = self.settings.dequeuing_settings
        if not stored.dequeuing_paused or self.paused(now):
            return self
        settings = replace(
            self.settings, dequeuing_settings=replace(stored, dequeuing_paused=False)
        )
        return replace(self, settings=settings, resume_at=None)

    def expiry(self, due_at: datetime) -> datetime | None:
        """Return when a task due at *due_at* expires by this queue's settings, or None."""
        seconds = self.settings.expires_in_seconds
        return due_at + timedelta(seconds=seconds) if seconds else None
