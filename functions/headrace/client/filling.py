"""Fill a batch: count the tasks that are enqueued into it, and close it at the end.

Tasks are gathered by queue, and sent in calls of 25.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypedDict, Unpack

from headrace.client.calls import batches
from headrace.client.calls.batches import member_id
from headrace.client.calls.tasks import check_enqueued, enqueue_entries, get_task
from headrace.client.codec import Codec
from headrace.client.operations import Operation, sent, with_queues
from headrace.client.sending import SpawnedTask, check_call, in_batch, task_entry
from headrace.domain import limits
from headrace.domain.errors import BatchExists, NotFound
from headrace.domain.texts import amount
from headrace.wire.base import JsonValue, Unreadable
from headrace.wire.batches import BatchSeen
from headrace.wire.tasks import Enqueued, Task

if TYPE_CHECKING:
    from headrace.client.aio import AsyncClient
    from headrace.client.client import Client

_CALL_BYTES: Final = limits.BODY_BYTES - 1024  # the brackets around the entries


class BatchFields(TypedDict, total=False):
    """The callbacks of a batch, and how long the service remembers it."""

    on_ended: SpawnedTask | None
    on_succeeded: SpawnedTask | None
    on_failed: SpawnedTask | None
    expires_in_seconds: float | None


def create_batch(
    *, id: str | None = None, total: int | None = None, **fields: Unpack[BatchFields]
) -> Operation[BatchSeen]:
    """Create a batch.  Repeats are safe: the client chooses a missing id.

    Each callback is a task that the service enqueues once; missing queues that the callback's app
    declares are created.  *total* is the number of tasks that will be enqueued into the batch;
    without it, close the batch when the number is known.

    Raises BatchExists if another batch has this id, and InvalidRequest naming the field.
    """
    call = batches.create_batch(id=id, total=total, **fields)
    return with_queues(fields.values(), lambda: sent(call))


class _Filling:
    """The tasks that are gathered, and the number of members."""

    def __init__(self, codec: Codec, id: str | None, fields: BatchFields) -> None:
        self._codec, self._create = codec, create_batch(id=id, **fields)
        self._gathered: dict[str, list[_Member]] = {}  # by queue
        self._place = 0  # of the next task
        self._given: set[str | None] = set()  # ids chosen by the program; they may repeat
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

    def _begin(self) -> Operation[None]:
        self.batch = yield from self._create
        self._before = self.batch.direct

    def _end(self) -> Operation[None]:
        """Send what is gathered and close the batch.

        Raises BatchExists if the batch has members that this block has not counted.
        """
        yield from self._flush()
        if self._before > len(self._repeated):
            raise self._filled_before()
        self.batch = yield batches.close_batch(self.id, self.total)

    def _filled_before(self) -> BatchExists:
        return BatchExists(
            f"batch {self.id} already had {amount(self._before, 'member')} when this block began,"
            " and not all are among its tasks: the block ran before with other tasks. With more"
            " members than its total a batch never ends, so it stays open. Add the same tasks in"
            " the same order, give each task its own id, or use another id for the batch. To end"
            " this batch, close it with the number of its members: client.close_batch(id, total)"
        )

    def _add(self, task: SpawnedTask) -> Operation[None]:
        """Add *task*; send a call's worth of its queue if there is one now."""
        check_call(task, "task")
        given = task.id is not None
        if not given and task.unique_for_seconds is None:
            task = replace(task, id=member_id(self.id, self._place))
        self._place += 1
        if self._before and task.id is None:
            raise self._filled_before()  # no repeat: it would be one member more
        member = _Member(task, task_entry(in_batch(task, self.id), self._codec, path="task"))
        self._given |= {task.id} if given else set()
        there = self._gathered.setdefault(task.queue, [])
        size = sum(len(one.entry) + 1 for one in there)
        if len(there) == limits.BATCH or size + len(member.entry) >= _CALL_BYTES:
            self._gathered[task.queue] = [member]
            yield from self._send(task.queue, there)
        else:
            there.append(member)

    def _flush(self) -> Operation[None]:
        gathered, self._gathered = self._gathered, {}
        for queue, members in gathered.items():
            yield from self._send(queue, members)

    def _send(self, queue: str, members: Sequence["_Member"]) -> Operation[None]:
        call = enqueue_entries(queue, [one.entry for one in members])
        results = yield from with_queues([members[-1].task], lambda: sent(call))
        repeated = [
            member for member, result in zip(members, results, strict=True) if self._count(result)
        ]
        yield from self._check_same(repeated)
        check_enqueued(results)

    def _count(self, result: Enqueued) -> bool:
        """Count the member that *result* is about; return whether a run before has added it."""
        there = result.task if result.outcome == "EXISTING" else None
        ours = there is not None and self.id in there.batches
        if (result.outcome == "CREATED" or ours) and result.id not in self._counted:
            self.total += 1
            self._repeated |= {result.id} if ours else set()
            self._counted |= {result.id} & self._given
        return ours and result.id not in self._given

    def _check_same(self, repeated: Sequence["_Member"]) -> Operation[None]:
        """Raise BatchExists if the run before has added other tasks than *repeated*.

        One task more or less moves the places of all tasks after it, so the last one shows it.
        """
        if not repeated:
            return
        task = repeated[-1].task
        with suppress(NotFound, Unreadable):
            there: Task = yield get_task(str(task.id))
            payload = self._codec.decode(self._codec.encode(task.payload))
            if there.queue != task.queue or there.payload != payload:
                raise self._filled_before()


@dataclass(frozen=True, slots=True)
class _Member:
    """A task that is to be added, and its entry in the call."""

    task: SpawnedTask
    entry: bytes


def _task(queue: str, payload: JsonValue, fields: dict[str, Any]) -> SpawnedTask:
    return SpawnedTask(queue=queue, payload=payload, **fields)


class BatchWriter(_Filling):
    """A batch that is filled in a ``with`` block; see ``Client.batch``."""

    def __init__(self, client: "Client", id: str | None, fields: BatchFields) -> None:
        super().__init__(client.codec, id, fields)
        self._client = client

    def __enter__(self) -> Self:
        """Create the batch."""
        self._client.run(self._begin())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: object, __: TracebackType | None
    ) -> None:
        """Send the gathered tasks and close the batch; after an error it stays open.

        Raises BatchExists for a batch with members of an earlier block: it would never end.
        """
        if kind is None:
            self._client.run(self._end())

    def add(self, task: SpawnedTask) -> None:
        """Add a call, as ``send.s(to="ada")`` is one.

        Raises InvalidRequest or PayloadTooLarge for this call, and NotEnqueued for an INVALID entry
        of an earlier one.
        """
        self._client.run(self._add(task))

    def enqueue(self, queue: str, payload: JsonValue = None, **fields: Any) -> None:  # noqa: ANN401 (as Client.enqueue)
        """Add a task of *queue*, with the fields that ``Client.enqueue`` takes."""
        self.add(_task(queue, payload, fields))

    def flush(self) -> None:
        """Send the gathered tasks."""
        self._client.run(self._flush())


class AsyncBatchWriter(_Filling):
    """A batch that is filled in an ``async with`` block; see ``AsyncClient.batch``."""

    def __init__(self, client: "AsyncClient", id: str | None, fields: BatchFields) -> None:
        super().__init__(client.codec, id, fields)
        self._client = client

    async def __aenter__(self) -> Self:
        """Create the batch."""
        await self._client.run(self._begin())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, _: object, __: TracebackType | None
    ) -> None:
        """Send the gathered tasks and close the batch; after an error it stays open.

        Raises BatchExists for a batch with members of an earlier block: it would never end.
        """
        if kind is None:
            await self._client.run(self._end())

    async def add(self, task: SpawnedTask) -> None:
        """Add a call, as ``send.s(to="ada")`` is one; raises as BatchWriter does."""
        await self._client.run(self._add(task))

    async def enqueue(self, queue: str, payload: JsonValue = None, **fields: Any) -> None:  # noqa: ANN401 (as Client.enqueue)
        """Add a task of *queue*, with the fields that ``AsyncClient.enqueue`` takes."""
        await self.add(_task(queue, payload, fields))

    async def flush(self) -> None:
        """Send the gathered tasks."""
        await self._client.run(self._flush())
