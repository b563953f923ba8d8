"""Calls about queues, their stats and their schedules."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Unpack

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
    posts,
    reads,
    steps,
    without_none,
)
from headrace.client.calls.tasks import read_one
from headrace.client.codec import Codec
from headrace.client.queue_fields import QueueFields
from headrace.client.sending import TaskTemplate, carried
from headrace.domain import limits
from headrace.domain.schedule import MissedTicks
from headrace.domain.task import WhenExpired
from headrace.wire.base import JsonValue
from headrace.wire.queues import (
    Group,
    Metrics,
    Purged,
    Queue,
    Queues,
    Recount,
    Schedule,
    ScheduleList,
    SigningSecret,
    Stats,
)
from headrace.wire.tasks import Enqueued

_SHOWN_ONLY: Final = ("stats", "schedules", "schedules_cursor")


def create_queue(name: str, **settings: Unpack[QueueFields]) -> ApiCall[Queue]:
    """Create a queue; *settings* are the contract's fields, defaults for those left out.

    Raises QueueExists, or InvalidRequest naming the field.
    """
    return posts(path_of("queues"), reads(Queue), {**settings, "name": name})


def get_queue(name: str) -> ApiCall[Queue]:
    """Return a queue with its stats and schedules.  Raises NotFound."""
    return gets(Queue, "queues", name)


def list_queues(prefix: str | None = None, *, query: str | None = None) -> PagedCall[Queue]:
    """Yield the queues whose name begins with *prefix*, by name.

    *query* filters the list, in the language of the console's search boxes: ``paused:yes mail``.
    Raises InvalidRequest with the place of an error in *query*.
    """
    params = params_of(prefix=prefix, query=query, limit=limits.LIST_PAGE)
    return lists(path_of("queues"), Queues, lambda page: page.queues, params)


def replace_queue(queue: Queue | Mapping[str, Any]) -> ApiCall[Queue]:
    """Replace a queue's settings; a version in them must be the present one.

    Raises VersionMismatch, NotFound, or InvalidRequest naming the field.
    """
    fields: dict[str, Any] = msgspec.to_builtins(queue) if isinstance(queue, Queue) else dict(queue)
    body = {name: value for name, value in fields.items() if name not in _SHOWN_ONLY}
    return ApiCall(
        "PUT",
        path_of("queues", str(fields.get("name", ""))),
        reads(Queue),
        body=lambda _: json_body(body),
        repeatable="version" not in body,
    )


def merged(queue: Queue, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of *queue* with *changes*, to be sent back with its version."""
    fields: dict[str, Any] = msgspec.to_builtins(queue)
    del fields["pause"]  # a service that is older does not know it
    for name, value in changes.items():
        old = fields.get(name)
        both = isinstance(old, dict) and isinstance(value, Mapping)
        fields[name] = {**old, **value} if isinstance(old, dict) and both else value
    return fields


def delete_queue(name: str) -> ApiCall[bool]:
    """Delete a queue with all its tasks and schedules; False: it continues in the background."""
    return ApiCall(
        "DELETE", path_of("queues", name), lambda answer: not answer.in_background, repeatable=False
    )


def pause_queue(
    name: str, resume_in_seconds: float | None = None, *, reason: str | None = None
) -> ApiCall[Queue]:
    """Pause deliveries, for *resume_in_seconds* or until resumed; others can read *reason*."""
    body = without_none(resume_in_seconds=resume_in_seconds, reason=reason)
    return posts(path_of("queues", name, "pause"), reads(Queue), body)


def resume_queue(name: str) -> ApiCall[Queue]:
    """Resume deliveries."""
    return posts(path_of("queues", name, "resume"), reads(Queue))


def purge_queue(
    name: str, states: Sequence[str], *, undo_in_seconds: float | None = None
) -> ApiCall[Purged]:
    """Delete all tasks in *states*; settings and schedules stay.

    Takes the tasks that came to the queue before the call and are in one of the *states* when the
    purge reaches them.  The answer's ``undo`` can restore them within *undo_in_seconds*.
    """

    def read(answer: RawAnswer) -> Purged:
        purged = reads(Purged)(answer)
        return msgspec.structs.replace(purged, in_background=answer.in_background)

    body = without_none(states=list(states), undo_in_seconds=undo_in_seconds)
    return posts(path_of("queues", name, "purge"), read, body)


def get_signing_secret(name: str) -> ApiCall[SigningSecret]:
    """Return the secret that signs requests to the target of a queue, for ``webhooks.verify``."""
    return gets(SigningSecret, "queues", name, "signing-secret")


def rotate_signing_secret(name: str) -> ApiCall[SigningSecret]:
    """Sign the requests to the target of a queue with a new secret, for a day also with the old.

    If the answer was lost, ``get_signing_secret`` shows the new secret.
    """
    return posts(path_of("queues", name, "signing-secret", "rotate"), reads(SigningSecret))


def reindex_queue(name: str) -> ApiCall[Queue]:
    """Rebuild the index of a queue's ``indexed_fields``, in the background.

    Raises NotFound, and Conflict if the queue has no such fields.
    """
    return posts(path_of("queues", name, "reindex"), reads(Queue))


def recount_queue(name: str) -> SteppedCall[Recount]:
    """Recount a queue by the index and correct its counters, step by step.

    Use it after a long failure of the recorder.  The answer is not ``exact`` if a task of the queue
    was written since the first step: the counters may be off by such tasks.
    Raises NotFound, and InvalidRequest if another recount of the queue has begun.
    """
    return steps(Recount, "queues", name, "recount")


def get_stats(queue: str, *, exact: bool = False) -> ApiCall[Stats]:
    """Return counts, ages and rates of a queue; *exact* counts instead of estimating."""
    return gets(Stats, "queues", queue, "stats", exact=exact or None)


def get_metrics(
    queue: str,
    *,
    from_: datetime | None = None,
    to: datetime | None = None,
    step_seconds: int | None = None,
) -> ApiCall[Metrics]:
    """Return the metrics of a queue, a point for each step; by default of the last hour."""
    params = {"from_": from_, "to": to, "step_seconds": step_seconds}
    return gets(Metrics, "queues", queue, "metrics", **params)


def get_group(queue: str, group_key: str) -> ApiCall[Group]:
    """Return the state of a group of a queue.  Raises NotFound."""
    return gets(Group, "queues", queue, "groups", group_key)


# ------------------------------------------------------------------------------------- schedules


def put_schedule(  # noqa: PLR0913 (the API's own fields)
    queue: str,
    name: str,
    *,
    cron: str | None = None,
    every_seconds: float | None = None,
    timezone: str | None = None,
    payload: JsonValue = None,
    expires_in_seconds: float | None = None,
    missed: MissedTicks | None = None,
    on_expiry: WhenExpired | None = None,
    paused: bool = False,
    **of_tasks: Unpack[TaskTemplate],
) -> ApiCall[Schedule]:
    """Create or replace a schedule, with exactly one of *cron* and *every_seconds*.

    *missed* says which ticks are enqueued late after the scheduler did not run for up to 24 hours,
    and *on_expiry* what happens to a tick that expires before its first delivery.
    """
    fields = without_none(
        cron=cron,
        every_seconds=every_seconds,
        timezone=timezone,
        expires_in_seconds=expires_in_seconds,
        missed=missed,
        on_expiry=on_expiry,
        paused=paused,
        **of_tasks,
    )

    def body(codec: Codec) -> bytes:
        if payload is None:
            return json_body(fields)
        text = carried(payload, codec, field="payload", most=limits.PAYLOAD_BYTES)
        return json_body({**fields, "payload": text})

    return ApiCall("PUT", path_of("queues", queue, "schedules", name), reads(Schedule), body=body)


def get_schedule(queue: str, name: str) -> ApiCall[Schedule]:
    """Return a schedule.  Raises NotFound."""
    return gets(Schedule, "queues", queue, "schedules", name)


def list_schedules(queue: str, *, limit: int | None = None) -> PagedCall[Schedule]:
    """Yield the schedules of a queue by name, *limit* on each page.  Raises NotFound."""
    path = path_of("queues", queue, "schedules")
    return lists(path, ScheduleList, lambda page: page.schedules, params_of(limit=limit))


def delete_schedule(queue: str, name: str) -> ApiCall[None]:
    """Delete a schedule; its due tasks stay.  Raises NotFound."""
    return deletes("queues", queue, "schedules", name)


def run_schedule(queue: str, name: str) -> ApiCall[Enqueued]:
    """Enqueue a schedule's task now.  Raises NotEnqueued."""
    return posts(path_of("queues", queue, "schedules", name, "run"), read_one)
