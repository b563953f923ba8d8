"""Workers: their heartbeats, commands to them, and leases over many tasks."""

from datetime import datetime
from typing import Annotated, Final, TypeAlias

from pydantic import Field

from headrace.domain import limits
from headrace.domain.access import Permission
from headrace.domain.errors import InvalidRequest, NotFound
from headrace.domain.ids import is_group_id
from headrace.domain.lease import LeaseGroup
from headrace.domain.limits import WORKER_BYTES, utf8_bytes
from headrace.domain.worker import Command, LiveWorker, WorkerHeartbeat
from headrace.http.fields import (
    Examples,
    Instant,
    Keepalive,
    Name,
    RequestBody,
    TaskId,
    TextWithin,
    example,
)
from headrace.http.parameters import Cursor, Limit, ListQueryText, asked, keys_of
from headrace.http.queue_bodies import EmptyBody
from headrace.http.request import POLL_AFTER, Reply, principal
from headrace.http.routing import Routes
from headrace.ops.search.list_queries import WORKERS
from headrace.runtime.wiring import current_service
from headrace.wire import service as service_wire
from headrace.wire import tasks as task_wire
from headrace.wire.base import LEFT_OUT, instant
from headrace.wire.service import Commanded

routes: Final = Routes("Workers")

NameInPath: TypeAlias = Annotated[
    str,
    Field(
        description=f"The name of the worker: any text of up to {WORKER_BYTES} bytes, like "
        "`host-1:4711`, percent-encoded."
    ),
]

Concurrency: TypeAlias = Annotated[
    int, Field(ge=limits.WORKER_CONCURRENCY[0], le=limits.WORKER_CONCURRENCY[1])
]
WorkerVersion: TypeAlias = Annotated[str, TextWithin(limits.WORKER_VERSION_BYTES)]


class HeartbeatBody(RequestBody):
    """The heartbeat of a worker."""

    queues: Annotated[
        list[Name],
        Field(
            min_length=limits.WORKER_QUEUES[0],
            max_length=limits.WORKER_QUEUES[1],
            description="The queues that it dequeues from.",
        ),
    ]
    concurrency: Annotated[Concurrency, Field(description="How many tasks it runs at a time.")] = 1
    running: Annotated[
        list[TaskId],
        Field(
            default_factory=list,
            max_length=limits.WORKER_TASKS,
            description="The ids of its running tasks.",
        ),
    ]
    version: Annotated[WorkerVersion, Field(description="The version of its code.")] = ""
    started_at: Annotated[
        Instant | None,
        Field(
            description="When its process started. A command is for one process. Without this the "
            "worker keeps the start of its last heartbeat, or starts now, and a command is also "
            "for a process that takes over the name within 5 minutes."
        ),
    ] = None

    stopped: Annotated[
        bool,
        Field(
            description="True in the last heartbeat of a worker that stops. The worker is no "
            "longer listed, and its name is free."
        ),
    ] = False

    def heartbeat_of(self, name: str, now: datetime) -> WorkerHeartbeat:
        """Return the heartbeat of the worker *name*, which started *now* if it is new."""
        return WorkerHeartbeat(
            name,
            tuple(dict.fromkeys(self.queues)),  # once each, however often they are named
            self.started_at or now,
            self.concurrency,
            tuple(self.running),
            self.version,
            self.stopped,
        )


PUT_WORKER: Final[Examples] = {
    "busy": example(
        "Eight tasks at a time, one is running",
        {
            "queues": ["mail"],
            "concurrency": 8,
            "running": ["tsk_01kc5m3v0e8x2r7n4q9w6y1z0a"],
            "version": "1.4.2",
            "started_at": "2026-11-21T08:00:00Z",
        },
    ),
}


# ------------------------------------------------------------------------------------------ answers


def worker_answer(worker: LiveWorker) -> service_wire.WorkerSeen:
    """Return the answer about a worker."""
    seen_at, command = instant(worker.seen_at), worker.command
    return service_wire.WorkerSeen.of(worker.heartbeat, seen_at=seen_at, command=command)


# ------------------------------------------------------------------------------------------- routes


@routes.add("PUT", "/v1/workers/{name}", Permission.WORK, examples=PUT_WORKER)
def put_worker(name: NameInPath, body: HeartbeatBody) -> Commanded | Reply:
    """Send a worker heartbeat.

    A worker sends a heartbeat every 30 seconds and gets the command for it. The names of workers
    are shared by all queues. A worker is no longer listed after 5 minutes without a heartbeat, or
    after a heartbeat with `stopped`. A command is for one process: a worker with another
    `started_at` does not get it. 403 also if a worker of this name is alive on queues that the key
    is not for. One write unit for each KiB. `X-Poll-After` is the number of seconds that the
    service recommends between two requests: a tenth or less if it runs on one machine.
    """
    use = current_service()
    heartbeat = body.heartbeat_of(_worker_name(name), use.now())
    command = use.workers.alive(heartbeat, goes_on=body.started_at is None)
    poll_after = f"{use.deliveries.poll_after_seconds:g}"
    return Reply(Commanded(command=command), headers={POLL_AFTER: poll_after})


@routes.add("GET", "/v1/workers", Permission.LIST, description=keys_of(WORKERS))
def list_workers(
    query: ListQueryText = None, limit: Limit = 50, cursor: Cursor = None
) -> service_wire.Workers:
    """List workers that are alive, by name.

    Shows the workers with a queue that the key is for. Their other queues are not shown, and
    `running` is shown only for workers without other queues.
    """
    where = asked(WORKERS, query)
    page = current_service().workers.list(where=where, limit=limit, cursor=cursor)
    shown = [worker_answer(one) for one in page.shown]
    return service_wire.Workers(workers=shown, cursor=page.cursor)


_ASKED: Final = (
    "The worker gets the command with its next heartbeat, within 30 seconds. After a stop the "
    "command does not change. The key must be for all queues of the worker."
)


@routes.add("POST", "/v1/workers/{name}/quiet", Permission.OPERATE, description=_ASKED)
def quiet_worker(name: NameInPath, _body: EmptyBody = None) -> service_wire.WorkerSeen:
    """Ask a worker to dequeue no more tasks."""
    worker = current_service().workers.ask(_worker_name(name), Command.QUIET)
    return worker_answer(worker)


@routes.add("POST", "/v1/workers/{name}/stop", Permission.OPERATE, description=_ASKED)
def stop_worker(name: NameInPath, _body: EmptyBody = None) -> service_wire.WorkerSeen:
    """Ask a worker to finish its tasks and stop."""
    worker = current_service().workers.ask(_worker_name(name), Command.STOP)
    return worker_answer(worker)


def _worker_name(name: str) -> str:
    """Return *name*.  Raises InvalidRequest for a text that cannot be a name."""
    if "\N{REPLACEMENT CHARACTER}" in name:  # in place of bytes that are not UTF-8
        raise InvalidRequest.of("name", "must be UTF-8, percent-encoded")
    size = utf8_bytes(name)
    if size > WORKER_BYTES:
        raise InvalidRequest.of(
            "name", f"must be at most {WORKER_BYTES} bytes of UTF-8; it is {size}"
        )
    return name


# ------------------------------------------------------------------------------------- group leases

lease_routes: Final = Routes("Leases")

LeaseInPath: TypeAlias = Annotated[str, Field(description="The id of the lease.")]

LeaseName: TypeAlias = Annotated[
    str, TextWithin(limits.LEASE_NAME_BYTES[1], limits.LEASE_NAME_BYTES[0])
]


class LeaseBody(RequestBody):
    """The length and the name of a lease."""

    name: LeaseName | None = Field(
        default=None,
        description="No other lease with this name can be opened while this one is open, and for a "
        "day after its end. Keys with different queues have separate names. Up to "
        f"{limits.LEASE_NAME_BYTES[1]} bytes.",
    )
    keepalive_timeout_in_seconds: Keepalive = Field(
        default=60, description="How long it lasts, from now and from each extension."
    )

    @property
    def is_safe_to_repeat(self) -> bool:
        """Whether the lease has a name: a second lease of it is refused while the first is open."""
        return self.name is not None


OPEN_LEASE: Final[Examples] = {
    "batch": example(
        "A lease for many tasks, extended every 20 seconds",
        {"name": "entities-2026-11-21T08:00", "keepalive_timeout_in_seconds": 60},
    ),
    "nameless": example("A lease for a minute, without a name", {}),
}


# ------------------------------------------------------------------------------------------- routes


@lease_routes.add("POST", "/v1/leases", Permission.WORK, status=201, examples=OPEN_LEASE)
def open_lease(body: LeaseBody | None = None) -> task_wire.Leased:
    """Open a lease for many tasks.

    Name it in dequeues (`lease_id`), in any queues. Their tasks are leased until it ends, and one
    extension extends all of them. Reports use the `lease_id` of the task, as in the answer to the
    dequeue. 409 `lease_lost`: the name is in use.
    """
    wanted = body or LeaseBody()
    by, length = principal(), wanted.keepalive_timeout_in_seconds
    patterns = () if by.covers_all_queues else by.patterns
    opened = current_service().leases.open(wanted.name, keepalive=length, patterns=patterns)
    return _leased(opened)


@lease_routes.add("POST", "/v1/leases/{id}/extend", Permission.WORK)
def extend_lease(id: LeaseInPath, _body: EmptyBody = None) -> task_wire.Leased:
    """Extend a lease.

    From now it lasts for its full length again, with all of its tasks. `cancelled` are its tasks
    that were cancelled. One write unit. 409 `lease_lost`: the lease has ended, and an ended lease
    cannot be opened again. The key must be for all queues in which the lease was used.
    """
    return _leased(current_service().leases.extend(_lease_id(id)))


@lease_routes.add("DELETE", "/v1/leases/{id}", Permission.WORK, status=204)
def close_lease(id: LeaseInPath) -> None:
    """Close a lease.

    Its unsettled tasks are released: they are due now and no attempt is counted. If there are too
    many for one call, the others follow within a minute. Safe to repeat. 409 `lease_lost`: the
    lease had lapsed. The key must be for all queues in which the lease was used.
    """
    current_service().leases.close(_lease_id(id))


def _leased(group: LeaseGroup) -> task_wire.Leased:
    lease = task_wire.Lease(id=group.id, expires_at=instant(group.expires_at))
    cancelled = sorted(group.cancelled) or LEFT_OUT
    return task_wire.Leased(lease=lease, cancelled=cancelled)


def _lease_id(id: str) -> str:
    """Return *id*.  Raises NotFound for a text that cannot be the id of a lease."""
    if not is_group_id(id):
        raise NotFound("there is no such lease; its id is what opening it answered")
    return id
