"""The shapes of answers about how a queue is doing."""

from typing import Annotated, TypeAlias

from pydantic import Field

from headrace.history.counters import KEPT
from headrace.history.metrics import POINTS
from headrace.http.answers import Answer, At

Percentile: TypeAlias = Annotated[
    float | None, Field(description="Seconds, at most 2.5 % off; null: nothing to measure.")
]
AsOf: TypeAlias = Annotated[
    At,
    Field(
        description="Every change up to here is counted. Nothing is heard from a queue in which "
        "nothing changes: when the index shows no later change either, this is now."
    ),
]
Staleness: TypeAlias = Annotated[float, Field(description="How long ago `as_of` is.")]


class Counts(Answer):
    """How many tasks a queue has."""

    scheduled: int
    ready: int
    inflight: int
    succeeded: int
    dead: int


class Rates(Answer):
    """Events per second, from the beginning of the last full minute up to `as_of`."""

    enqueued_per_second: float
    dequeued_per_second: float
    succeeded_per_second: float
    failed_per_second: float


class Stats(Answer):
    """A queue at a glance.

    Small numbers are counted on the spot, large ones come from the table's stream. Where both
    ready and scheduled tasks are more than some hundred, their sum is counted and divided by
    estimate; `exact=true` counts what one call can count.
    """

    counts: Counts
    age_of_oldest_ready_seconds: Annotated[
        float | None, Field(description="How long it has been due; null: nothing is ready.")
    ]
    age_of_oldest_inflight_seconds: Annotated[
        float | None,
        Field(
            description="How long ago the task whose lease, as first granted, ends first was "
            "handed out; null: nothing is in flight."
        ),
    ]
    rates: Rates
    as_of: AsOf
    staleness_seconds: Staleness


Number: TypeAlias = Annotated[
    int | None, Field(description="null: not known, as the service has it no longer or not yet.")
]


class Point(Answer):
    """What happened in one step."""

    at: Annotated[At, Field(description="Where the step begins.")]
    enqueued: Annotated[Number, Field(description="New, moved here, or restarted; not a retry.")]
    started: Annotated[Number, Field(description="Deliveries.")]
    succeeded: Number
    failed: Annotated[Number, Field(description="Attempts that failed or whose lease lapsed.")]
    dead: Number
    wait_p50: Percentile
    wait_p99: Annotated[Percentile, Field(description="From the due time to the delivery.")]
    run_p50: Percentile
    run_p99: Annotated[
        Percentile, Field(description="From the delivery to the report that ends it.")
    ]


class Metrics(Answer):
    """A series without gaps."""

    points: Annotated[
        list[Point],
        Field(
            max_length=POINTS,
            description=f"The service keeps {KEPT.days} days; what is older comes from the lake. "
            "Where that has no rolled-up day, or there is no lake, every number is null.",
        ),
    ]
    step_seconds: int
    as_of: AsOf
    staleness_seconds: Staleness


SHOWN: tuple[type[Answer], ...] = (Stats, Metrics)
"""What routes name in their documented answers."""
