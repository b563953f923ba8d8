"""Batches in answers."""

from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.domain.task import State, Status
from headrace.wire.base import Answer, At, Carrying, Cursor, JsonValue, nothing


class BatchCallback(Answer, frozen=True, kw_only=True):
    """A callback that was enqueued."""

    task_id: Annotated[str | None, Meta(description="null: its queue was missing.")]
    fired_at: At


class BatchSeen(Answer, frozen=True, kw_only=True):
    """A batch and its counts so far.

    ``created`` are members that were seen: ``live``, ``succeeded``, ``dead``, or ``deleted`` before
    their end.
    """

    id: str
    total: Annotated[
        int | None, Meta(description="How many members are enqueued in all; null: it is open.")
    ]
    created: int
    direct: Annotated[
        int,
        Meta(
            description="The `created` members that no member's report made: the batch ends when "
            "they are as many as `total`."
        ),
    ] = 0
    live: int
    succeeded: int
    dead: int
    deleted: int
    dead_ids: Annotated[list[str], Meta(description="Of up to 100 dead members.")]
    callbacks: Annotated[
        dict[str, BatchCallback], Meta(description="The callbacks that were made, by their event.")
    ]
    part_of: Annotated[
        str | None,
        Meta(
            description="The batch that it stands within: the id of that begins its own, and its "
            "callback is a member of it."
        ),
    ] = None
    cancelled_at: Annotated[
        At | None, Meta(description="When it was cancelled; it takes no new members since.")
    ] = None
    stopped: Annotated[
        bool,
        Meta(description="True if it makes no more callbacks, because its workflow was cancelled."),
    ] = False
    created_at: At
    expires_at: At
    finished_at: Annotated[At | None, Meta(description="When every member had ended.")]
    staleness_seconds: Annotated[
        float | None,
        Meta(description="How long ago the last change that was seen was; null: none was."),
    ]


class BatchStep(Answer, frozen=True, kw_only=True):
    """A step of a workflow, or another member of a batch.

    Shows ``headrace.ops.tasks.steps.BatchStep``.
    """

    task_id: Annotated[str, Meta(description="Its task, or the one that it will have.")]
    name: Annotated[str, Meta(description="Its name in the workflow; empty: it has none.")]
    queue: str
    status: Annotated[
        Status | None, Meta(description="null: it was not made yet, or is not retained.")
    ]
    made: Annotated[bool, Meta(description="Whether its turn has come.")]
    stopped: Annotated[
        bool, Meta(description="Whether it will not be made: the workflow was cancelled before.")
    ]
    after: Annotated[list[str], Meta(description="The tasks that it waits for.")]
    part: Annotated[
        str | None, Meta(description="The batch that makes it; null: it waits for none.")
    ]
    part_total: Annotated[int | None, Meta(description="How many steps it waits for.")]
    part_ended: Annotated[int, Meta(description="How many of them have ended.")]
    part_dead: Annotated[int, Meta(description="How many of them are dead.")]


class CancelledBatch(Answer, frozen=True, kw_only=True):
    """The number of tasks that a call cancelled; with a null `cursor` all are cancelled.

    Shows ``headrace.ops.tasks.cancel_batch.CancelledBatch``.
    """

    cancelled: Annotated[int, Meta(description="How many tasks, by this call.")]
    cursor: Cursor = None


class BatchSteps(Answer, frozen=True, kw_only=True):
    """The steps of a workflow: running, waiting and ended.

    Shows ``headrace.ops.tasks.steps.BatchSteps``.
    """

    steps: list[BatchStep]
    left_out: Annotated[
        int,
        Meta(
            description="How many members there are besides: a workflow's are found by the tag "
            "`workflow`, in the lists of their queues."
        ),
    ]
    more_wait: Annotated[
        bool,
        Meta(
            description="Whether steps may wait that are not here: list the batches whose ids "
            "begin with this one's and `-`."
        ),
    ] = False


class BatchRecount(Answer, frozen=True, kw_only=True):
    """The progress of a recount of a batch; final when `cursor` is null.

    `succeeded` and `dead` are the ended members that were found.
    """

    succeeded: int
    dead: int
    was_succeeded: Annotated[int, Meta(description="What the batch said before.")]
    was_dead: Annotated[int, Meta(description="What the batch said before.")]
    refusal: Annotated[
        str | None,
        Meta(description="Why the batch stays as it was; null if it has the numbers found."),
    ]
    cursor: Cursor = None


class Batches(Answer, frozen=True, kw_only=True):
    """A page of batches, by id; it may be short and still have a cursor."""

    batches: list[BatchSeen]
    cursor: Cursor


class BatchResult(Carrying, frozen=True, kw_only=True):
    """The result of one member."""

    id: str
    queue: str
    state: State
    result_json: msgspec.Raw = msgspec.field(name="result", default_factory=nothing)
    stands_for: Annotated[
        str | msgspec.UnsetType,
        Meta(description="Only of a relay: the batch for whose members it stands."),
    ] = msgspec.UNSET

    @property
    def result(self) -> JsonValue:
        """The result.  Raises Unreadable."""
        return self.decoded("result", self.result_json)


class BatchResults(Answer, frozen=True, kw_only=True):
    """The members that were counted first, with their results."""

    results: list[BatchResult]
    truncated: Annotated[bool, Meta(description="Whether the batch has more than 100 members.")]
    cursor: Cursor = None
