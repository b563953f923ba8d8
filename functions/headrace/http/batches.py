"""Batches: make, close, show, list, delete, results."""

from dataclasses import replace
from datetime import datetime
from typing import Annotated, Final, Literal, TypeAlias
from urllib.parse import unquote

from pydantic import Field, field_validator, model_validator

from headrace.domain import limits
from headrace.domain.access import Permission
from headrace.domain.batch import RESULTS, BatchEvent, Callback, TaskBatch
from headrace.domain.limits import RELAY_PAYLOAD
from headrace.http.fields import (
    BatchId,
    BatchLife,
    BatchTotal,
    Examples,
    NotInCallback,
    RequestBody,
    contradiction,
    example,
)
from headrace.http.parameters import Cursor, Limit, ListQueryText, asked, keys_of
from headrace.http.queue_bodies import RECOUNT, RecountBody
from headrace.http.report_bodies import QueuedEntry
from headrace.http.request import Reply, principal
from headrace.http.routing import Answered, Routes
from headrace.ops.operators import visibility
from headrace.ops.operators.list_queries import BATCHES
from headrace.ops.tasks.steps import BatchStep, steps_of
from headrace.runtime.wiring import current_service
from headrace.wire import batches as batch_wire
from headrace.wire.base import LEFT_OUT, instant, raw

routes: Final = Routes("Batches")

BatchInPath: TypeAlias = Annotated[str, Field(description="The id of the batch.")]


class CallbackEntry(QueuedEntry):
    """A task that a batch enqueues, in whatever queue; its id is the batch's to choose."""

    id: NotInCallback = None
    dedupe_key: NotInCallback = None
    unique_for_seconds: NotInCallback = None
    payload_ref: NotInCallback = None
    relay: bool = Field(
        default=False,
        description="Instead of a payload: the task runs nothing. In the results of the batches "
        "that it joins it stands for the members of this batch.",
    )

    @model_validator(mode="after")
    def _relays_or_carries(self) -> "CallbackEntry":
        if self.relay and self.payload is not None:
            raise contradiction(("relay", "excludes payload"))
        return self

    def callback(self) -> Callback:
        """Return the entry as the use case takes it."""
        queue, new = self.child()
        if self.relay:
            new = replace(new, payload=RELAY_PAYLOAD)
        return Callback(queue, new, relay=self.relay)


class CallbacksBody(RequestBody):
    """What a batch enqueues, each at most once."""

    ended: CallbackEntry | None = Field(
        default=None, description="When every member has ended, one way or another."
    )
    succeeded: CallbackEntry | None = Field(
        default=None, description="When every member has ended and none is dead."
    )
    failed: CallbackEntry | None = Field(
        default=None, description="When the first member is dead; the others go on."
    )

    def callbacks(self) -> dict[BatchEvent, Callback]:
        """Return those that were given."""
        given = {event: getattr(self, event) for event in BatchEvent}
        return {event: entry.callback() for event, entry in given.items() if entry}


class CreateBatchBody(RequestBody):
    """A batch to be made."""

    id: BatchId | None = Field(
        default=None, description="An id of your own makes the call safe to repeat."
    )
    total: BatchTotal | None = Field(
        default=None, description="How many members will be enqueued; null: close it later."
    )
    on: CallbacksBody = Field(default_factory=CallbacksBody)
    expires_in_seconds: BatchLife | None = Field(
        default=None,
        description="After that it is forgotten and calls nothing back; "
        f"{limits.BATCH_EXPIRES_DEFAULT} when left out.",
    )

    @field_validator("on", mode="before")
    @classmethod
    def _none_are_none(cls, value: object) -> object:
        return {} if value is None else value


class CloseBatchBody(RequestBody):
    """How many members a batch has."""

    total: BatchTotal


CREATE_BATCH: Final[Examples] = {
    "open": example(
        "Open, with a task for when all is done",
        {"on": {"ended": {"queue": "mail", "payload": {"report": "nightly"}}}},
    ),
    "counted": example(
        "Of a known size, under an id of one's own",
        {
            "id": "import-2026-11-21",
            "total": 3,
            "on": {
                "succeeded": {"queue": "mail", "payload": {"import": "done"}},
                "failed": {"queue": "mail", "payload": {"import": "has failures"}},
            },
            "expires_in_seconds": 86400,
        },
    ),
}
CLOSE_BATCH: Final[Examples] = {"close": example("It has three members", {"total": 3})}


# ------------------------------------------------------------------------------------------ answers


def batch_answer(batch: TaskBatch) -> batch_wire.BatchSeen:
    """A batch."""
    callbacks = {
        str(event): batch_wire.BatchCallback(task_id=fired.task_id, fired_at=instant(fired.at))
        for event, fired in batch.fired.items()
    }
    staleness = None
    if batch.counted_at is not None:
        staleness = max(0.0, (current_service().now() - batch.counted_at).total_seconds())
    return batch_wire.BatchSeen.of(
        batch, dead_ids=list(batch.dead_ids), callbacks=callbacks, staleness_seconds=staleness
    )


def _step_answer(step: BatchStep, now: datetime) -> batch_wire.BatchStep:
    part = step.part
    return batch_wire.BatchStep(
        task_id=step.task_id,
        name=step.name,
        queue=step.queue,
        status=None if step.task is None else step.task.status(now),
        made=step.made,
        stopped=step.stopped,
        after=list(step.after),
        part=None if part is None else part.id,
        part_total=None if part is None else part.total,
        part_ended=0 if part is None else part.ended,
        part_dead=0 if part is None else part.dead,
    )


# ------------------------------------------------------------------------------------------- routes


@routes.add(
    "POST",
    "/v1/batches",
    Permission.ENQUEUE,
    status=201,
    answer="The batch.",
    schema="Batch",
    also={200: "It is there already."},
    examples=CREATE_BATCH,
)
def create_batch(body: CreateBatchBody | None = None) -> Answered:
    """Make a batch.

    Tasks join it by `batches` when they are enqueued or spawned. What it is to enqueue is
    enqueued by the service, once, in the way of `spawn`. The same `id` and body again answer
    200 with the batch; another body is 409 `batch_exists`.
    """
    wanted = body or CreateBatchBody()
    made = current_service().task_batches.create(
        wanted.on.callbacks(),
        batch_id=wanted.id,
        total=wanted.total,
        expires_in_seconds=wanted.expires_in_seconds,
        made_for=principal().patterns,
    )
    return Reply(batch_answer(made.batch), 201 if made.new else 200)


@routes.add(
    "GET", "/v1/batches", Permission.READ, answer="A page of batches.", description=keys_of(BATCHES)
)
def list_batches(
    prefix: Annotated[str, Field(description="Only ids that begin so.", max_length=64)] = "",
    parts: Annotated[
        Literal["true", "false"] | None,
        Field(
            description="false: those that stand within another only where `prefix` begins with "
            "its id and `-`."
        ),
    ] = None,
    query: ListQueryText = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> batch_wire.Batches:
    """List batches by id.

    Those whose queues are all the key's. Ids that the service makes sort by age.
    """
    page = current_service().task_batches.list(
        prefix=prefix,
        parts=parts != "false",
        where=asked(BATCHES, query),
        limit=limit,
        cursor=cursor,
    )
    shown = [batch_answer(batch) for batch in page.shown]
    return batch_wire.Batches(batches=shown, cursor=page.cursor)


@routes.add("GET", "/v1/batches/{id}", Permission.READ, answer="The batch.")
def get_batch(id: BatchInPath) -> batch_wire.BatchSeen:
    """Show a batch."""
    return batch_answer(_own(id))


@routes.add(
    "POST", "/v1/batches/{id}/close", Permission.ENQUEUE, answer="The batch.", examples=CLOSE_BATCH
)
def close_batch(id: BatchInPath, body: CloseBatchBody) -> batch_wire.BatchSeen:
    """Say how many members a batch has.

    All that were enqueued into it; not those that members spawn. Until it has ended it may be
    said again, differently; then that is 409 `batch_finished`.
    """
    return batch_answer(current_service().task_batches.close(_own(id).id, body.total))


@routes.add(
    "GET",
    "/v1/batches/{id}/results",
    Permission.READ,
    Permission.DETAILS,
    answer="The members.",
    schema="BatchResults",
)
def batch_results(id: BatchInPath, cursor: Cursor = None) -> Answered:
    """Show what members came to.

    The up to 100 members that were counted first, as they stand; without those that are not
    kept any more (a member is kept for an hour at least), and those that have moved to a queue
    that is not the key's. A page ends early where it would be too large. Not for viewers.
    """
    batch = _own(id)
    use = current_service()
    page = use.task_batches.results_page(batch.id, use.texts, cursor)
    shown = [
        batch_wire.BatchResult(
            id=task.id,
            queue=task.queue,
            state=task.state,
            result_json=raw(task.result),
            stands_for=task.batch.id if task.batch is not None and task.batch.relay else LEFT_OUT,
        )
        for task in page.shown
    ]
    truncated = batch.created > RESULTS
    return Reply(batch_wire.BatchResults(results=shown, truncated=truncated, cursor=page.cursor))


@routes.add(
    "GET", "/v1/batches/{id}/steps", Permission.READ, answer="The steps.", schema="BatchSteps"
)
def batch_steps(id: BatchInPath) -> Answered:
    """Show the steps of a workflow.

    Its first 100 members, and the steps that wait for their turn, with what each waits for.
    What waits is read from the batches within this one, 250 of them at most.
    """
    uses = current_service()
    found, now = steps_of(uses.task_batches, _own(id)), uses.now()
    return Reply(
        batch_wire.BatchSteps(
            steps=[_step_answer(step, now) for step in found.steps],
            left_out=found.left_out,
            more_wait=found.more_wait,
        )
    )


@routes.add(
    "POST",
    "/v1/batches/{id}/cancel",
    Permission.CANCEL,
    answer="What was cancelled.",
    examples=RECOUNT,
)
def cancel_batch(id: BatchInPath, body: RecountBody | None = None) -> batch_wire.CancelledBatch:
    """Cancel a batch with its members, or a workflow with its steps.

    No step is made any more, the batch takes no new members, and those that wait or are in
    flight are cancelled. It ends then, and calls back, as a batch whose members are dead. Where
    members have ids that nobody knows, every task that waits or is in flight in the queues of
    the key is looked at, which takes a read unit each: while there is a `cursor`, send it for
    the next step. What was cancelled before is not counted again.
    """
    step = current_service().batch_cancelling.step(_own(id).id, body.cursor if body else None)
    return batch_wire.CancelledBatch(cancelled=step.cancelled, cursor=step.cursor)


@routes.add(
    "POST", "/v1/batches/{id}/recount", Permission.OPERATE, answer="The progress.", examples=RECOUNT
)
def recount_batch(id: BatchInPath, body: RecountBody | None = None) -> batch_wire.BatchRecount:
    """Recount the members of a batch and correct its numbers.

    For a batch that does not end after the recorder was away for more than six hours. Each call
    reads ended tasks for some seconds; while there is a `cursor`, send it for the next step. If
    every member is still kept and ended at least ten minutes before the recount, the last step
    corrects the batch, which then calls back. Otherwise the batch stays as it is, and `refusal`
    says why.
    """
    step = current_service().batch_recounting.step(_own(id).id, body.cursor if body else None)
    return batch_wire.BatchRecount(
        succeeded=step.found.succeeded,
        dead=step.found.dead,
        was_succeeded=step.was.succeeded,
        was_dead=step.was.dead,
        refusal=step.refusal,
        cursor=step.cursor,
    )


@routes.add(
    "DELETE", "/v1/batches/{id}", Permission.ENQUEUE, status=204, answer="The batch is gone."
)
def delete_batch(id: BatchInPath) -> None:
    """Forget a batch and its callbacks.

    Its members stay, and go on; they are none of a new batch of the same id.
    """
    current_service().task_batches.delete(_own(id).id)


def _own(path: str) -> TaskBatch:
    return visibility.batch(current_service().task_batches, principal(), unquote(path))
