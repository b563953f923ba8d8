"""What a handler knows of its attempt, and may do besides returning."""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, Unpack

from headrace.client.app import checks
from headrace.client.app.checks import Duration
from headrace.client.app.execution import AttemptControl
from headrace.client.app.options import CallOptions, Options
from headrace.client.app.outcomes import Cancelled, Reject
from headrace.client.calls.batches import batch_results, get_batch, member_id
from headrace.client.calls.tasks import get_task
from headrace.client.codec import Codec, JsonValue, remember_codec
from headrace.client.current import traced, traced_move
from headrace.client.operations import Operation, whole
from headrace.client.options import named
from headrace.client.sending import NewTask, SpawnedTask, carried, spawned
from headrace.domain import limits
from headrace.domain.batch import RESULTS
from headrace.domain.errors import LeaseLost, NotFound, PayloadTooLarge
from headrace.domain.task import State
from headrace.domain.workflow import STEP_TAG, WORKFLOW_TAG, root_id
from headrace.safe_logging import safe_logger
from headrace.wire.batches import BatchResult, BatchResults
from headrace.wire.tasks import BatchEnd, LeasedTask, Task

T = TypeVar("T")

_log: Final = safe_logger("headrace.task")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TARGET: Final = "{verb} takes a queue, or {verb}(function, {{argument: value}}), no {given}"


@dataclass(frozen=True, slots=True)
class MoveTarget:
    """Where a task goes on at the end of its attempt; None keeps what it has."""

    queue: str
    payload: Any
    delay_in_seconds: float
    tags: dict[str, str] | None


class SpawnTarget(Protocol):
    """What a task may be moved to, or spawned for: a task function."""

    @property
    def queue(self) -> str: ...
    def envelope(self, args: Mapping[str, Any], /) -> Mapping[str, Any]: ...
    def new_task(self, args: Mapping[str, Any], options: Options, /) -> NewTask: ...


class ResultsClient(Protocol):
    """The client that asks for the members of a batch."""

    def run(self, operation: Operation[T]) -> T: ...


class AsyncResultsClient(Protocol):
    """The same for an event loop."""

    def run(self, operation: Operation[T]) -> Awaitable[T]: ...


class Clients(Protocol):
    """The clients of the app that an attempt belongs to."""

    @property
    def client(self) -> ResultsClient: ...
    @property
    def async_client(self) -> AsyncResultsClient: ...


class EndedBatch:
    """The batch that made a task, as it stood then.

    In a workflow, where more than three steps wait for one, its numbers count what stands for that
    one; members() and results() are of the steps themselves.
    """

    def __init__(
        self, end: BatchEnd, clients: Clients | None, codec: Codec, *, workflow: str
    ) -> None:
        self._end, self._clients, self._codec, self._workflow = end, clients, codec, workflow
        self.id, self.total = end.id, end.total
        self.succeeded, self.dead, self.deleted = end.succeeded, end.dead, end.deleted

    def __repr__(self) -> str:
        """A short form for logs."""
        return f"<batch {self.id}: {self.succeeded} of {self.total} succeeded>"

    def members(self) -> Sequence[BatchResult]:
        """Return the members of the batch as they ended, those that failed too.

        Raises RuntimeError where it cannot return all of them, as results() does.
        """
        return self._known().client.run(self._members())

    def results(self) -> list[JsonValue]:
        """Return the results of the members that succeeded, in the order they were enqueued.

        Of a batch of more than a hundred members each is read by a call of its own.
        Raises RuntimeError where it cannot return all of them: their tasks are no longer kept, or
        have ids of their own and are more than a hundred.
        """
        return self._known().client.run(self._results())

    async def amembers(self) -> Sequence[BatchResult]:
        """Do what members() does, from an event loop."""
        return await self._known().async_client.run(self._members())

    async def aresults(self) -> list[JsonValue]:
        """Do what results() does, from an event loop."""
        return await self._known().async_client.run(self._results())

    def results_of(self, arguments: Mapping[str, Any]) -> dict[str, JsonValue]:
        """Return the values of *arguments* that are results, by the names of their steps.

        Raises Reject for a step that has no result.
        """
        return self._known().client.run(self._results_of(arguments))

    async def aresults_of(self, arguments: Mapping[str, Any]) -> dict[str, JsonValue]:
        """Do what results_of() does, from an event loop."""
        return await self._known().async_client.run(self._results_of(arguments))

    def _known(self) -> Clients:
        if self._clients is None:
            raise RuntimeError("this attempt has no client to ask for the members of its batch")
        return self._clients

    def _members(self) -> Operation[list[BatchResult]]:
        """Return all members, in the order of a block that added them.

        Raises RuntimeError if they are more than the service lists, and have other ids than the
        SDK gives.
        """
        found: list[BatchResult] = []
        ids = [self.id]  # grows while it is read: with the batches that relays stand for
        self._listed = 0
        for id in ids:
            page: BatchResults = yield from whole(batch_results(id))
            members: Sequence[BatchResult] = page.results
            if page.truncated:
                members = yield from self._every_member(id, members)
            self._listed = self._listed or len(members)
            for one in members:
                if not one.stands_for:
                    found.append(one)
                elif one.stands_for not in ids:
                    ids.append(one.stands_for)
        places: dict[str, int] = {}
        for place in range(len(found)):
            places[member_id(self.id, place)] = places[root_id(self._workflow, place)] = place
        return sorted(found, key=lambda one: places.get(one.id, len(found)))

    def _every_member(self, id: str, first: Sequence[BatchResult]) -> Operation[list[BatchResult]]:
        """Return the members of a batch of which the service lists only the *first*."""
        total = self.total if id == self.id else (yield get_batch(id)).total or 0
        in_block = bool(first) and first[0].id in {member_id(id, n) for n in range(RESULTS)}
        found = []
        for place in range(total):
            name = member_id(id, place) if in_block else root_id(self._workflow, place)
            task: Task | None = None
            with suppress(NotFound):
                task = yield get_task(name, payload=False)
            if task is None or id not in task.batches:
                raise RuntimeError(
                    f"batch {id} has {total} members, and not all can be read: they were deleted or"
                    " are no longer kept, the key may not see their queue, or they were not added"
                    " by client.batch() or a group without ids of their own"
                )
            one = BatchResult(
                id=task.id, queue=task.queue, state=task.state, result_json=task.result_json
            )
            remember_codec(one, self._codec)
            found.append(one)
        return found

    def _results_of(self, arguments: Mapping[str, Any]) -> Operation[dict[str, JsonValue]]:
        """Return results by argument: of one step, of a list of steps, or None: of all members."""
        if all(steps is None for steps in arguments.values()):
            results = yield from self._results()
            return dict.fromkeys(arguments, results)
        members = yield from self._members()
        by_step: dict[str, BatchResult] = {}
        for one in members:
            if one.state is State.SUCCEEDED:
                task: Task = yield get_task(one.id, payload=False)
                by_step[task.tags.get(STEP_TAG, "")] = one

        def result(step: str) -> JsonValue:
            if step not in by_step:
                raise Reject(f"step {step} has no result: it is dead, or is no longer kept")
            return by_step[step].result

        return {
            name: [one.result for one in members]
            if steps is None
            else result(steps)
            if isinstance(steps, str)
            else [result(step) for step in steps]
            for name, steps in arguments.items()
        }

    def _results(self) -> Operation[list[JsonValue]]:
        """Return the results of those that succeeded.  Raises RuntimeError if one is missing."""
        members = yield from self._members()
        ended = self.succeeded + self.dead
        if ended + self.deleted == self.total and self._listed < ended:
            raise RuntimeError(
                f"{ended - self._listed} of the {ended} members of batch {self.id} cannot be read:"
                " they were deleted or are no longer kept, or the key may not see their queue"
            )
        return [member.result for member in members if member.state is State.SUCCEEDED]


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
        clients: Clients | None = None,
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
        """What the task carries, as it travelled.  Raises Unreadable."""
        return self.task.payload

    def download(self, to: str | os.PathLike[str]) -> Path:
        """Write the payload that the task's producer has uploaded to the path *to*; return that.

        It comes a part at a time, whatever its size; a coroutine calls it by
        ``asyncio.to_thread``.  Raises InvalidRequest where there is none, Unavailable, and
        `Reject` where it is lost or is not what was uploaded.
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
        """Whether the lease is over.

        Once this was true the attempt counts for nothing: whatever the handler returns is not
        reported, and the task comes again.
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

        A heartbeat sends it, at most one in a second with the latest value.

        Raises InvalidRequest if it is no JSON, PayloadTooLarge over the limit.
        """
        carried(value, self._codec, field="progress", most=limits.PROGRESS_BYTES)
        self._control.progress(value)

    def move(
        self,
        target: str | SpawnTarget,
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
        target: str | SpawnTarget,
        payload: JsonValue = None,
        **chosen: Unpack[CallOptions],
    ) -> None:
        """Have another task made in the very write that reports the end of this attempt.

        *target* is a queue and *payload* what the task carries; or *target* is a task function
        and *payload* its arguments by name.  Nothing is made if the attempt fails.

        Of more than 24 tasks most come a moment later: tasks that this report makes make them.

        Raises InvalidRequest naming what is wrong, PayloadTooLarge when their payloads take more
        than 2 MiB together.
        """
        place = len(self.spawned)
        options = Options(**chosen)
        if options.overwrite is not None:
            raise checks.wrong("overwrite", "has no meaning here: a spawned task overwrites none")
        if isinstance(target, str):
            if options.queue is not None:
                raise checks.wrong("queue", f"is {target} already, the target")
            if options.unique_for is not None:
                raise checks.wrong("unique_for", "needs a task function as the target")
            where = checks.name("queue", target)
            options.check_key()
            task = options.task(payload, self._now())
        elif not hasattr(target, "new_task"):
            raise TypeError(_TARGET.format(verb="spawn", given=type(target).__name__))
        else:
            where = options.queue or target.queue
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
