"""Calls about single tasks: enqueue, read, cancel and delete them.

Long, because signatures are what users read in `help()`: each has every field of the API.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Unpack

from headrace.client.calls import (
    ApiCall,
    RawAnswer,
    params_of,
    path_of,
    posts,
    reads,
    without_none,
)
from headrace.client.codec import Codec
from headrace.client.sending import NewTask, NewTaskFields, task_entry, tasks_body
from headrace.domain.errors import FieldError, NotEnqueued
from headrace.domain.ids import new_idempotency_key
from headrace.wire.base import JsonValue
from headrace.wire.tasks import (
    CancelledTask,
    DeletedTask,
    Enqueued,
    EnqueueResults,
    Explained,
    Reason,
    Task,
    Undoable,
)


def enqueue_entries(
    queue: str, entries: Sequence[bytes], *, key: str | None = None
) -> ApiCall[list[Enqueued]]:
    """Enqueue up to 25 tasks, written by ``task_entry``; INVALID is a result too.

    *key* is the idempotency key, for a caller that may send the same entries in another call.
    """

    def read(answer: RawAnswer) -> list[Enqueued]:
        return reads(EnqueueResults)(answer).results

    return ApiCall(
        "POST",
        path_of("queues", queue, "tasks"),
        read,
        body=lambda _: tasks_body(entries),
        key=key or new_idempotency_key(),
    )


def not_enqueued(invalid: Mapping[str, str], results: Sequence[Enqueued] = ()) -> NotEnqueued:
    """Return the error about the *invalid* entries among *results*."""
    errors = [FieldError(field, f"was not enqueued: {why}") for field, why in invalid.items()]
    more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
    error = NotEnqueued(f"{errors[0].field} {errors[0].message}{more}", errors=errors)
    error.results = tuple(results)
    return error


def check_enqueued(results: Sequence[Enqueued]) -> None:
    """Raise NotEnqueued naming every INVALID entry of *results*."""
    invalid = {
        f"tasks[{place}]": result.detail or ""
        for place, result in enumerate(results)
        if result.outcome == "INVALID"
    }
    if invalid:
        raise not_enqueued(invalid, results)


def enqueue(
    queue: str, payload: JsonValue = None, **fields: Unpack[NewTaskFields]
) -> ApiCall[Enqueued]:
    """Enqueue one task.  Repeats are safe: the client chooses a missing id.

    ``payload_ref``, from ``upload``, takes the place of *payload*.  ``dedupe_until="start"`` frees
    the ``dedupe_key`` at the first delivery.  With ``unique_for_seconds`` at most one task is made
    under the ``dedupe_key`` in each window of that length, and the service chooses the id.

    Raises NotFound for a missing queue, InvalidRequest naming the field, and its subclass
    NotEnqueued for an INVALID entry.
    """
    return enqueue_task(queue, NewTask(payload=payload, **fields))


def enqueue_task(queue: str, task: NewTask) -> ApiCall[Enqueued]:
    """Enqueue one task.  Raises NotEnqueued."""
    entry: list[bytes] = []

    def body(codec: Codec) -> bytes:
        if not entry:  # a repeat carries the same id
            entry.append(task_entry(task, codec, path="tasks[0]"))
        return tasks_body(entry)

    def read(answer: RawAnswer) -> Enqueued:
        result = read_one(answer)
        if task.unique_for_seconds is not None and names_no_task(result):
            raise not_enqueued({"task": UNKNOWN_HOLDER}, [result])
        return result

    path = path_of("queues", queue, "tasks")
    return ApiCall("POST", path, read, body=body, key=new_idempotency_key())


def enqueue_tasks(queue: str, tasks: Sequence[NewTask]) -> ApiCall[list[Enqueued]]:
    """Enqueue up to 25 tasks with ids.  Raises NotEnqueued naming every INVALID entry."""

    def body(codec: Codec) -> bytes:
        numbered = enumerate(tasks)
        return tasks_body([task_entry(task, codec, path=f"tasks[{n}]") for n, task in numbered])

    def read(answer: RawAnswer) -> list[Enqueued]:
        results = reads(EnqueueResults)(answer).results
        check_enqueued(results)
        return results

    path = path_of("queues", queue, "tasks")
    return ApiCall("POST", path, read, body=body, key=new_idempotency_key())


UNKNOWN_HOLDER: Final = "the id of its window belongs to a task that this key may not see"


def names_no_task(result: Enqueued) -> bool:
    """Return whether *result* is about an existing task that the key may not see."""
    return result.outcome == "EXISTING" and result.task is None and result.queue is None


def read_one(answer: RawAnswer) -> Enqueued:
    """Return the outcome of the only task.  Raises NotEnqueued."""
    result = reads(EnqueueResults)(answer).results[0]
    if result.outcome == "INVALID":
        raise not_enqueued({"task": result.detail or ""}, [result])
    return result


def get_task(
    id: str, *, payload: bool | None = None, wait_seconds: float | None = None
) -> ApiCall[Task]:
    """Return a task as it stands; *payload* left out shows it to keys that may see it.

    With *wait_seconds* (up to 20) the service waits that long for its end; see ``wait``.
    Raises NotFound.
    """
    params = params_of(payload=payload, wait_seconds=wait_seconds)
    return ApiCall("GET", path_of("tasks", id), reads(Task), params=params)


def delete_task(
    id: str,
    *,
    if_not_inflight: bool = False,
    undo_in_seconds: float | None = None,
    reason: str | None = None,
) -> ApiCall[Undoable | None]:
    """Delete a task; return the undo that restores it within *undo_in_seconds*.

    The audit shows *reason*.
    Raises NotFound, and with *if_not_inflight* Inflight.
    """

    def read(answer: RawAnswer) -> Undoable | None:
        return reads(DeletedTask)(answer).undo if answer.body else None

    params = params_of(
        if_not_inflight=if_not_inflight or None, undo_in_seconds=undo_in_seconds, reason=reason
    )
    return ApiCall("DELETE", path_of("tasks", id), read, params=params, repeatable=False)


def cancel_task(id: str, *, reason: str | None = None) -> ApiCall[CancelledTask]:
    """Cancel a task that waits or is in flight, and return it; ``state`` is None if it is removed.

    The audit shows *reason*.
    Raises NotFound, and Finished for a task that has ended otherwise.
    """
    body = without_none(reason=reason) or None
    return posts(path_of("tasks", id, "cancel"), reads(CancelledTask), body)


def explain_task(id: str) -> ApiCall[list[Reason]]:
    """Return every reason why a task is not running; none: the next worker gets it."""

    def read(answer: RawAnswer) -> list[Reason]:
        return reads(Explained)(answer).reasons

    return ApiCall("GET", path_of("tasks", id, "explain"), read)
