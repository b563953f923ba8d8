"""Workers: their heartbeats, who is alive, and what they are asked to do."""

from datetime import datetime
from typing import Annotated, Final, TypeAlias
from urllib.parse import unquote

from pydantic import Field

from headrace.domain import limits
from headrace.domain.access import Permission
from headrace.domain.errors import InvalidRequest
from headrace.domain.limits import WORKER_BYTES, utf8_bytes
from headrace.domain.worker import Command, LiveWorker, WorkerHeartbeat
from headrace.http.fields import Examples, Instant, Name, RequestBody, TaskId, TextWithin, example
from headrace.http.parameters import Cursor, Limit, ListQueryText, asked, keys_of
from headrace.http.permissions import principal
from headrace.http.queue_bodies import EmptyBody
from headrace.http.routing import Routes
from headrace.ops.operators.list_queries import WORKERS
from headrace.runtime.wiring import current_service
from headrace.wire import service as service_wire
from headrace.wire.base import instant
from headrace.wire.service import Commanded

routes: Final = Routes("Workers")

NameInPath: TypeAlias = Annotated[
    str,
    Field(
        description=f"The name of the worker: any text of up to {WORKER_BYTES} bytes, like "
        "`host-1:4711`, percent-encoded."
    ),
]

_LEAST, _MOST = limits.WORKER_QUEUES

Concurrency: TypeAlias = Annotated[
    int, Field(ge=limits.WORKER_CONCURRENCY[0], le=limits.WORKER_CONCURRENCY[1])
]
WorkerVersion: TypeAlias = Annotated[str, TextWithin(limits.WORKER_VERSION_BYTES)]


class SignBody(RequestBody):
    """What a worker is doing."""

    queues: Annotated[
        list[Name],
        Field(min_length=_LEAST, max_length=_MOST, description="The queues it takes tasks from."),
    ]
    concurrency: Annotated[Concurrency, Field(description="Tasks it works on at a time.")] = 1
    running: Annotated[
        list[TaskId],
        Field(
            default_factory=list,
            max_length=limits.WORKER_TASKS,
            description="Ids of tasks it is at.",
        ),
    ]
    version: Annotated[WorkerVersion, Field(description="Of its code.")] = ""
    started_at: Annotated[
        Instant | None,
        Field(
            description="When its process began; a command is for one process only. Left out, it "
            "is what the worker of this name said before, or now: then a command is also for a "
            "process that takes the name over within 5 minutes."
        ),
    ] = None

    stopped: Annotated[
        bool,
        Field(
            description="True in the last heartbeat of a worker that ends. The worker is then no "
            "longer listed, and its name is free."
        ),
    ] = False

    def heartbeat_of(self, name: str, now: datetime) -> WorkerHeartbeat:
        """Return this as the heartbeat of worker *name*, one that begins *now* if it is new."""
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
        "Eight at a time, one at work",
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
    """A worker."""
    seen_at, command = instant(worker.seen_at), worker.command
    return service_wire.WorkerSeen.of(worker.heartbeat, seen_at=seen_at, command=command)


# ------------------------------------------------------------------------------------------- routes


@routes.add(
    "PUT",
    "/v1/workers/{name}",
    Permission.WORK,
    answer="What the worker is asked to do.",
    examples=PUT_WORKER,
)
def put_worker(name: NameInPath, body: SignBody) -> service_wire.Commanded:
    """Give a sign of life.

    A worker says every 30 seconds what it is doing, and is told what it is asked to do. Names
    are one space for all queues. A worker counts as gone after 5 minutes of silence, or after a
    heartbeat with `stopped`. A command holds for the process that it was given to: a worker of
    another `started_at` is not asked anything yet. 403 also where a worker of this name is
    alive on queues that the key is not for. One write unit for each KiB.
    """
    use = current_service()
    heartbeat = body.heartbeat_of(_worker_name(name), use.now())
    command = use.workers.alive(principal(), heartbeat, goes_on=body.started_at is None)
    return Commanded(command=command)


@routes.add(
    "GET", "/v1/workers", Permission.LIST, answer="A page of workers.", description=keys_of(WORKERS)
)
def list_workers(
    query: ListQueryText = None, limit: Limit = 50, cursor: Cursor = None
) -> service_wire.Workers:
    """List workers that are alive, by name.

    Those with a queue that the key is for. Of their other queues nothing is shown, and
    `running` only where there are none.
    """
    where = asked(WORKERS, query)
    page = current_service().workers.list(principal(), where=where, limit=limit, cursor=cursor)
    shown = [worker_answer(one) for one in page.shown]
    return service_wire.Workers(workers=shown, cursor=page.cursor)


_ASKED: Final = (
    "It is told at its next sign of life, within 30 seconds. A worker asked to stop stays so. "
    "Takes a key that is for all of its queues."
)


@routes.add(
    "POST", "/v1/workers/{name}/quiet", Permission.OPERATE, answer="The worker.", description=_ASKED
)
def quiet_worker(name: NameInPath, _body: EmptyBody = None) -> service_wire.WorkerSeen:
    """Ask a worker to take no more tasks."""
    worker = current_service().workers.ask(principal(), _worker_name(name), Command.QUIET)
    return worker_answer(worker)


@routes.add(
    "POST", "/v1/workers/{name}/stop", Permission.OPERATE, answer="The worker.", description=_ASKED
)
def stop_worker(name: NameInPath, _body: EmptyBody = None) -> service_wire.WorkerSeen:
    """Ask a worker to finish what it has and end."""
    worker = current_service().workers.ask(principal(), _worker_name(name), Command.STOP)
    return worker_answer(worker)


def _worker_name(path: str) -> str:
    """Return the worker named in a path.  Raises InvalidRequest for what can be no name."""
    try:
        name = unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise InvalidRequest.of("name", "must be UTF-8, percent-encoded") from None
    size = utf8_bytes(name)
    if size > WORKER_BYTES:
        raise InvalidRequest.of(
            "name", f"must be at most {WORKER_BYTES} bytes of UTF-8; it is {size}"
        )
    return name
