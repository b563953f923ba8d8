"""The client of the API for programs with an event loop; see ``headrace.client.client``."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from headrace.client import filling, operations, payloads
from headrace.client.calls import (
    ApiCall,
    CallFailed,
    CallStep,
    Consumed,
    PagedCall,
    SteppedCall,
    actions,
    batches,
    many,
    method_of,
    queues,
    service,
    tasks,
    waiting,
    work,
)
from headrace.client.codec import PLAIN, Codec
from headrace.client.connections import Unanswered
from headrace.client.filling import AsyncBatchWriter, BatchFields
from headrace.client.operations import Blocking, Errors, Found, Operation, Pause, Step, Stream
from headrace.client.sending import NewTask
from headrace.client.settings import RETRIES, ClientSettings
from headrace.domain.errors import HeadraceError
from headrace.wire.base import JsonValue
from headrace.wire.tasks import Enqueued, Task

if TYPE_CHECKING:
    import httpx2 as httpx

    from headrace.client.http import AsyncSleep

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound=CallStep)


def _sent(make: Callable[P, ApiCall[T]]) -> Callable[Concatenate["AsyncClient", P], Awaitable[T]]:
    """Return a method that sends a call and returns the answer."""
    return method_of(make, lambda client, call: client.send(call))


def _listed(
    make: Callable[P, PagedCall[T]],
) -> Callable[Concatenate["AsyncClient", P], AsyncIterator[T]]:
    """Return a method that goes through a list; it asks for a page only when it is needed."""
    return method_of(make, lambda client, pages: client.stream(operations.entries(pages)))


def _total(
    make: Callable[P, SteppedCall[S]],
) -> Callable[Concatenate["AsyncClient", P], Awaitable[S]]:
    """Return a method that sends all calls of an operation and returns their total."""
    return method_of(make, lambda client, steps: client.run(operations.whole(steps)))


def _run(
    make: Callable[P, Operation[T]],
) -> Callable[Concatenate["AsyncClient", P], Awaitable[T]]:
    """Return a method that takes the steps of an operation and returns its result."""
    return method_of(make, lambda client, operation: client.run(operation))


class AsyncClient:
    """Headrace's API.  Tasks of one loop may share one; every method raises kinds of HeadraceError.

    Address and key are taken from the arguments, else from ``HEADRACE_URL`` and ``HEADRACE_KEY``.

    Args:
        url: where the service is, as ``https://host/stage``.
        key: an API key.
        timeout: seconds that one try of one call may take.
        codec: how payloads, results and progress are written.
        retries: tries after the first, with growing random waits of up to ten seconds between.
        transport: takes the place of the network, in tests.
        sleep: waits between tries, in tests.

    Raises:
        InvalidRequest: url or key is missing or cannot be one.

    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout: float = 30.0,
        codec: Codec = PLAIN,
        retries: int = RETRIES,
        transport: "httpx.AsyncBaseTransport | None" = None,
        sleep: "AsyncSleep" = asyncio.sleep,
    ) -> None:
        # HTTP takes as long to import as all else together: not before it is needed.
        from headrace.client import http  # noqa: PLC0415 (see above)

        self.settings = ClientSettings.of(url, key, timeout=timeout)
        self.codec = codec
        self._calls = http.HttpCalls(self.settings, codec, retries=retries)
        self._sleep = sleep
        self._new_connections = partial(self._calls.async_connections, transport)
        self._connect()

    def _connect(self) -> None:
        self._connections = self._new_connections()
        self._process = os.getpid()
        self._turns = asyncio.Semaphore(self._calls.turns)

    @property
    def url(self) -> str:
        """Where the service is."""
        return self.settings.url

    @property
    def consumed(self) -> Consumed:
        """The cost of its calls so far."""
        return self._calls.usage.so_far

    def __repr__(self) -> str:
        """A short form for logs, without secrets."""
        return f"AsyncClient({self.url!r})"

    async def __aenter__(self) -> Self:
        """Return the client; leaving the block closes it."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.aclose()

    async def send(
        self,
        call: ApiCall[T],
        *,
        again: bool = True,
        timeout: float | None = None,  # noqa: ASYNC109  of the request
    ) -> T:
        """Send *call* and return the answer; see ``Client.send``."""
        if os.getpid() != self._process:
            self._connect()  # a fork has its parent's connections, and would get its answers
        if not call.wait_seconds:
            return await self._tries(call, timeout, again=again)
        async with self._turns:
            return await self._tries(call, timeout, again=again)

    async def _tries(self, call: ApiCall[T], timeout: float | None, *, again: bool) -> T:  # noqa: ASYNC109
        request = self._calls.request(self._connections, call, timeout)
        tries = 0
        while True:
            tries += 1
            try:
                response = await self._connections.send(request)
                return self._calls.read(call, response)
            except Unanswered as why:
                failure = self._calls.unanswered(call, why)
            except CallFailed as refused:
                failure = refused
            if not again:
                raise failure.error from None
            await self._sleep(self._calls.wait_after(failure, request, tries))

    async def run(self, operation: Operation[T]) -> T:
        """Take the steps of *operation*, and return its result."""
        try:
            step = next(operation)
            while True:
                try:
                    result = await self._take(step)
                except HeadraceError as error:
                    step = operation.throw(error)
                else:
                    step = operation.send(result)
        except StopIteration as done:
            found: T = done.value
            return found

    async def stream(self, stream: Stream[T]) -> AsyncIterator[T]:
        """Take the steps of *stream* as its values are consumed; yield these."""
        try:
            step = next(stream)
            while True:
                if isinstance(step, Found):
                    for value in step.values:
                        yield value
                    step = next(stream)
                    continue
                try:
                    result = await self._take(step)
                except HeadraceError as error:
                    step = stream.throw(error)
                else:
                    step = stream.send(result)
        except StopIteration:
            return

    async def _take(self, step: Step) -> Any:  # noqa: ANN401  as the operation expects
        if isinstance(step, ApiCall):
            return await self.send(step)
        if isinstance(step, Blocking):
            return await asyncio.to_thread(step.call)
        return await self._pause(step)

    async def _pause(self, pause: Pause) -> None:
        await self._sleep(pause.seconds)

    @property
    def clock(self) -> operations.Clock:
        """The clock of waits, in seconds."""
        return operations.monotonic

    # ------------------------------------------------------------------------------------ queues

    create_queue = _sent(queues.create_queue)
    get_queue = _sent(queues.get_queue)
    list_queues = _listed(queues.list_queues)
    replace_queue = _sent(queues.replace_queue)
    delete_queue = _sent(queues.delete_queue)
    pause_queue = _sent(queues.pause_queue)
    resume_queue = _sent(queues.resume_queue)
    purge_queue = _sent(queues.purge_queue)
    recount_queue = _total(queues.recount_queue)
    reindex_queue = _sent(queues.reindex_queue)
    get_signing_secret = _sent(queues.get_signing_secret)
    rotate_signing_secret = _sent(queues.rotate_signing_secret)
    get_stats = _sent(queues.get_stats)
    get_metrics = _sent(queues.get_metrics)
    get_group = _sent(queues.get_group)
    put_schedule = _sent(queues.put_schedule)
    get_schedule = _sent(queues.get_schedule)
    list_schedules = _listed(queues.list_schedules)
    delete_schedule = _sent(queues.delete_schedule)
    run_schedule = _sent(queues.run_schedule)
    edit_queue = _run(operations.edit_queue)

    # ------------------------------------------------------------------------------------- tasks

    enqueue = _sent(tasks.enqueue)
    upload_payload = _sent(payloads.upload_payload)
    upload = _run(payloads.upload)
    enqueue_file = _run(payloads.enqueue_file)
    download = _run(payloads.download)
    get_task = _sent(tasks.get_task)
    delete_task = _sent(tasks.delete_task)
    cancel_task = _sent(tasks.cancel_task)
    explain_task = _sent(tasks.explain_task)
    list_tasks = _listed(many.list_tasks)
    count_tasks = _total(many.count_tasks)
    delete_tasks = _total(many.delete_tasks)
    undo = _total(many.undo)
    restart_tasks = _total(many.restart_tasks)
    run_tasks = _total(many.run_tasks)
    move_tasks = _total(many.move_tasks)
    cancel_tasks = _total(many.cancel_tasks)

    async def enqueue_many(
        self, queue: str, new: Iterable[NewTask], *, errors: Errors = "raise"
    ) -> list[Enqueued]:
        """Put any number of tasks into *queue*; see ``Client.enqueue_many``."""
        return await self.run(operations.enqueue_many(queue, new, self.codec, errors))

    def enqueue_each(
        self, queue: str, new: Iterable[NewTask], *, errors: Errors = "raise"
    ) -> AsyncIterator[Enqueued]:
        """Do the same in constant memory; see ``Client.enqueue_each``."""
        return self.stream(operations.enqueue_each(queue, new, self.codec, errors))

    async def wait(
        self,
        id: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 (as the synchronous twin)
        payload: bool | None = None,
    ) -> Task:
        """Return a task once it has ended; see ``Client.wait``."""
        return await self.run(waiting.wait(id, timeout=timeout, payload=payload, clock=self.clock))

    def updates(self, id: str, *, timeout: float | None = None) -> AsyncIterator[JsonValue]:
        """Go through the progress of a task until it has ended; see ``Client.updates``."""
        return self.stream(waiting.updates(id, timeout=timeout, clock=self.clock))

    # ------------------------------------------------------------------------------------ actions

    begin_action = _sent(actions.begin_action)
    list_actions = _listed(actions.list_actions)
    get_action = _sent(actions.get_action)
    pause_action = _sent(actions.pause_action)
    resume_action = _sent(actions.resume_action)
    cancel_action = _sent(actions.cancel_action)

    # ------------------------------------------------------------------------------------ batches

    create_batch = _run(filling.create_batch)
    get_batch = _sent(batches.get_batch)
    list_batches = _listed(batches.list_batches)
    close_batch = _sent(batches.close_batch)
    batch_results = _total(batches.batch_results)
    batch_steps = _sent(batches.batch_steps)
    cancel_batch = _total(batches.cancel_batch)
    recount_batch = _total(batches.recount_batch)
    delete_batch = _sent(batches.delete_batch)

    def batch(self, *, id: str | None = None, **fields: Unpack[BatchFields]) -> AsyncBatchWriter:
        """Make a batch and fill it, in an ``async with`` block that closes it at its end.

        If the block raises, the batch stays open, and expires.  Callbacks are as in
        ``create_batch``, those of an app as ``report.s(…)``; queues that the app declares
        are made where they are missing, and others must exist.
        """
        return AsyncBatchWriter(self, id, fields)

    # ------------------------------------------------------------------------------------ workers

    dequeue = _sent(work.dequeue)
    open_lease = _sent(work.open_lease)
    extend_lease = _sent(work.extend_lease)
    close_lease = _sent(work.close_lease)
    report = _run(operations.report)
    put_worker = _sent(work.put_worker)
    list_workers = _listed(work.list_workers)
    quiet_worker = _sent(work.quiet_worker)
    stop_worker = _sent(work.stop_worker)

    # -------------------------------------------------------------------------------- the service

    create_key = _sent(service.create_key)
    rotate_key = _sent(service.rotate_key)
    get_key = _sent(service.get_key)
    list_keys = _listed(service.list_keys)
    delete_key = _sent(service.delete_key)
    list_audit = _listed(service.list_audit)
    health = _sent(service.health)
    call = _sent(service.call)
