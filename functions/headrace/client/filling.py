"""Filling a batch: what is enqueued into it is counted, and at the end the batch is closed.

Tasks are gathered into the calls that carry 25 of them, each queue's for themselves.
"""

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from headrace.client.calls import ApiCall
from headrace.client.calls.batches import close_batch
from headrace.client.calls.tasks import enqueue_entries, not_enqueued
from headrace.client.codec import Codec
from headrace.client.queue_making import awith_queues, with_queues
from headrace.client.sending import SpawnedTask, check_call, in_batch, task_entry
from headrace.domain import limits
from headrace.domain.errors import BatchExists
from headrace.wire.base import JsonValue
from headrace.wire.batches import BatchSeen
from headrace.wire.tasks import Enqueued

T = TypeVar("T")

_CALL_BYTES = limits.BODY_BYTES - 1024  # the brackets around the entries


class Sender(Protocol):
    """What sends calls: a client."""

    @property
    def codec(self) -> Codec: ...
    def send(self, call: ApiCall[T]) -> T: ...


class AsyncSender(Protocol):
    """The same from an event loop."""

    @property
    def codec(self) -> Codec: ...
    async def send(self, call: ApiCall[T]) -> T: ...


class _Filling:
    """What is gathered, and how many members there are."""

    def __init__(
        self, codec: Codec, create: ApiCall[BatchSeen], callbacks: Iterable[object] = ()
    ) -> None:
        self._codec, self._create = codec, create
        self._callbacks = tuple(callbacks)
        self._calls: dict[str, SpawnedTask] = {}  # the last of each queue
        self._gathered: dict[str, list[bytes]] = {}
        self._given: set[str | None] = set()  # ids of the program's own, which may come again
        self._counted: set[str | None] = set()
        self._repeated: set[str | None] = set()  # members that were there before
        self._before = 0  # members when the block began
        self.batch: BatchSeen | None = None
        self.total = 0

    @property
    def id(self) -> str:
        """The id of the batch.  Raises RuntimeError before the block begins."""
        if self.batch is None:
            raise RuntimeError("the batch is made when its `with` block begins")
        return self.batch.id

    def _begin(self, batch: BatchSeen) -> None:
        self.batch, self._before = batch, batch.direct

    def _check_complete(self) -> None:
        """Raise BatchExists if the batch has members that this block has not counted."""
        if self._before > len(self._repeated):
            raise self._filled_before()

    def _filled_before(self) -> BatchExists:
        return BatchExists(
            f"batch {self.id} already had {self._before} members when this block began, and not all"
            " are among its tasks: the block probably ran before. With more members than its total"
            " a batch never ends, so it stays open. Give each task its own id, so that a repeat"
            " adds it once, or use another id for the batch. To end this batch, close it with the"
            " number of all its members: client.close_batch(id, total)"
        )

    def _gather(self, task: SpawnedTask) -> tuple[str, list[bytes]] | None:
        """Add *task*; return a call's worth of its queue if there is one now."""
        check_call(task, "task")
        if self._before and task.id is None and task.unique_for_seconds is None:
            raise self._filled_before()  # no repeat: it would be one member more
        entry = task_entry(in_batch(task, self.id), self._codec, path="task")
        self._given |= {task.id} - {None}
        self._calls[task.queue] = task
        there = self._gathered.setdefault(task.queue, [])
        full = len(there) == limits.BATCH
        if full or sum(map(len, there)) + len(there) + len(entry) >= _CALL_BYTES:
            self._gathered[task.queue] = [entry]
            return task.queue, there
        there.append(entry)
        return None

    def _rest(self) -> list[tuple[str, list[bytes]]]:
        rest = [(queue, entries) for queue, entries in self._gathered.items() if entries]
        self._gathered = {}
        return rest

    def _count(self, results: Sequence[Enqueued]) -> None:
        """Count the members among *results*.  Raises NotEnqueued for entries that are INVALID."""
        for result in results:
            there = result.task if result.outcome == "EXISTING" else None
            ours = there is not None and self.id in there.batches  # its first answer was lost
            if (result.outcome == "CREATED" or ours) and result.id not in self._counted:
                self.total += 1
                self._repeated |= {result.id} if ours else set()
                self._counted |= {result.id} & self._given
        invalid = {
            f"tasks[{place}]": result.detail or ""
            for place, result in enumerate(results)
            if result.outcome == "INVALID"
        }
        if invalid:
            raise not_enqueued(invalid, results)


def _task(queue: str, payload: JsonValue, fields: dict[str, Any]) -> SpawnedTask:
    return SpawnedTask(queue=queue, payload=payload, **fields)


class BatchWriter(_Filling):
    """A batch that is filled in a ``with`` block; see ``Client.batch``."""

    def __init__(
        self, client: Sender, create: ApiCall[BatchSeen], callbacks: Iterable[object] = ()
    ) -> None:
        super().__init__(client.codec, create, callbacks)
        self._client = client

    def __enter__(self) -> Self:
        """Make the batch."""
        self._begin(self._sent(self._create, self._callbacks))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: object, __: TracebackType | None
    ) -> None:
        """Send what is gathered and close the batch; after an error it stays open.

        Raises BatchExists for a batch that has members from before: it would never end.
        """
        if kind is None:
            self.flush()
            self._check_complete()
            self.batch = self._client.send(close_batch(self.id, self.total))

    def add(self, task: SpawnedTask) -> None:
        """Add a call, as ``send.s(to="ada")`` is one.

        Raises InvalidRequest or PayloadTooLarge for what is known at once, and NotEnqueued for an
        entry that came out INVALID of those before.
        """
        if (call := self._gather(task)) is not None:
            self._send(*call)

    def enqueue(self, queue: str, payload: JsonValue = None, **fields: Any) -> None:  # noqa: ANN401 (as Client.enqueue)
        """Add a task of *queue*, with the fields that ``Client.enqueue`` takes, likewise."""
        self.add(_task(queue, payload, fields))

    def flush(self) -> None:
        """Send what is gathered."""
        for call in self._rest():
            self._send(*call)

    def _send(self, queue: str, entries: list[bytes]) -> None:
        results = self._sent(enqueue_entries(queue, entries), [self._calls[queue]])
        self._count(results)

    def _sent(self, call: ApiCall[T], calls: Iterable[object]) -> T:
        """Send *call*, and once more when a queue of *calls* was missing that their app makes."""
        return with_queues(self._client, calls, lambda: self._client.send(call))


class AsyncBatchWriter(_Filling):
    """A batch that is filled in an ``async with`` block; see ``AsyncClient.batch``."""

    def __init__(
        self, client: AsyncSender, create: ApiCall[BatchSeen], callbacks: Iterable[object] = ()
    ) -> None:
        super().__init__(client.codec, create, callbacks)
        self._client = client

    async def __aenter__(self) -> Self:
        """Make the batch."""
        self._begin(await self._sent(self._create, self._callbacks))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, _: object, __: TracebackType | None
    ) -> None:
        """Send what is gathered and close the batch; after an error it stays open.

        Raises BatchExists for a batch that has members from before: it would never end.
        """
        if kind is None:
            await self.flush()
            self._check_complete()
            self.batch = await self._client.send(close_batch(self.id, self.total))

    async def add(self, task: SpawnedTask) -> None:
        """Add a call, as ``send.s(to="ada")`` is one; raises as BatchWriter does."""
        if (call := self._gather(task)) is not None:
            await self._send(*call)

    async def enqueue(self, queue: str, payload: JsonValue = None, **fields: Any) -> None:  # noqa: ANN401 (as Client.enqueue)
        """Add a task of *queue*, with the fields that ``AsyncClient.enqueue`` takes, likewise."""
        await self.add(_task(queue, payload, fields))

    async def flush(self) -> None:
        """Send what is gathered."""
        for call in self._rest():
            await self._send(*call)

    async def _send(self, queue: str, entries: list[bytes]) -> None:
        results = await self._sent(enqueue_entries(queue, entries), [self._calls[queue]])
        self._count(results)

    async def _sent(self, call: ApiCall[T], calls: Iterable[object]) -> T:
        """Send *call*, and once more when a queue of *calls* was missing that their app makes."""
        return await awith_queues(self._client, calls, lambda: self._client.send(call))
