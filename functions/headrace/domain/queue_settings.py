"""The settings of a queue, each declared once."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final

from headrace.domain import limits
from headrace.domain.push import Target
from headrace.domain.retry import DEFAULT_RETRY, RetryStrategy, Seconds
from headrace.domain.settings import setting
from headrace.domain.task import LANES, ORDINARY, RETURN_LANE, TURN_LANE, State
from headrace.domain.task_groups import GroupSettings

_TOKENS: Final = (1, limits.COUNT[1])
_INTERVAL: Final = (1, 86_400)


TYPES: Final = {State.SUCCEEDED: "task.succeeded", State.DEAD: "task.dead"}
"""The ``type`` of a webhook for each state that a task may end in."""


@dataclass(frozen=True, slots=True)
class OnEnd:
    """The ``queue`` that is notified of tasks that end in one of ``states``.

    None keeps the queue of before, for a change by a key that may not see that queue.
    """

    queue: str | None
    states: tuple[State, ...] = tuple(TYPES)

    def notifies_no_more_than(self, before: "OnEnd | None") -> bool:
        """Return whether *before* already creates every task that this setting creates."""
        return before is not None and set(self.states) <= set(before.states)


class IntervalUnit(StrEnum):
    """The unit of a token bucket's interval."""

    SECONDS = "SECONDS"
    MINUTES = "MINUTES"
    HOURS = "HOURS"


@dataclass(frozen=True, slots=True)
class RateLimiting:
    """A token bucket: full at first, refilled continuously, one token a delivery."""

    max_tokens: Annotated[
        int,
        setting(
            "Deliveries per interval",
            "Deliveries per interval, and the largest burst after an idle time.",
            _TOKENS,
            short="rate_tokens",
        ),
    ]
    interval: Annotated[
        int,
        setting(
            "Interval", "Length of the interval, in its unit.", _INTERVAL, short="rate_interval"
        ),
    ] = 1
    interval_unit: Annotated[
        IntervalUnit, setting("Unit", "The unit of the interval.", short="rate_unit")
    ] = IntervalUnit.SECONDS


@dataclass(frozen=True, slots=True)
class DequeuingSettings:
    """What holds deliveries back; 0 and None mean no limit."""

    max_inflight_tasks: Annotated[
        int,
        setting(
            "Max in flight",
            "Tasks that may run at the same time.",
            limits.INFLIGHT,
            short="max_inflight",
            zero="no limit",
        ),
    ] = 0
    rate_limiting: RateLimiting | None = None
    dequeuing_paused: bool = False


@dataclass(frozen=True, slots=True)
class DeadLetterConfig:
    """Whether tasks out of attempts are kept, how long (seconds) and how many (0: no limit)."""

    enable: Annotated[
        bool, setting("Keep dead tasks", "Whether dead tasks are kept.", short="dead_letter")
    ] = True
    retention_period_in_seconds: Annotated[
        Seconds,
        setting(
            "Dead-letter retention",
            "How long dead tasks are kept.",
            limits.RETENTION_SECONDS,
            short="dead_retention",
            zero="not kept",
        ),
    ] = 1_209_600
    max_size: Annotated[
        int,
        setting(
            "Max dead tasks",
            "How many dead tasks are kept.",
            limits.COUNT,
            short="dead_max_size",
            zero="no limit",
        ),
    ] = 0


@dataclass(frozen=True, slots=True)
class PrioritySettings:
    """How much a priority counts: by so many seconds a high task is ahead, a low one behind."""

    aging_in_seconds: Annotated[
        Seconds,
        setting(
            "High tasks ahead by",
            "A high task is ahead of a normal one by this time; a low task is behind by it.",
            (1, 86_400),
            short="aging",
        ),
    ] = 300


class Threshold(StrEnum):
    """What may have a limit that is worth an alert, by the name of its setting."""

    OLDEST_READY = "oldest_ready_seconds"
    DEAD = "dead_per_minute"
    NO_WORKERS = "no_workers_for_seconds"


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """The limits of a queue that are worth an alert, and the ``queue`` that is notified.

    None means no limit; see ``alerts``.  ``dead_per_minute`` counts tasks, the others are seconds.
    A queue of None is the one that was notified before, as in ``OnEnd``.
    """

    queue: str | None
    oldest_ready_seconds: Annotated[
        Seconds | None,
        setting(
            "Oldest ready",
            "Age of the oldest ready task.",
            (1, 31_536_000),
            short="alert_oldest",
        ),
    ] = None
    dead_per_minute: Annotated[
        int | None,
        setting(
            "Dead per minute",
            "Tasks that died in a minute; cancelled ones are not counted.",
            (1, 1_000_000),
            short="alert_dead",
        ),
    ] = None
    no_workers_for_seconds: Annotated[
        Seconds | None,
        setting(
            "No workers for",
            "Time without a worker or a delivery.",
            (60, 31_536_000),
            short="alert_silence",
        ),
    ] = None

    def limit(self, threshold: Threshold) -> float | None:
        """Return the limit of *threshold*; None: it has none."""
        limit: float | None = getattr(self, threshold)
        return limit

    def notifies_no_more_than(self, before: "AlertSettings | None") -> bool:
        """Return whether *before* already has every limit of this setting, or a lower one."""
        for threshold in Threshold:
            limit = self.limit(threshold)
            was = None if before is None else before.limit(threshold)
            if limit is not None and (was is None or limit < was):
                return False
        return True


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The settings of a queue.  Times are seconds.

    This is the one declaration of each setting: the request body and its checks, the OpenAPI
    document, the stored record, the SDK's checks, the CLI's options and the console's form are made
    from it.  Type checkers need the name and the type of a setting twice more: in the answer
    (``headrace.wire.queues.Queue``) and in the SDK's arguments (``QueueFields``).
    """

    description: Annotated[
        str,
        setting(
            "Description",
            "What the queue is for.",
            (0, 1024),
            short="description",
        ),
    ] = ""
    owner: Annotated[
        str,
        setting("Owner", "The team or person responsible for the queue.", (0, 128), short="owner"),
    ] = ""
    keepalive_timeout_in_seconds: Annotated[
        Seconds,
        setting(
            "Lease",
            "A worker that sends no heartbeat for this long loses the task.",
            limits.KEEPALIVE_SECONDS,
            short="lease_seconds",
        ),
    ] = 30
    expires_in_seconds: Annotated[
        Seconds,
        setting(
            "Expires after",
            "A task that is not delivered within this time after it is due is dead.",
            limits.EXPIRES_SECONDS,
            short="expires",
            zero="never",
        ),
    ] = 1_209_600
    retry_strategy: RetryStrategy = DEFAULT_RETRY
    dequeuing_settings: DequeuingSettings = field(default_factory=DequeuingSettings)
    dead_letter_queue_config: DeadLetterConfig = field(default_factory=DeadLetterConfig)
    history_retention_in_seconds: Annotated[
        Seconds,
        setting(
            "History",
            "How long succeeded tasks are kept.",
            limits.RETENTION_SECONDS,
            short="history",
            zero="not kept",
        ),
    ] = 86_400
    shards: Annotated[
        int,
        setting(
            "Shards",
            "Each takes about 500 tasks a second. With 1, tasks are delivered by due time.",
            (1, 64),
            short="shards",
        ),
    ] = 1
    priority: PrioritySettings | None = None
    groups: GroupSettings | None = None
    target: Target | None = None
    on_end: OnEnd | None = None
    alerts: AlertSettings | None = None
    indexed_fields: tuple[str, ...] = ()

    @property
    def lanes(self) -> frozenset[int]:
        """The lanes that tasks of the queue wait in."""
        if self.groups is not None:
            return ORDINARY | {TURN_LANE, RETURN_LANE}
        return ORDINARY if self.priority is None else frozenset(LANES.values())
