"""Dequeue: the requests for one and for several queues, their routes and their answer."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import AfterValidator, Field, model_validator

from headrace.domain import limits
from headrace.domain.access import Permission
from headrace.http import repeats
from headrace.http.enqueue import once_each
from headrace.http.fields import (
    PLAIN,
    Examples,
    Keepalive,
    Name,
    RequestBody,
    TextWithin,
    contradiction,
    example,
    within,
)
from headrace.http.parameters import QueueInPath
from headrace.http.request import Reply, this_request
from headrace.http.routing import Routes
from headrace.http.tasks import lease_answer, seconds_to_wait, shown_members
from headrace.ops.delivery.dequeue import Order
from headrace.runtime.wiring import current_service
from headrace.wire import tasks as task_wire
from headrace.wire.base import MaxRetries, instant

if TYPE_CHECKING:
    from headrace.ops.delivery.dequeue import DequeueResult

routes: Final = Routes("Tasks")


class DequeueBody(RequestBody):
    """How many tasks to lease, and for whom."""

    batch_size: Annotated[int, within((1, limits.BATCH))] = 1
    wait_seconds: Annotated[
        float, within((0, limits.WAIT_SECONDS), "How long to wait for the first task."), PLAIN
    ] = 0
    worker: Annotated[str, TextWithin(limits.WORKER_BYTES)] | None = Field(
        default=None, description="Who is asking, for people."
    )
    keepalive_timeout_in_seconds: Keepalive | None = Field(
        default=None, description="How long these leases last; else as task or queue say."
    )
    lease_id: Annotated[str, Field(pattern=f"^{limits.GROUP_ID}$")] | None = Field(
        default=None,
        description="A lease from `POST /v1/leases` to put the tasks under; they are leased until "
        "it ends.",
    )

    @model_validator(mode="after")
    def _lasts_as_long_as_one_says(self) -> "DequeueBody":
        if self.lease_id is not None and self.keepalive_timeout_in_seconds is not None:
            raise contradiction(
                "has no meaning with a lease_id: the lease says how long",
                "keepalive_timeout_in_seconds",
            )
        return self


class DequeueManyBody(DequeueBody):
    """How many tasks to lease of which queues, and for whom."""

    queues: Annotated[
        list[Name],
        Field(min_length=limits.DEQUEUE_QUEUES[0], max_length=limits.DEQUEUE_QUEUES[1]),
        AfterValidator(once_each),
    ]
    order: Annotated[Order, Field(strict=False)] = Field(
        default=Order.PREFERENCE,
        description="`preference`: a later queue gives what those before it do not have. `due`: "
        "those tasks that fell due first, of whatever queue, by their priority where it has any.",
    )


DEQUEUE: Final[Examples] = {
    "batch": example(
        "Up to ten tasks, waiting five seconds for the first",
        {"batch_size": 10, "wait_seconds": 5, "worker": "host-1:4711"},
    ),
}
DEQUEUE_MANY: Final[Examples] = {
    "preference": example(
        "Mail first, and what else there is",
        {"queues": ["mail", "thumbnails"], "batch_size": 10, "worker": "host-1:4711"},
    ),
    "due": example(
        "Whatever fell due first",
        {"queues": ["mail", "thumbnails"], "batch_size": 10, "order": "due"},
    ),
}


# ------------------------------------------------------------------------------------------ answers


def dequeued_answer(found: "DequeueResult", *, max_retries: MaxRetries) -> task_wire.Dequeued:
    """Return the leased tasks."""
    leased = [
        task_wire.LeasedTask(
            **shown_members(task, found.now, max_retries, payload=True), lease=lease_answer(task)
        )
        for task in found.tasks
    ]
    return task_wire.Dequeued(
        tasks=leased, now=instant(found.now), poll_after_seconds=found.poll_after_seconds
    )


# ------------------------------------------------------------------------------------------- routes


@routes.add("POST", "/v1/queues/{queue}/dequeue", Permission.WORK, examples=DEQUEUE)
def dequeue(queue: QueueInPath, body: DequeueBody | None = None) -> task_wire.Dequeued | Reply:
    """Lease tasks that are due.

    An answer without tasks is a success: ask again after `poll_after_seconds`. If the key is
    revoked during a wait, the wait ends with 401. A repeat under the same `Idempotency-Key` returns
    the tasks that the first call leased and that are still leased; it leases no other tasks. 409
    `lease_lost`: the lease of `lease_id` has ended.
    """
    return _leased(queue, body or DequeueBody())


@routes.add("POST", "/v1/dequeue", Permission.WORK, examples=DEQUEUE_MANY)
def dequeue_many(body: DequeueManyBody) -> task_wire.Dequeued | Reply:
    """Lease tasks that are due in several queues.

    Works like a dequeue of one queue, in one call. Each task names its `queue`; report it to that
    queue. `poll_after_seconds` is the lowest of these queues. If a queue is missing, or the key is
    not for it, no task is leased.
    """
    return _leased(body.queues, body, order=body.order)


def _leased(
    queues: str | Sequence[str], wanted: DequeueBody, *, order: Order = Order.PREFERENCE
) -> Reply:
    use = current_service()
    found = use.deliveries.dequeue(
        queues,
        order=order,
        batch_size=wanted.batch_size,
        wait_seconds=seconds_to_wait(wanted.wait_seconds),
        worker=wanted.worker or "",
        keepalive=wanted.keepalive_timeout_in_seconds,
        lease_id=wanted.lease_id,
        batch=repeats.batch_of(this_request(), grouped=wanted.lease_id is not None),
    )
    answer = Reply(dequeued_answer(found, max_retries=use.queues.max_retries))
    if found.replayed:
        answer.headers[repeats.REPLAYED] = "true"
    return answer
