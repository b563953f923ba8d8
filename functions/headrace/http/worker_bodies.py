"""The body of a worker's heartbeat."""

from datetime import datetime
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, Field

from headrace.domain import limits
from headrace.http.fields import Body, Instant, Name, TaskId, text_within
from headrace.ops.operators.workers import WorkerHeartbeat

_LEAST, _MOST = limits.WORKER_QUEUES

Concurrency: TypeAlias = Annotated[
    int, Field(ge=limits.WORKER_CONCURRENCY[0], le=limits.WORKER_CONCURRENCY[1])
]
WorkerVersion: TypeAlias = Annotated[str, AfterValidator(text_within(limits.WORKER_VERSION_BYTES))]


class SignBody(Body):
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

    def heartbeat_of(self, name: str, now: datetime) -> WorkerHeartbeat:
        """Return this as the heartbeat of worker *name*, one that begins *now* if it is new."""
        return WorkerHeartbeat(
            name,
            tuple(dict.fromkeys(self.queues)),  # once each, however often they are named
            self.started_at or now,
            self.concurrency,
            tuple(self.running),
            self.version,
        )
