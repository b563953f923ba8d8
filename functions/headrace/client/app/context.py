"""What a handler knows of its attempt, and may do besides returning."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from headrace.client.app import checks
from headrace.client.app.checks import Duration, Retries
from headrace.client.app.execution import AttemptControl
from headrace.client.app.options import Options
from headrace.client.codec import Codec, JsonValue
from headrace.client.sending import NewTask, SpawnedTask, carried
from headrace.client.tracing import traced, traced_move
from headrace.domain import limits
from headrace.domain.errors import LeaseLost, PayloadTooLarge
from headrace.wire.tasks import LeasedTask

if TYPE_CHECKING:
    from headrace.client.app.function import TaskFunction

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class MoveTarget:
    """Where a task goes on at the end of its attempt; None keeps what it has."""

    queue: str
    payload: Any
    delay_in_seconds: float
    tags: dict[str, str] | None


class Context:
    """One attempt at one task.

    A parameter annotated with this class is given it, whatever its name.  ``name`` is that of the
    task function or handler, ``unknown`` where the app has none for the task.
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
    ) -> None:
        self._control = control
        self._codec = codec
        self._now = now
        self._hard_end = None if hard_timeout is None else now() + timedelta(seconds=hard_timeout)
        self._spawned_bytes = 0
        self.task = task
        self.name = name
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
        """What the task carries, as it travelled.  Raises Unreadable."""
        return self.task.payload

    @property
    def tags(self) -> dict[str, str]:
        """The task's tags."""
        return self.task.tags

    @property
    def fence(self) -> int:
        """A number that is larger in every later attempt of this task.

        Keep it with what you write, and refuse to write over a larger one: then a worker that was
        cut off and wakes up late does no harm.
        """
        started = self.task.started_at
        return 0 if started is None else (started - _EPOCH) // timedelta(microseconds=1)

    @property
    def deadline(self) -> datetime:
        """When the handler has to be done: its time limit, else the end of the lease so far."""
        return self._hard_end or self._control.lease_expires_at

    @property
    def lost(self) -> bool:
        """Whether the lease is over, so that whatever this attempt does counts for nothing."""
        return self._control.lost

    def check(self) -> None:
        """Raise LeaseLost if the lease is over; call it between the steps of long work."""
        if self.lost:
            raise LeaseLost(f"the lease of task {self.id} is over")

    def progress(self, value: object) -> None:
        """Show *value* (any JSON, up to 4 KiB) with the task, from the next heartbeat on.

        Raises InvalidRequest if it is no JSON, PayloadTooLarge over the limit.
        """
        carried(value, self._codec, field="progress", most=limits.PROGRESS_BYTES)
        self._control.progress(value)

    def move(
        self,
        target: "str | TaskFunction[..., ..., Any]",
        payload: JsonValue = None,
        *,
        delay: Duration = 0,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Have the task go on in another queue when the handler returns.

        Args:
            target: a queue, or a task function.
            payload: what it carries from now on, for a function its arguments; None keeps the
                payload (of a function: no arguments).
            delay: how long it waits there before it is due.
            tags: its tags from now on; None keeps them.

        Raises InvalidRequest naming the field.  The last call counts, and only if the handler
        returns; what it returns is then not kept.

        """
        if isinstance(target, str):
            queue = checks.name("queue", target)
            kept = None if payload is None else self._copy("payload", payload)[0]
        else:
            queue = target.queue
            kept = self._copy("payload", target.envelope(payload or {}))[0]
        wait = checks.seconds("delay", delay, limits.DELAY_SECONDS)
        new_tags = traced_move(None if tags is None else checks.tags("tags", tags), self.tags)
        self.moved = MoveTarget(queue, kept, wait, None if new_tags is None else dict(new_tags))

    def spawn(  # noqa: PLR0913 (options by keyword, as `options` has them)
        self,
        target: "str | TaskFunction[..., ..., Any]",
        payload: JsonValue = None,
        *,
        queue: str | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        key: str | None = None,
        tags: Mapping[str, str] | None = None,
        expires: Duration | datetime | None = None,
        retries: Retries | None = None,
        id: str | None = None,
        keepalive: Duration | None = None,
        unique_for: Duration | None = None,
    ) -> None:
        """Have another task made in the very write that reports the end of this attempt.

        *target* is a queue and *payload* what the task carries; or *target* is a task function
        and *payload* its arguments by name.  Nothing is made if the attempt fails.

        Raises InvalidRequest naming what is wrong, or that these are more than 24 tasks;
        PayloadTooLarge when their payloads take more than 2 MiB together.
        """
        place = len(self.spawned)
        if place == limits.SPAWN:
            raise checks.wrong("spawn", f"takes at most {limits.SPAWN} tasks in one attempt")
        options = Options(
            queue=queue,
            delay=delay,
            at=at,
            key=key,
            tags=tags,
            expires=expires,
            retries=retries,
            id=id,
            keepalive=keepalive,
            unique_for=unique_for,
        )
        if isinstance(target, str):
            if queue is not None:
                raise checks.wrong("queue", f"is {target} already, the target")
            if unique_for is not None:
                raise checks.wrong("unique_for", "needs a task function as the target")
            where = checks.name("queue", target)
            task = options.task(payload, self._now(), where)
        else:
            where = queue or target.queue
            task = target.new_task(payload or {}, options)
        copy, size = self._copy(f"spawn[{place}].payload", task.payload)
        together = self._spawned_bytes + size
        if together > limits.SPAWNED_BYTES:
            message = f"payloads take {together} bytes; at most {limits.SPAWNED_BYTES} are taken"
            raise PayloadTooLarge.of("spawn", message)
        self._spawned_bytes = together
        given = {field.name: getattr(task, field.name) for field in fields(NewTask)}
        spawned = {**given, "payload": copy, "queue": where, "tags": traced(task.tags)}
        self.spawned.append(SpawnedTask(**spawned))

    def _copy(self, field: str, payload: object) -> tuple[Any, int]:
        """Return *payload* as it is now, whatever the handler does to it later, and its size."""
        text = bytes(carried(payload, self._codec, field=field, most=limits.PAYLOAD_BYTES))
        return self._codec.decode(text), len(text)
