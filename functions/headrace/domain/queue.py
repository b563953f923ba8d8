"""A queue and its settings."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from headrace.domain.limits import SETTINGS_TTL_SECONDS
from headrace.domain.retry import DEFAULT_RETRY, RetryStrategy, Seconds
from headrace.domain.task import Place, State

AGREED_AFTER: Final = timedelta(seconds=SETTINGS_TTL_SECONDS[1] + 60)
"""So long after a change nobody acts on earlier settings any more, and the index shows it.

A call may begin with settings as old as can be, and may take half a minute.
"""


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

    ``resume_at`` ends a pause by itself.  Tasks stay on the shard they were put on, so that
    ``shards_in_use`` are as many as any task may be on.  ``drained`` are the states whose tasks are
    all on the shards of the settings again, which had another number until ``resharded_at``, and
    ``shards_ever`` at most.  ``uncounted_since`` is when
    ``max_inflight_tasks`` was last set or lowered, until all tasks in flight are counted by it.
    """

    name: str
    settings: QueueSettings
    created_at: datetime
    updated_at: datetime
    version: int = 1
    resume_at: datetime | None = None
    shards_in_use: int = 1
    drained: frozenset[State] = frozenset()
    resharded_at: datetime | None = None
    shards_ever: int = 1
    uncounted_since: datetime | None = None

    def shards_of(self, state: State) -> int:
        """Return on how many shards tasks in *state* may be."""
        return self.settings.shards if state in self.drained else self.shards_in_use

    def places(self, state: State) -> "list[Place]":
        """Return where the index keeps tasks in *state*."""
        return [Place(self.name, state, shard) for shard in range(self.shards_of(state))]

    def with_drained(self, states: frozenset[State]) -> "Queue":
        """Return the queue once all tasks in *states* are on the shards of the settings again."""
        if states == frozenset(State):
            return replace(self, shards_in_use=self.settings.shards, drained=frozenset())
        return replace(self, drained=states)

    def resharded(self, settings: QueueSettings, now: datetime) -> "Queue":
        """Return the queue with other *settings*, and the shards that its tasks may then be on."""
        if settings.shards == self.settings.shards:
            return replace(self, settings=settings)
        shards = max(self.shards_in_use, settings.shards)
        return replace(
            self,
            settings=settings,
            shards_in_use=shards,
            drained=frozenset(),
            resharded_at=now,
            shards_ever=max(self.shards_ever, shards),
        )

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
