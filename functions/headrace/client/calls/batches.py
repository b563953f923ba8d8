"""Calls about batches: create, close and read them."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from headrace.client.calls import (
    ApiCall,
    PagedCall,
    RawAnswer,
    SteppedCall,
    deletes,
    gets,
    json_body,
    lists,
    params_of,
    path_of,
    reads,
    steps,
    without_none,
)
from headrace.client.codec import Codec, remember_codec
from headrace.client.sending import SpawnedTask, callback_entry, check_call
from headrace.client.settings import utc_now
from headrace.domain.ids import new_batch_id
from headrace.wire.batches import (
    Batches,
    BatchRecount,
    BatchResults,
    BatchSeen,
    BatchSteps,
    CancelledBatch,
)


def create_batch(
    *,
    id: str | None = None,
    total: int | None = None,
    on_ended: SpawnedTask | None = None,
    on_succeeded: SpawnedTask | None = None,
    on_failed: SpawnedTask | None = None,
    expires_in_seconds: float | None = None,
) -> ApiCall[BatchSeen]:
    """Create a batch.  Repeats are safe: the client chooses a missing id.

    Each callback is a task that the service enqueues once.  *total* is the number of tasks that
    will be enqueued into the batch; without it, close the batch when the number is known.

    Raises BatchExists if another batch has this id, and InvalidRequest naming the field.
    """
    callbacks = without_none(ended=on_ended, succeeded=on_succeeded, failed=on_failed)
    for event, callback in callbacks.items():
        check_call(callback, f"on_{event}")
    name = id or new_batch_id(utc_now())

    def body(codec: Codec) -> bytes:
        on = {
            event: callback_entry(task, codec, path=f"on.{event}")
            for event, task in callbacks.items()
        }
        fields: Mapping[str, Any] = without_none(
            id=name, total=total, expires_in_seconds=expires_in_seconds
        )
        return json_body({**fields, **({"on": on} if on else {})})

    return ApiCall("POST", path_of("batches"), reads(BatchSeen), body=body)


def get_batch(id: str) -> ApiCall[BatchSeen]:
    """Return a batch with its latest counts.  Raises NotFound."""
    return gets(BatchSeen, "batches", id)


def list_batches(
    *,
    prefix: str | None = None,
    parts: bool = True,
    query: str | None = None,
    limit: int | None = None,
) -> PagedCall[BatchSeen]:
    """Yield the batches whose id begins with *prefix*, by id; ids of the service sort by age.

    Without *parts*, batches within another one are left out unless *prefix* names the outer one.
    *query* narrows the list, in the language of the console's search: ``state:open dead:yes``.
    Raises InvalidRequest with the place of an error in *query*.
    """
    return lists(
        path_of("batches"),
        Batches,
        lambda page: page.batches,
        params_of(prefix=prefix, parts=None if parts else False, query=query, limit=limit),
    )


def member_id(batch_id: str, place: int) -> str:
    """Return the id of the task that a block adds to a batch at *place*.

    A block that runs again therefore adds no member twice, and a callback can read all members.
    """
    return f"mbr_{sha256(f'{batch_id} {place}'.encode()).hexdigest()[:40]}"


def close_batch(id: str, total: int) -> ApiCall[BatchSeen]:
    """Set the number of tasks that were enqueued into a batch.

    It can be changed until the batch has ended; then another number raises BatchFinished.
    Raises NotFound.
    """
    return ApiCall(
        "POST",
        path_of("batches", id, "close"),
        reads(BatchSeen),
        body=lambda _: json_body({"total": total}),
    )


def batch_results(id: str) -> SteppedCall[BatchResults]:
    """Return the results of the first hundred members, page by page.  Raises NotFound."""

    def read(answer: RawAnswer) -> BatchResults:
        found = reads(BatchResults)(answer)
        for one in found.results:
            remember_codec(one, answer.codec)
        return found

    def at(cursor: str | None) -> ApiCall[BatchResults]:
        path = path_of("batches", id, "results")
        return ApiCall("GET", path, read, params=params_of(cursor=cursor))

    def total(pages: Sequence[BatchResults]) -> BatchResults:
        results = [one for page in pages for one in page.results]
        return msgspec.structs.replace(pages[-1], results=results)

    return SteppedCall(at, total)


def cancel_batch(id: str) -> SteppedCall[CancelledBatch]:
    """Cancel a batch with its members, or a workflow with its steps; ``cancelled`` counts them.

    The batch takes no new members, and ends.  Members that were cancelled before do not count.
    If the ids of some members are not known, the service reads every task that waits or is in
    flight.  Raises NotFound.
    """

    def total(found: Sequence[CancelledBatch]) -> CancelledBatch:
        return CancelledBatch(cancelled=sum(step.cancelled for step in found))

    return steps(CancelledBatch, "batches", id, "cancel", total=total)


def batch_steps(id: str) -> ApiCall[BatchSteps]:
    """Return the running and the waiting steps of a workflow.  Raises NotFound."""
    return gets(BatchSteps, "batches", id, "steps")


def recount_batch(id: str) -> SteppedCall[BatchRecount]:
    """Recount the members of a batch and correct its numbers, step by step.

    Use it after a long failure of the recorder.  ``refusal`` says why the batch is unchanged.
    Raises NotFound.
    """
    return steps(BatchRecount, "batches", id, "recount")


def delete_batch(id: str) -> ApiCall[None]:
    """Delete a batch and its callbacks; its members stay.  Raises NotFound."""
    return deletes("batches", id)
