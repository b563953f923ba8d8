"""Calls of workers: taking tasks, reporting on them, sending worker heartbeats."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, NamedTuple, NotRequired, TypeAlias, TypedDict, Unpack

import msgspec
from msgspec import structs

from headrace.client.calls import (
    ApiCall,
    PagedCall,
    RawAnswer,
    instant_text,
    json_body,
    lists,
    nothing,
    params_of,
    path_of,
    posts,
    reads,
    without_none,
)
from headrace.client.sending import Report, reports_body
from headrace.domain import limits
from headrace.domain.errors import FieldError, InvalidRequest
from headrace.wire.service import Commanded, Workers, WorkerSeen
from headrace.wire.tasks import Dequeued, Lease, Leased, Reported, ReportResults

Order: TypeAlias = Literal["preference", "due"]


def dequeue(
    queue: str | None = None,
    *,
    queues: Sequence[str] | None = None,
    order: Order | None = None,
    batch_size: int = 1,
    wait_seconds: float = 0,
    worker: str | None = None,
    keepalive_timeout_in_seconds: float | None = None,
    lease_id: str | None = None,
) -> ApiCall[Dequeued]:
    """Lease up to *batch_size* (25) tasks, waiting up to *wait_seconds* (20) for the first.

    The tasks are from one *queue*, or from up to 32 *queues*.  With the *order* ``"preference"`` a
    later queue is used only if the queues before it have too few tasks; with ``"due"`` tasks that
    fell due first come first.  With *lease_id*, from open_lease(), the tasks are under that lease.
    A repeat after a lost answer returns the tasks that were leased before.
    Raises NotFound, LeaseLost if the lease has ended, and InvalidRequest unless exactly one of
    queue and queues is given.
    """
    body = without_none(
        queues=None if queues is None else list(queues),
        order=order,
        batch_size=batch_size,
        wait_seconds=wait_seconds or None,
        worker=worker,
        keepalive_timeout_in_seconds=keepalive_timeout_in_seconds,
        lease_id=lease_id,
    )
    return posts(_dequeue_path(queue, queues), reads(Dequeued), body, attempt=1)


def _dequeue_path(queue: str | None, queues: Sequence[str] | None) -> str:
    if queue is not None and queues is None:
        return path_of("queues", queue, "dequeue")
    if queues is not None and queue is None:
        if not isinstance(queues, str):
            return path_of("dequeue")
        raise InvalidRequest.of("queues", "must be a list of names, not one text")
    message = "give exactly one of queue and queues"
    errors = [FieldError(name, message) for name in ("queue", "queues")]
    raise InvalidRequest(message, errors=errors)


def open_lease(
    name: str | None = None, *, keepalive_timeout_in_seconds: float = 60
) -> ApiCall[Lease]:
    """Open a lease for many tasks of any queues; pass its ``id`` to dequeue().

    Raises LeaseLost if *name* is taken by a lease that is open or ended within the last day.
    If the answer to a call with a *name* is lost, the call is not repeated but raises: the lease
    may be open until its keepalive has passed.
    """
    fields = {"name": name, "keepalive_timeout_in_seconds": keepalive_timeout_in_seconds}
    call = posts(path_of("leases"), _lease, fields)
    # A lease without a name whose answer was lost holds no task, and lapses.
    return structs.replace(call, key=None, repeatable=name is None)


class ExtendedLease(Lease, frozen=True, kw_only=True):
    """An extended group lease; ``cancelled`` has the tasks that were cancelled under it.

    A cancelled task that was restarted and delivered under the same lease is still named.
    """

    cancelled: list[str]


def extend_lease(id: str) -> ApiCall[ExtendedLease]:
    """Renew a lease with all its tasks, for its full length.  Raises LeaseLost."""
    return ApiCall("POST", path_of("leases", id, "extend"), _extended)


def close_lease(id: str) -> ApiCall[None]:
    """End a lease and release its unsettled tasks, without using an attempt.

    Raises LeaseLost if it lapsed before, and NotFound.
    """
    return ApiCall("DELETE", path_of("leases", id), nothing)


def _lease(answer: RawAnswer) -> Lease:
    return reads(Leased)(answer).lease


def _extended(answer: RawAnswer) -> ExtendedLease:
    found = reads(Leased)(answer)
    lease = found.lease
    return ExtendedLease(id=lease.id, expires_at=lease.expires_at, cancelled=found.cancelled)


def report_batch(queue: str, reports: Sequence[Report]) -> ApiCall[list[Reported]]:
    """Report on up to 25 tasks of *queue*; one result for each, in their order."""

    def read(answer: RawAnswer) -> list[Reported]:
        found = reads(ReportResults)(answer)
        return [msgspec.structs.replace(result, now=found.now) for result in found.results]

    return ApiCall(
        "POST",
        path_of("queues", queue, "reports"),
        read,
        body=lambda codec: reports_body(reports, codec),
    )


class WorkerSign(TypedDict):
    """What a worker heartbeat says."""

    queues: Sequence[str]
    concurrency: int
    running: Sequence[str]
    version: str
    started_at: datetime
    stopped: NotRequired[bool]


class WorkerAnswer(NamedTuple):
    """The answer to a worker heartbeat: a command, and the recommended pause between polls."""

    command: str | None
    poll_after_seconds: float


def beat_worker(name: str, **sign: Unpack[WorkerSign]) -> ApiCall[WorkerAnswer]:
    """Send a worker heartbeat."""
    fields = {**sign, "started_at": instant_text(sign["started_at"], field="started_at")}

    def read(answer: RawAnswer) -> WorkerAnswer:
        return WorkerAnswer(reads(Commanded)(answer).command, answer.poll_after_seconds)

    return ApiCall("PUT", path_of("workers", name), read, body=lambda _: json_body(fields))


def put_worker(name: str, **sign: Unpack[WorkerSign]) -> ApiCall[str | None]:
    """Send a worker heartbeat; returns an operator's command: None, ``"quiet"`` or ``"stop"``."""
    call = beat_worker(name, **sign)
    return ApiCall(call.method, call.path, lambda got: call.read(got).command, body=call.body)


def list_workers(*, query: str | None = None) -> PagedCall[WorkerSeen]:
    """Yield the workers that sent a heartbeat in the last five minutes.

    *query* filters them, in the language of the console's search boxes: ``queue:mail state:late``.
    Raises InvalidRequest with the place of an error in *query*.
    """
    params = params_of(query=query, limit=limits.LIST_PAGE)
    return lists(path_of("workers"), Workers, lambda page: page.workers, params)


def quiet_worker(name: str) -> ApiCall[None]:
    """Ask a worker to stop leasing tasks.  Raises NotFound."""
    return posts(path_of("workers", name, "quiet"), nothing)


def stop_worker(name: str) -> ApiCall[None]:
    """Ask a worker to finish its tasks and stop.  Raises NotFound."""
    return posts(path_of("workers", name, "stop"), nothing)
