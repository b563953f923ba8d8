"""The bodies of requests about queues."""

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from headrace.domain import limits
from headrace.domain.errors import InvalidRequest
from headrace.domain.indexing import fields_fault, read_field
from headrace.domain.push import Target, headers_faults
from headrace.domain.queue_settings import (
    AlertSettings,
    DeadLetterConfig,
    DequeuingSettings,
    PrioritySettings,
    QueueSettings,
    RateLimiting,
    Threshold,
)
from headrace.domain.retry import DEFAULT_RETRY, Backoff, RetryStrategy
from headrace.domain.task import FINISHED, SHOWN_STATES, State
from headrace.domain.task_groups import GroupMode, OnDead
from headrace.domain.values import convert
from headrace.http.fields import (
    CURSOR_LENGTH,
    PLAIN,
    Examples,
    GroupKey,
    Ignored,
    Name,
    Reason,
    RequestBody,
    UndoFor,
    contradiction,
    example,
    refusal,
    with_settings_of,
    within,
    wrong,
)

_RetryDelay: TypeAlias = Annotated[float, within(limits.RETRY_DELAY_SECONDS), PLAIN]


@with_settings_of(RetryStrategy)
class RetryStrategyBody(RequestBody):
    """How often and when a failed task is retried."""

    kind: Annotated[Backoff, Field(strict=False)] = DEFAULT_RETRY.kind
    max_retries: Annotated[int, within(limits.MAX_RETRIES)] = DEFAULT_RETRY.max_retries
    intervals: Annotated[list[_RetryDelay], Field(max_length=limits.INTERVALS[1])] = Field(
        default=[]
    )

    @model_validator(mode="after")
    def _goes_together(self) -> "RetryStrategyBody":
        if self.kind is not Backoff.INTERVALS:
            if self.intervals:
                raise contradiction("must be empty unless kind is intervals", "intervals")
            return self
        if not self.intervals:
            raise contradiction("must have 1 to 100 entries when kind is intervals", "intervals")
        if "max_retries" in self.model_fields_set and self.max_retries != len(self.intervals):
            raise contradiction("must be the number of intervals, or left out", "max_retries")
        self.max_retries = len(self.intervals)
        return self

    def strategy(self) -> RetryStrategy:
        """Return the strategy of the domain."""
        return convert(self.model_dump(), RetryStrategy)


@with_settings_of(RateLimiting)
class RateLimitingBody(RequestBody):
    """A token bucket: full at first, refilled continuously, one token for each delivery."""


@with_settings_of(DequeuingSettings)
class DequeuingSettingsBody(RequestBody):
    """Limits on deliveries."""

    rate_limiting: RateLimitingBody | None = None
    dequeuing_paused: bool = False


@with_settings_of(DeadLetterConfig)
class DeadLetterBody(RequestBody):
    """Whether dead letters are kept, how long and how many."""


@with_settings_of(PrioritySettings)
class PriorityBody(RequestBody):
    """Lets tasks have a priority, with its effect."""


class GroupsBody(RequestBody):
    """Lets tasks have groups, which take turns, with their weights and limits."""

    # First, so that its error comes before that of the mode.
    max_inflight_per_group: Annotated[
        int, within(limits.GROUP_INFLIGHT, "Of each group; 0: no limit.")
    ] = 0
    mode: Annotated[GroupMode, Field(strict=False)]
    weights: dict[GroupKey, Annotated[float, within(limits.WEIGHT), PLAIN]] = Field(
        default={},
        max_length=limits.WEIGHTS,
        description="By group key, from the next enqueue on. The default of a group is 1.",
    )
    on_dead: Annotated[OnDead, Field(strict=False)] | None = Field(
        default=None,
        description=(
            "Only with the mode strict: whether the tasks behind a dead task are delivered "
            "(`continue`, the default), or wait until it is restarted, moved or deleted (`halt`)."
        ),
    )

    @model_validator(mode="after")
    def _goes_together(self) -> "GroupsBody":
        if self.mode is GroupMode.STRICT:
            if self.max_inflight_per_group > 1:
                raise contradiction("must be at most 1: mode is strict", "max_inflight_per_group")
            self.on_dead = self.on_dead or OnDead.CONTINUE
        elif self.on_dead is not None:
            raise contradiction("must be left out unless mode is strict", "on_dead")
        return self


@with_settings_of(Target)
class TargetBody(RequestBody):
    """Where the service sends the tasks of the queue: either `url` or `lambda`."""

    url: str | None = Field(
        default=None,
        json_schema_extra={"maxLength": limits.TARGET_URL_BYTES},
        description="https on port 443 of a public host, or a host that the deployment lists.",
    )
    function: str | None = Field(
        default=None,
        alias="lambda",
        description="The ARN of a function that the deployment allows.",
    )
    headers: Annotated[
        dict[str, str],
        Field(
            max_length=limits.TARGET_HEADERS,
            description="Sent with each request. `********` keeps a value as it is.",
        ),
    ] = Field(default={})

    @model_validator(mode="after")
    def _is_one_place(self) -> "TargetBody":
        if (self.url is None) == (self.function is None):
            raise contradiction("must be there unless lambda is, and not beside it", "url")
        faults = [
            ("headers" if name is None else f"headers.{name}", wrong("{fault}", fault=fault))
            for name, fault in headers_faults(self.headers)
        ]
        if faults:
            raise refusal(*faults)
        return self


class OnEndBody(RequestBody):
    """The queue that gets a notification when a task ends."""

    queue: Name | None = Field(
        description="Another queue. If it has a target, these are webhooks. null keeps the queue."
    )
    states: Annotated[
        list[Literal["SUCCEEDED", "DEAD"]], Field(min_length=1, max_length=len(FINISHED))
    ] = Field(default=["SUCCEEDED", "DEAD"], description="The states for which it is notified.")


@with_settings_of(AlertSettings)
class AlertsBody(RequestBody):
    """The limits for alerts, at least one, and the queue that gets the alerts."""

    queue: Name | None = Field(
        description="Another queue. If it has a target, these are webhooks. null keeps the queue."
    )

    @model_validator(mode="after")
    def _has_a_limit(self) -> "AlertsBody":
        if all(getattr(self, name) is None for name in Threshold):
            raise contradiction("must be there unless another limit is", "oldest_ready_seconds")
        return self


def _indexed_fields(value: list[str]) -> list[str]:
    fault = fields_fault(value)
    if fault:
        raise wrong("{fault}", fault=fault)
    return [str(read_field(field)[0]) for field in value]


IndexedFields: TypeAlias = Annotated[
    list[str], Field(max_length=2 * limits.INDEXED), AfterValidator(_indexed_fields)
]


@with_settings_of(QueueSettings)
class SettingsBody(RequestBody):
    """The settings of a queue; a missing setting gets its default."""

    retry_strategy: RetryStrategyBody = RetryStrategyBody()
    dequeuing_settings: DequeuingSettingsBody = DequeuingSettingsBody()
    dead_letter_queue_config: DeadLetterBody = DeadLetterBody()
    priority: PriorityBody | None = Field(
        default=None, description="null: no task of the queue has a priority."
    )
    target: TargetBody | None = Field(
        default=None,
        description="null: workers dequeue the tasks. Otherwise the service sends them there.",
    )
    on_end: OnEndBody | None = Field(
        default=None,
        description=(
            "null: no notifications. Otherwise each task that ends here enqueues a task there, "
            "with `type`, `timestamp` and `data`, which is the task without its payload."
        ),
    )
    alerts: AlertsBody | None = Field(
        default=None,
        description=(
            "null: no alerts. Otherwise the queue gets a task when a limit is reached and when "
            "it is no longer reached, with `type`, `timestamp` and `data`."
        ),
    )

    indexed_fields: IndexedFields = Field(
        default=[],
        description=(
            "Indexed tags and payload paths, for example `tag:tenant` and `payload.order.id`; at "
            f"most {limits.INDEXED} of each. Each costs a write unit for a task that has it, and "
            "one more when the task is removed."
        ),
    )

    groups: GroupsBody | None = Field(
        default=None, description="null: no task of the queue has a group. Excludes `priority`."
    )

    @model_validator(mode="after")
    def _has_one_order(self) -> "SettingsBody":
        if self.groups is not None and self.priority is not None:
            raise contradiction("exclude priority: a queue has one of them", "groups")
        return self

    def settings(self) -> QueueSettings:
        """Return the settings of the domain."""
        return convert(self.model_dump(), QueueSettings)


class CreateQueueBody(SettingsBody):
    """A new queue; only its name is required."""

    queue_fields = RequestBody.queue_fields | {"name"}

    name: Name


class ReplaceQueueBody(SettingsBody):
    """New settings for a queue, in the form of the answer to GET."""

    name: Name | None = Field(default=None, description="If given, the same as in the path.")
    version: Annotated[int, within((1, 2**53))] | None = Field(
        default=None,
        description="If given, the settings are replaced only if this is the current version.",
    )
    created_at: Ignored = None
    updated_at: Ignored = None
    pause: Ignored = None
    stats: Ignored = None
    schedules: Ignored = None
    schedules_cursor: Ignored = None

    def settings_of(self, name: str) -> QueueSettings:
        """Return the settings. Raises InvalidRequest if they name another queue."""
        if self.name is not None and self.name != name:
            raise InvalidRequest.of("name", f"must be the name in the path, {name}")
        return self.settings()


class PauseBody(RequestBody):
    """The length and the reason of a pause."""

    resume_in_seconds: (
        Annotated[float, Field(gt=0, le=limits.PAUSE_SECONDS[1], allow_inf_nan=False), PLAIN] | None
    ) = None
    reason: Reason | None = None


class ResumeBody(RequestBody):
    """An empty body."""


EmptyBody: TypeAlias = ResumeBody | None
"""The body of a request without fields; it may be missing."""


class StepBody(RequestBody):
    """The cursor of the previous step; without it the work starts."""

    cursor: Annotated[str, Field(max_length=CURSOR_LENGTH)] | None = None


class PurgeBody(RequestBody):
    """The states of the tasks to remove."""

    states: Annotated[
        list[Literal["ENQUEUED", "INFLIGHT", "SUCCEEDED", "DEAD"]],
        Field(min_length=1, max_length=len(SHOWN_STATES)),
    ]
    undo_in_seconds: UndoFor = 0

    def chosen(self) -> tuple[State, ...]:
        """Return the states, each once."""
        return tuple(map(State, dict.fromkeys(self.states)))


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
    "priority": example(
        "Tasks with high priority overtake tasks that were due up to ten minutes earlier",
        {"name": "mail", "priority": {"aging_in_seconds": 600}},
    ),
    "groups": example(
        "Tenants take turns; one of them has four times the share",
        {"name": "exports", "groups": {"mode": "fair", "weights": {"acme": 4}}},
    ),
    "group_limit": example(
        "No tenant has more than two tasks in flight",
        {"name": "reports", "groups": {"mode": "fair", "max_inflight_per_group": 2}},
    ),
}
REPLACE_QUEUE: Final[Examples] = {
    "slower": example(
        "A lower rate, unless the settings have changed",
        {
            "version": 1,
            "dequeuing_settings": {
                "rate_limiting": {"max_tokens": 1000, "interval": 1, "interval_unit": "SECONDS"}
            },
        },
    ),
}
PAUSE: Final[Examples] = {"ten_minutes": example("For ten minutes", {"resume_in_seconds": 600})}
FIRST_STEP: Final[Examples] = {"begin": example("The first step", {"cursor": None})}
PURGE: Final[Examples] = {"dead": example("Remove the dead letters", {"states": ["DEAD"]})}
