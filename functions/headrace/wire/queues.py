"""Queues in answers: their settings, statistics and schedules."""

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from headrace.domain.queue_settings import DeadLetterConfig, DequeuingSettings, PrioritySettings
from headrace.domain.retry import RetryStrategy
from headrace.domain.schedule import Missed
from headrace.domain.task import DedupeUntil, OnExpiry, Priority, State
from headrace.domain.task_groups import GroupSettings
from headrace.wire.base import (
    SDK_ONLY,
    SOMETIMES,
    Answer,
    At,
    ByState,
    Carrying,
    Cursor,
    JsonValue,
    nothing,
)
from headrace.wire.tasks import Undoable

Percentile: TypeAlias = Annotated[
    float | None, Meta(description="Seconds, at most 2.5 % off; null: nothing to measure.")
]
AsOf: TypeAlias = Annotated[
    At,
    Meta(
        description="Every change up to here is counted. Nothing is heard from a queue in which "
        "nothing changes: when the index shows no later change either, this is now."
    ),
]
Staleness: TypeAlias = Annotated[float, Meta(description="How long ago `as_of` is.")]
Number: TypeAlias = Annotated[
    int | None, Meta(description="null: not known, as the service has it no longer or not yet.")
]


# ----------------------------------------------------------------------------------------- stats


class Counts(Answer, frozen=True, kw_only=True):
    """How many tasks a queue has."""

    scheduled: int
    ready: int
    inflight: int
    succeeded: int
    dead: Annotated[int, Meta(description="All of them, of whatever they died.")]
    cancelled: Annotated[
        int,
        Meta(
            description="How many of `dead` were cancelled, which is no failure. It is counted "
            "from the table's stream, rather too low than too high; with `exact` each dead task "
            "is read."
        ),
    ] = 0


class Rates(Answer, frozen=True, kw_only=True):
    """Events per second, from the beginning of the last full minute up to `as_of`."""

    enqueued_per_second: float
    dequeued_per_second: float
    succeeded_per_second: float
    failed_per_second: float


class Blocked(Answer, frozen=True, kw_only=True):
    """The reason why a group cannot have another task in flight."""

    task_id: Annotated[str, Meta(description="Of those in its slots, the one to end first.")]
    why: str
    until: Annotated[At | None, Meta(description="When its lease ends; null: unknown.")]


class GroupInShort(Answer, frozen=True, kw_only=True):
    """A group that has some of the next thousand turns of a queue."""

    group_key: Annotated[str | None, Meta(description="null: all tasks without a key.")]
    turns: Annotated[int, Meta(description="How many of them.")]
    age_of_oldest_seconds: Annotated[float, Meta(description="How long its oldest has been due.")]
    dequeued_per_second: Annotated[
        float, Meta(description="Its part of the queue's deliveries, as these turns divide them.")
    ]
    blocked: Annotated[
        Blocked | None, Meta(description="null: it may have another task in flight.")
    ] = None


class Group(Answer, frozen=True, kw_only=True):
    """The state of a group of a queue."""

    group_key: str
    weight: float
    turn: Annotated[
        float, Meta(description="The turn of its next task; a task of weight 1 takes 1.")
    ]
    waiting: Annotated[int, Meta(description="At least, if one call cannot count them all.")]
    inflight: Annotated[int, Meta(description="At least, if one call cannot count them all.")]
    limit: Annotated[int | None, Meta(description="Most in flight; null: no limit.")] = None
    blocked: Annotated[
        Blocked | None, Meta(description="null: it may have another task in flight.")
    ] = None
    as_of: At


class AlertOn(Answer, frozen=True, kw_only=True):
    """An alert of a queue that is on.

    Shows ``headrace.domain.alerts.Alert``.
    """

    threshold: Annotated[str, Meta(description="The name of its setting.")]
    since: At
    limit: float
    value: Annotated[float, Meta(description="What was measured when it began.")]


class Stats(Answer, frozen=True, kw_only=True):
    """A queue at a glance.

    Small numbers are counted on the spot, large ones come from the table's stream. Where both
    ready and scheduled tasks are more than some hundred, their sum is counted and divided by
    estimate; `exact=true` counts what one call can count.
    """

    counts: Counts
    age_of_oldest_ready_seconds: Annotated[
        float | None, Meta(description="How long it has been due; null: nothing is ready.")
    ]
    age_of_oldest_inflight_seconds: Annotated[
        float | None,
        Meta(
            description="How long ago the task whose lease, as first granted, ends first was "
            "handed out; null: nothing is in flight."
        ),
    ]
    rates: Rates
    as_of: AsOf
    staleness_seconds: Staleness
    groups: Annotated[
        list[GroupInShort] | None,
        Meta(description="The 20 with most of the next turns; null: the queue has no groups."),
    ] = None
    alerts: Annotated[
        list[AlertOn] | None,
        Meta(description="The current alerts; null: the queue has no `alerts`."),
    ] = None


class Point(Answer, frozen=True, kw_only=True):
    """The events of one step."""

    at: Annotated[At, Meta(description="Where the step begins.")]
    enqueued: Annotated[Number, Meta(description="New, moved here, or restarted; not a retry.")]
    started: Annotated[Number, Meta(description="Deliveries.")]
    succeeded: Number
    failed: Annotated[Number, Meta(description="Attempts that failed or whose lease lapsed.")]
    dead: Annotated[Number, Meta(description="Given up: rejected, exhausted or expired.")]
    cancelled: Annotated[Number, Meta(description="Cancelled, waiting or in flight.")] = None
    wait_p50: Percentile
    wait_p99: Annotated[Percentile, Meta(description="From the due time to the delivery.")]
    run_p50: Percentile
    run_p99: Annotated[
        Percentile, Meta(description="From the delivery to the report that ends it.")
    ]


class Metrics(Answer, frozen=True, kw_only=True):
    """A time series without gaps."""

    points: list[Point]
    step_seconds: int
    as_of: AsOf
    staleness_seconds: Staleness


# ------------------------------------------------------------------------------------- schedules


class ScheduleInShort(Carrying, frozen=True, kw_only=True):
    """A schedule in the answer about its queue."""

    name: str
    cron: str | None
    every_seconds: float | None
    timezone: str
    paused: bool
    next_run_at: Annotated[At | None, Meta(description="null: none, or it is paused.")]
    tags: dict[str, str] = msgspec.field(default_factory=dict)


class Schedule(ScheduleInShort, frozen=True, kw_only=True):
    """A schedule and its settings.

    Shows ``headrace.domain.schedule.Schedule``.
    """

    dedupe_key: str | None
    expires_in_seconds: float | None
    keepalive_timeout_in_seconds: float | None
    retry_strategy: RetryStrategy | None
    priority: Priority | None = None
    missed: Missed = Missed.LATEST
    on_expiry: OnExpiry = OnExpiry.DEAD
    dedupe_until: DedupeUntil = DedupeUntil.END
    note: str | None = None
    last_run_at: Annotated[
        At | None,
        Meta(description="The latest tick that has come, or when it was run by hand."),
    ]
    created_at: At
    updated_at: At
    payload_json: Annotated[msgspec.Raw, Meta(description="Left out for a viewer."), SOMETIMES] = (
        msgspec.field(name="payload", default_factory=nothing)
    )

    @property
    def payload(self) -> JsonValue:
        """The payload of its tasks; None for a viewer.  Raises Unreadable."""
        return self.decoded("payload", self.payload_json)


class ScheduleList(Answer, frozen=True, kw_only=True):
    """A page of the schedules of a queue, by name."""

    schedules: list[Schedule]
    cursor: Cursor


# ---------------------------------------------------------------------------------------- queues


class TargetShown(Answer, frozen=True, kw_only=True):
    """Where the service sends the tasks of a queue.

    Shows ``headrace.domain.push.Target``.
    """

    url: str | None
    function: Annotated[str | None, Meta(description="The ARN of a Lambda function.")] = (
        msgspec.field(name="lambda")
    )
    timeout_in_seconds: float
    max_concurrency: int
    headers: Annotated[
        dict[str, str], Meta(description="Values are shown to admins, to others as `********`.")
    ]


class OnEndShown(Answer, frozen=True, kw_only=True):
    """The queue that is notified of tasks that end in a queue.

    Shows ``headrace.domain.queue_settings.OnEnd``.
    """

    queue: Annotated[str | None, Meta(description="null: a queue that is not the key's.")]
    states: list[State]


class AlertsShown(Answer, frozen=True, kw_only=True):
    """The limits of a queue that are worth an alert, and the queue that is notified.

    Shows ``headrace.domain.queue_settings.AlertSettings``.
    """

    queue: Annotated[str | None, Meta(description="null: a queue that is not the key's.")]
    oldest_ready_seconds: float | None = None
    dead_per_minute: int | None = None
    no_workers_for_seconds: float | None = None


class SigningSecret(Answer, frozen=True, kw_only=True):
    """The secrets that sign requests to the target; see `webhooks.verify` of the SDK."""

    secret: Annotated[str | None, Meta(description="null only in a repeated answer.")]
    previous: Annotated[
        str | None, Meta(description="The secret before a rotation; it signs too for a day.")
    ]
    previous_until: At | None


class PauseShown(Answer, frozen=True, kw_only=True):
    """The pause of a queue: the key that paused it, the time, and the reason.

    Shows ``headrace.domain.queue.Pause``.
    """

    by: Annotated[str, Meta(description="The name of the key, or `service`.")]
    at: At
    reason: Annotated[str, Meta(description="Empty if none was given.")]
    until: Annotated[At | None, Meta(description="When it ends; null: when the queue is resumed.")]


class Queue(Answer, frozen=True, kw_only=True):
    """A queue and its settings.

    Shows ``headrace.domain.queue.Queue``; ``stats`` and ``schedules`` only where one queue was
    requested.
    """

    name: str
    description: str
    owner: str = ""
    keepalive_timeout_in_seconds: float
    expires_in_seconds: float
    retry_strategy: RetryStrategy
    dequeuing_settings: DequeuingSettings
    dead_letter_queue_config: DeadLetterConfig
    history_retention_in_seconds: float
    shards: int
    priority: PrioritySettings | None = None
    groups: GroupSettings | None = None
    target: TargetShown | None = None
    on_end: OnEndShown | None = None
    alerts: AlertsShown | None = None
    indexed_fields: list[str] = msgspec.field(default_factory=list)
    created_at: At
    updated_at: At
    version: int
    pause: Annotated[
        PauseShown | None,
        Meta(
            description="Only of a queue that is paused, and for keys that may operate it; "
            "ignored in requests."
        ),
        SOMETIMES,
    ] = None
    stats: Stats | None = None
    schedules: Annotated[
        list[ScheduleInShort] | None, Meta(description="The first 100, by name.")
    ] = None
    schedules_cursor: Annotated[
        str | None,
        Meta(description="The `cursor` with which the list of schedules continues; null: all are."),
    ] = None


class Queues(Answer, frozen=True, kw_only=True):
    """A page of queues, by name."""

    queues: list[Queue]
    cursor: Cursor


class Purged(Answer, frozen=True, kw_only=True):
    """The number of tasks that were removed so far.

    Shows ``in_background`` to programs that use the SDK, which see it by the answer's status.
    """

    deleted: int
    undo: Annotated[
        Undoable | None, Meta(description="Only with `undo_in_seconds`."), SOMETIMES
    ] = None
    in_background: Annotated[bool, SDK_ONLY] = False


class Recount(Answer, frozen=True, kw_only=True):
    """The progress of a recount, by stored state; final when `cursor` is null."""

    counts: Annotated[
        ByState,
        Meta(
            description="Counted so far, in the order of the states; in the end the counters are "
            "set to it. With tasks past their retention, until the table removes them."
        ),
    ]
    was: Annotated[
        ByState,
        Meta(description="What the counters say or, once they are set, what they said before."),
    ]
    cancelled: Annotated[int, Meta(description="How many of the dead in `counts` were.")] = 0
    was_cancelled: Annotated[int, Meta(description="How many of the dead in `was` were.")] = 0
    exact: Annotated[
        bool,
        Meta(
            description="Whether no task of the queue was written since the first step. If one "
            "was, the counters may be off by such tasks."
        ),
    ]
    cursor: Cursor = None
