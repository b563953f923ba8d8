"""What a handler knows of its attempt, and what it can do besides returning."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, Unpack

from headrace.client.app import checks
from headrace.client.app.checks import Duration
from headrace.client.app.ended_batch import EndedBatch
from headrace.client.app.execution import AttemptControl
from headrace.client.app.options import CallOptions, Options
from headrace.client.app.outcomes import Cancelled, Reject
from headrace.client.codec import Codec, JsonValue
from headrace.client.current import traced, traced_move
from headrace.client.options import named
from headrace.client.sending import SpawnedTask, carried, spawned
from headrace.domain import limits
from headrace.domain.errors import LeaseLost, PayloadTooLarge
from headrace.domain.workflow import WORKFLOW_TAG
from headrace.safe_logging import safe_logger
from headrace.wire.tasks import LeasedTask

if TYPE_CHECKING:
    from headrace.client.app.clients import AppClients
    from headrace.client.app.function import TaskFunction

    Task: TypeAlias = TaskFunction[..., Any, ..., Any]

_log: Final = safe_logger("headrace.task")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TOO_MANY: Final = (
    f"takes at most {limits.SPAWN} tasks in one attempt: spawn a task that spawns the rest"
)
_TARGET: Final = "{verb} takes a queue, or {verb}(function, {{argument: value}}), no {given}"


@dataclass(frozen=True, slots=True)
class MoveTarget:
    """The queue to which a task moves at the end of its attempt; None keeps its value."""

    queue: str
    payload: Any
    delay_in_seconds: float
    tags: dict[str, str] | None


class Context:
    """One attempt at one task.

    A parameter annotated with this class receives it.  ``name`` is the name of the task function or
    handler, or ``unknown`` if the app has none for the task.
    """

    def __init__(
        self,
        task: LeasedTask,
        control: AttemptControl,
        *,
        codec: Codec,
        now: Callable[[], datetime],
        hard_timeout: float | None = None,
        name: str = "unknown",
        clients: "AppClients | None" = None,
    ) -> None:
        self._control = control
        self._codec = codec
        self._now = now
        self.was_shown_as_lost = False
        self._hard_end = None if hard_timeout is None else now() + timedelta(seconds=hard_timeout)
        self._spawned_bytes = 0
        self.task = task
        self.name = name
        self._clients = clients
        self.moved: MoveTarget | None = None
        self.spawned: list[SpawnedTask] = []

    def __repr__(self) -> str:
        """A short form for logs, without secrets."""
        return f"Context(id={self.id!r}, queue={self.queue!r}, attempt={self.attempt})"

    @property
    def id(self) -> str:
        """The task's id."""
        return self.task.id

    @property
    def queue(self) -> str:
        """The queue that the task came from."""
        return self.task.queue

    @property
    def attempt(self) -> int:
        """Which attempt this is; the first is 1."""
        return self.task.attempts

    @property
    def payload(self) -> JsonValue:
        """The payload of the task.  Raises Unreadable."""
        return self.task.payload

    def download(self, to: str | os.PathLike[str]) -> Path:
        """Write the payload that the task's producer has uploaded to the path *to*; return *to*.

        The payload is read in parts, whatever its size; a coroutine calls this by
        ``asyncio.to_thread``.  Raises InvalidRequest if there is no upload, Unavailable, and
        `Reject` if the upload is lost or damaged.
        """
        from headrace.client.payloads import PayloadLost, fetched  # noqa: PLC0415  few tasks need it

        try:
            return fetched(self.task, to)
        except PayloadLost as lost:
            raise Reject(str(lost)) from lost

    @property
    def tags(self) -> dict[str, str]:
        """The task's tags."""
        return self.task.tags

    @property
    def batch(self) -> EndedBatch:
        """The batch that made this task.  Raises RuntimeError for a task that no batch made."""
        end = self.task.batch
        if end is None:
            raise RuntimeError(f"task {self.id} is no callback of a batch and no later step")
        workflow = self.task.tags.get(WORKFLOW_TAG, "")
        return EndedBatch(end, self._clients, self._codec, workflow=workflow)

    @property
    def fence(self) -> int:
        """A number that is larger in every later attempt of this task.

        Store it with your data, and refuse to overwrite a larger number: then a worker that was cut
        off and continues late does no harm.
        """
        started = self.task.started_at
        return 0 if started is None else (started - _EPOCH) // timedelta(microseconds=1)

    @property
    def deadline(self) -> datetime:
        """When the handler must have ended: its time limit, or the present end of its lease."""
        return self._hard_end or self._control.lease_expires_at

    @property
    def lost(self) -> bool:
        """Whether the lease is over.

        If it was true once, the attempt has no effect: the result is not reported, and the task is
        delivered again.
        """
        self.was_shown_as_lost = self.was_shown_as_lost or self._control.lost
        return self.was_shown_as_lost

    @property
    def cancelled(self) -> bool:
        """Whether the task was cancelled, as the worker learns with its next heartbeat.

        Then ``lost`` is True as well.
        """
        return self._control.cancelled

    @property
    def stopping(self) -> bool:
        """Whether the worker has asked this attempt to end because the worker stops."""
        return self._control.stopping

    @property
    def last_progress(self) -> JsonValue:
        """The last progress of the delivery before this one; None if there was none.

        Use it to resume long work where an earlier delivery left off.
        """
        return self.task.last_progress

    def check(self) -> None:
        """Raise LeaseLost if the lease is over, `Cancelled` if that is because of a cancel.

        Call it between the steps of long work.
        """
        if self.cancelled:
            raise Cancelled(f"task {self.id} was cancelled")
        if self.lost:
            raise LeaseLost(f"the lease of task {self.id} is over")

    def progress(self, value: object) -> None:
        """Show *value* (any JSON, up to 4 KiB) with the task, within a second.

        Heartbeats send the latest value, at most one in a second.

        Raises InvalidRequest if it is no JSON, PayloadTooLarge over the limit.
        """
        carried(value, self._codec, field="progress", most=limits.PROGRESS_BYTES)
        self._control.progress(value)

    def move(
        self,
        target: "str | Task",
        payload: JsonValue = None,
        *,
        delay: Duration = 0,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Move the task to another queue when the handler returns.

        Args:
            target: a queue, or a task function.
            payload: its new payload, or the arguments of the function; None keeps the payload (for
                a function: no arguments).
            delay: how long it waits there before it is due.
            tags: its new tags; None keeps them.

        Raises InvalidRequest naming the field.  The last call counts, if the handler returns; the
        result of the handler is then not kept.

        """
        if isinstance(target, str):
            queue = checks.name("queue", target)
            kept = None if payload is None else self._copy("payload", payload)[0]
        elif not hasattr(target, "envelope"):
            raise TypeError(_TARGET.format(verb="move", given=type(target).__name__))
        else:
            queue = target.queue
            kept = self._copy("payload", target.envelope(payload or {}))[0]
        wait = checks.seconds("delay", delay, limits.DELAY_SECONDS)
        new_tags = traced_move(None if tags is None else checks.tags("tags", tags), self.tags)
        self.moved = MoveTarget(queue, kept, wait, None if new_tags is None else dict(new_tags))

    @named
    def spawn(
        self,
        target: "str | Task",
        payload: JsonValue = None,
        **chosen: Unpack[CallOptions],
    ) -> None:
        """Enqueue another task in the transaction that reports the success of this attempt.

        *target* is a queue and *payload* the payload of the task; or *target* is a task function
        and *payload* its arguments by name.  If the attempt fails, no task is enqueued.

        Raises InvalidRequest naming the field, or for more than 250 tasks in one attempt, and
        PayloadTooLarge if their payloads take more than 2 MiB together.
        """
        place = len(self.spawned)
        if place == limits.SPAWN:
            raise checks.wrong("spawn", _TOO_MANY)
        options = Options(**chosen)
        if "overwrite" in options.given:
            raise checks.wrong("overwrite", "has no meaning here: a spawned task overwrites none")
        if isinstance(target, str):
            if "queue" in options.given:
                raise checks.wrong("queue", f"is {target} already, the target")
            if "unique_for" in options.given:
                raise checks.wrong("unique_for", "needs a task function as the target")
            where = checks.name("queue", target)
            options.check_key()
            task = options.task(payload, self._now())
        elif not hasattr(target, "new_task"):
            raise TypeError(_TARGET.format(verb="spawn", given=type(target).__name__))
        else:
            where = options.given.get("queue", target.queue)
            task = target.new_task(payload or {}, options)
        copy, size = self._copy(f"spawn[{place}].payload", task.payload)
        together = self._spawned_bytes + size
        if together > limits.SPAWNED_BYTES:
            message = f"payloads take {together} bytes; at most {limits.SPAWNED_BYTES} are taken"
            raise PayloadTooLarge.of("spawn", message)
        self._spawned_bytes = together
        self.spawned.append(
            spawned(where, task, payload=copy, tags=traced(task.tags), overwrite_on_duplicate=None)
        )

    def _copy(self, field: str, payload: object) -> tuple[Any, int]:
        """Return *payload* as it is now, whatever the handler does to it later, and its size."""
        text = bytes(carried(payload, self._codec, field=field, most=limits.PAYLOAD_BYTES))
        return self._codec.decode(text), len(text)
