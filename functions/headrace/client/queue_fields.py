"""The settings of a queue as programs write them, so that a type checker finds a wrong one.

Names and values are the contract's.  Every one may be left out, in the nested ones too.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NotRequired, TypeAlias, TypedDict

from headrace.domain.queue_settings import (
    DeadLetterConfig,
    DequeuingSettings,
    IntervalUnit,
    PrioritySettings,
    RateLimiting,
)
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task_groups import GroupSettings
from headrace.wire.queues import AlertsShown, OnEndShown, TargetShown

Kind: TypeAlias = Literal["exponential", "linear", "quadratic", "fixed", "intervals"] | Backoff
Unit: TypeAlias = Literal["SECONDS", "MINUTES", "HOURS"] | IntervalUnit


class RetryFields(TypedDict, total=False):
    """How often and when a failed task is tried again; times are seconds.

    ``intervals`` are the waits one by one, and mean that kind.
    """

    kind: Kind
    max_retries: int
    base_seconds: float
    max_delay_seconds: float
    jitter: float
    intervals: Sequence[float]


class RateFields(TypedDict):
    """A token bucket: ``max_tokens`` deliveries in each ``interval`` (1) of the unit (seconds)."""

    max_tokens: int
    interval: NotRequired[int]
    interval_unit: NotRequired[Unit]


class DequeuingFields(TypedDict, total=False):
    """What holds deliveries back; 0 and None are no limit."""

    max_inflight_tasks: int
    rate_limiting: RateFields | RateLimiting | None
    dequeuing_paused: bool


class DeadLetterFields(TypedDict, total=False):
    """Whether tasks out of attempts are kept, how long (seconds) and how many (0: no limit)."""

    enable: bool
    retention_period_in_seconds: float
    max_size: int


class PriorityFields(TypedDict, total=False):
    """How much a priority counts: by so many seconds a high task is ahead, a low one behind."""

    aging_in_seconds: float


class GroupFields(TypedDict):
    """How the groups of a queue take turns, and the shares of groups that do not have 1.

    ``max_inflight_per_group`` limits the tasks of a group in flight; 0 is no limit.  A ``strict``
    group runs one task after the other, in order; ``on_dead`` says what happens after a dead task.
    """

    mode: Literal["fair", "strict"]
    weights: NotRequired[Mapping[str, float]]
    max_inflight_per_group: NotRequired[int]
    on_dead: NotRequired[Literal["continue", "halt"] | None]


TargetFields = TypedDict(  # as `lambda` is no name in a class
    "TargetFields",
    {
        "url": str | None,
        "lambda": str | None,
        "timeout_in_seconds": float,
        "max_concurrency": int,
        "headers": Mapping[str, str],
    },
    total=False,
)
"""Where the service sends the tasks: ``url``, or the ARN of a function as ``lambda``."""


class OnEndFields(TypedDict):
    """The queue to notify when a task ends, and for which ends: SUCCEEDED, DEAD or both."""

    queue: str
    states: NotRequired[Sequence[Literal["SUCCEEDED", "DEAD"]]]


class AlertFields(TypedDict):
    """The queue to notify of alerts, and at least one limit: seconds, or tasks in a minute."""

    queue: str
    oldest_ready_seconds: NotRequired[float | None]
    dead_per_minute: NotRequired[int | None]
    no_workers_for_seconds: NotRequired[float | None]


class QueueFields(TypedDict, total=False):
    """The settings of a queue; times are seconds."""

    description: str
    owner: str
    keepalive_timeout_in_seconds: float
    expires_in_seconds: float
    retry_strategy: RetryFields | RetryStrategy
    dequeuing_settings: DequeuingFields | DequeuingSettings
    dead_letter_queue_config: DeadLetterFields | DeadLetterConfig
    history_retention_in_seconds: float
    shards: int
    priority: PriorityFields | PrioritySettings | None
    groups: GroupFields | GroupSettings | None
    target: TargetFields | TargetShown | None
    on_end: OnEndFields | OnEndShown | None
    alerts: AlertFields | AlertsShown | None
    indexed_fields: Sequence[str]
