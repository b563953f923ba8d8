"""Batches: create, close, show, list, delete, cancel, recount, and their results and steps."""

from datetime import datetime
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import structs
from pydantic import Field, PlainValidator, WithJsonSchema, field_validator, model_validator

from headrace.domain import limits
from headrace.domain.access import Permission
from headrace.domain.batch import RESULTS, BatchEvent, Callback, TaskBatch
from headrace.domain.limits import RELAY_PAYLOAD
from headrace.http.fields import (
    PLAIN,
    BatchId,
    Examples,
    RequestBody,
    contradiction,
    example,
    within,
    wrong,
)
from headrace.http.parameters import Cursor, Limit, ListQueryText, asked, keys_of
from headrace.http.queue_bodies import FIRST_STEP, StepBody
from headrace.http.reports import SpawnEntry
from headrace.http.request import Reply, principal
from headrace.http.routing import Routes
from headrace.ops.search.list_queries import BATCHES
from headrace.ops.tasks.steps import BatchStep, steps_of
from headrace.runtime.wiring import current_service
from headrace.wire import batches as batch_wire
from headrace.wire.base import LEFT_OUT, instant, raw

routes: Final = Routes("Batches")

BatchInPath: TypeAlias = Annotated[str, Field(description="The id of the batch.")]


def _not_in_callback(value: object) -> None:
    if value is not None:
        raise wrong("has no meaning for a callback of a batch; leave it out")


NotInCallback: TypeAlias = Annotated[
    None,
    PlainValidator(_not_in_callback),
    WithJsonSchema({"type": "null", "description": "Has no meaning here."}),
]


class CallbackEntry(SpawnEntry):
    """A task that a batch enqueues, in any queue. The batch chooses its id."""

    id: NotInCallback = None
    dedupe_key: NotInCallback = None
    unique_for_seconds: NotInCallback = None
    payload_ref: NotInCallback = None
    relay: bool = Field(
        default=False,
        description="Instead of a payload: the task runs nothing. In the results of the batches "
        "that it joins, it stands for the members of this batch.",
    )

    @model_validator(mode="after")
    def _relays_or_carries(self) -> "CallbackEntry":
        if self.relay and self.payload is not None:
            raise contradiction("excludes payload", "relay")
        return self

    def callback(self) -> Callback:
        """Return the entry as the use case takes it."""
        queue, new = self.child()
        if self.relay:
            new = structs.replace(new, payload=RELAY_PAYLOAD)
        return Callback(queue, new, relay=self.relay)


_Total: TypeAlias = Annotated[int, within(limits.BATCH_MEMBERS)]


class CallbacksBody(RequestBody):
    """The tasks that a batch enqueues, each at most once."""

    ended: CallbackEntry | None = Field(default=None, description="When every member has ended.")
    succeeded: CallbackEntry | None = Field(
        default=None, description="When every member has succeeded."
    )
    failed: CallbackEntry | None = Field(
        default=None, description="When the first member is dead; the others continue."
    )

    def callbacks(self) -> dict[BatchEvent, Callback]:
        """Return the callbacks that were given."""
        given = {event: getattr(self, event) for event in BatchEvent}
        return {event: entry.callback() for event, entry in given.items() if entry}


class CreateBatchBody(RequestBody):
    """A new batch."""

    id: BatchId | None = Field(
        default=None, description="An id of your own makes the call safe to repeat."
    )
    total: _Total | None = Field(
        default=None, description="How many members will be enqueued; null: close it later."
    )
    on: CallbacksBody = Field(default_factory=CallbacksBody)
    expires_in_seconds: Annotated[float, within(limits.BATCH_EXPIRES_SECONDS), PLAIN] | None = (
        Field(
            default=None,
            description="After that it is forgotten and calls nothing back; "
            f"{limits.BATCH_EXPIRES_DEFAULT} when left out.",
        )
    )

    @field_validator("on", mode="before")
    @classmethod
    def _none_are_none(cls, value: object) -> object:
        return {} if value is None else value


class CloseBatchBody(RequestBody):
    """The number of members of a batch."""

    total: _Total


CREATE_BATCH: Final[Examples] = {
    "open": example(
        "An open batch, with a task for its end",
        {"on": {"ended": {"queue": "mail", "payload": {"report": "nightly"}}}},
    ),
    "counted": example(
        "A batch of known size with an id of your own",
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
CLOSE_BATCH: Final[Examples] = {"close": example("The batch has three members", {"total": 3})}


# ------------------------------------------------------------------------------------------ answers


def batch_answer(batch: TaskBatch) -> batch_wire.BatchSeen:
    """Return the answer about a batch."""
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
    also={200: "The batch existed already."},
    examples=CREATE_BATCH,
)
def create_batch(body: CreateBatchBody | None = None) -> batch_wire.BatchSeen | Reply:
    """Create a batch.

    Tasks join it by `batches` when they are enqueued or spawned. The service enqueues each callback
    once, in the way of `spawn`. A repeat with the same `id` and body is answered with 200 and the
    batch; another body is 409 `batch_exists`.
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


@routes.add("GET", "/v1/batches", Permission.READ, description=keys_of(BATCHES))
def list_batches(
    prefix: Annotated[str, Field(description="Only ids with this prefix.", max_length=64)] = "",
    parts: Annotated[
        Literal["true", "false"] | None,
        Field(
            description="false: list the batches within another batch only if `prefix` starts "
            "with its id and `-`."
        ),
    ] = None,
    query: ListQueryText = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> batch_wire.Batches:
    """List batches by id.

    Shows batches whose queues are all queues of the key. Ids that the service chose sort by age.
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


@routes.add("GET", "/v1/batches/{id}", Permission.READ)
def get_batch(id: BatchInPath) -> batch_wire.BatchSeen:
    """Show a batch."""
    return batch_answer(_own(id))


@routes.add("POST", "/v1/batches/{id}/close", Permission.ENQUEUE, examples=CLOSE_BATCH)
def close_batch(id: BatchInPath, body: CloseBatchBody) -> batch_wire.BatchSeen:
    """Set the number of members of a batch.

    The number counts the tasks that were enqueued into the batch, without the tasks that its
    members spawn. It can be changed until the batch has ended; after that a different number is 409
    `batch_finished`.
    """
    return batch_answer(current_service().task_batches.close(_own(id).id, body.total))


@routes.add("GET", "/v1/batches/{id}/results", Permission.READ, Permission.DETAILS)
def batch_results(id: BatchInPath, cursor: Cursor = None) -> batch_wire.BatchResults:
    """Show the results of the members.

    Shows up to 100 members, in the order in which they were counted, in their current state.
    Members that are no longer stored are missing (each member is stored for at least an hour), and
    so are members in queues that the key is not for. A page is shorter if it would be too large.
    Viewers may not call it.
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
    return batch_wire.BatchResults(results=shown, truncated=truncated, cursor=page.cursor)


@routes.add("GET", "/v1/batches/{id}/steps", Permission.READ)
def batch_steps(id: BatchInPath) -> batch_wire.BatchSteps:
    """Show the steps of a workflow.

    Shows the first 100 members, and the steps that wait, with the steps that they wait for. Waiting
    steps are read from the batches within this batch, at most 250.
    """
    uses = current_service()
    found, now = steps_of(uses.task_batches, _own(id)), uses.now()
    return batch_wire.BatchSteps(
        steps=[_step_answer(step, now) for step in found.steps],
        left_out=found.left_out,
        more_wait=found.more_wait,
    )


@routes.add("POST", "/v1/batches/{id}/cancel", Permission.CANCEL, examples=FIRST_STEP)
def cancel_batch(id: BatchInPath, body: StepBody | None = None) -> batch_wire.CancelledBatch:
    """Cancel a batch with its members, or a workflow with its steps.

    No further step is created, the batch takes no new members, and members that wait or are in
    flight are cancelled. The batch then ends and enqueues its callbacks like a batch with dead
    members. If the ids of members are unknown, the service reads every task that waits or is in
    flight in the queues of the key, one read unit each. While the answer has a `cursor`, send it
    for the next step. Members that were cancelled before are not counted again.
    """
    step = current_service().batch_cancelling.step(_own(id).id, body.cursor if body else None)
    return batch_wire.CancelledBatch(cancelled=step.cancelled, cursor=step.cursor)


@routes.add("POST", "/v1/batches/{id}/recount", Permission.OPERATE, examples=FIRST_STEP)
def recount_batch(id: BatchInPath, body: StepBody | None = None) -> batch_wire.BatchRecount:
    """Recount the members of a batch and correct its numbers.

    Use it for a batch that does not end after the recorder was down for more than six hours. Each
    call reads ended tasks for some seconds. While the answer has a `cursor`, send it for the next
    step. If every member is still stored and ended at least ten minutes before the recount, the
    last step corrects the batch, which then enqueues its callbacks. Otherwise the batch does not
    change, and `refusal` has the reason.
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


@routes.add("DELETE", "/v1/batches/{id}", Permission.ENQUEUE, status=204)
def delete_batch(id: BatchInPath) -> None:
    """Delete a batch and its callbacks.

    Its members stay and continue. They are not members of a later batch with the same id.
    """
    current_service().task_batches.delete(_own(id).id)


def _own(id: str) -> TaskBatch:
    return current_service().task_batches.get(id)
