"""The client of the API for programs with an event loop; ``client.py`` is made from it.

The calls are those of ``headrace.client.calls``: a method sends one, or walks through several.
Long, because what users can call is read in one place.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial, wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, TypeVar, Unpack

from headrace.client.batches import Errors, batches_of, checked, raises
from headrace.client.calls import (
    ApiCall,
    CallChain,
    CallFailed,
    CallStep,
    Consumed,
    PagedCall,
    SteppedCall,
    actions,
    batches,
    queues,
    service,
    tasks,
    work,
)
from headrace.client.calls.waiting import (
    NO_PROGRESS,
    UPDATES_EVERY,
    AsyncLooking,
    LookPace,
    TaskLook,
    look_at_task,
    not_ended,
)
from headrace.client.codec import PLAIN, Codec
from headrace.client.connections import Unanswered
from headrace.client.filling import AsyncBatchWriter
from headrace.client.options import check_options, named, option_names
from headrace.client.payloads import AsyncUploading, upload_payload
from headrace.client.queue_fields import QueueFields
from headrace.client.queue_making import awith_queues
from headrace.client.sending import NewTask, Report, SpawnedTask
from headrace.client.settings import RETRIES, ClientSettings
from headrace.domain import limits
from headrace.domain.errors import VersionMismatch
from headrace.wire.base import JsonValue
from headrace.wire.queues import Queue
from headrace.wire.tasks import Enqueued, Reported, Task

if TYPE_CHECKING:
    import httpx2 as httpx

    from headrace.client.connections import SentRequest
    from headrace.client.http import AsyncSleep

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound=CallStep)

_EDITS = 5  # tries of an edit that others get in the way of


def _sent(make: Callable[P, ApiCall[T]]) -> Callable[Concatenate["AsyncClient", P], Awaitable[T]]:
    """Make a method of a call: it sends it and returns what it is answered."""
    known = option_names(make)

    @wraps(make)
    async def method(self: "AsyncClient", *args: P.args, **kwargs: P.kwargs) -> T:
        if not kwargs.keys() <= known:
            check_options(make, kwargs)
        return await self.send(make(*args, **kwargs))

    return method  # type: ignore[return-value]  # `wraps` gives `self` a name of its own


def _sent_with_calls(
    make: Callable[P, ApiCall[T]],
) -> Callable[Concatenate["AsyncClient", P], Awaitable[T]]:
    """Do the same of a call that names calls: their app makes queues of theirs that are missing."""
    known = option_names(make)

    @wraps(make)
    async def method(self: "AsyncClient", *args: P.args, **kwargs: P.kwargs) -> T:
        if not kwargs.keys() <= known:
            check_options(make, kwargs)
        call = make(*args, **kwargs)
        return await awith_queues(self, kwargs.values(), lambda: self.send(call))

    return method  # type: ignore[return-value]  # `wraps` gives `self` a name of its own


def _listed(
    make: Callable[P, PagedCall[T]],
) -> Callable[Concatenate["AsyncClient", P], AsyncIterator[T]]:
    """Make a method of a list: it asks for one page after the other, as they are needed."""
    known = option_names(make)

    @wraps(make)
    def method(self: "AsyncClient", *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        if not kwargs.keys() <= known:
            check_options(make, kwargs)
        return self.each(make(*args, **kwargs))

    return method  # type: ignore[return-value]  # `wraps` gives `self` a name of its own


def _stepped(
    make: Callable[P, SteppedCall[S]],
) -> Callable[Concatenate["AsyncClient", P], Awaitable[S]]:
    """Make a method of what may take several calls: it returns what they come to."""
    known = option_names(make)

    @wraps(make)
    async def method(self: "AsyncClient", *args: P.args, **kwargs: P.kwargs) -> S:
        if not kwargs.keys() <= known:
            check_options(make, kwargs)
        steps = make(*args, **kwargs)
        return steps.total([step async for step in self.answers(steps)])

    return method  # type: ignore[return-value]  # `wraps` gives `self` a name of its own


class AsyncClient(AsyncUploading, AsyncLooking):
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
        timeout: float | None = None,  # noqa: ASYNC109 (of the request, as the synchronous twin)
    ) -> T:
        """Send *call* and return what it is answered.

        *again* False tries it only once; *timeout* (seconds) takes the place of the client's.
        """
        if os.getpid() != self._process:
            self._connect()  # a fork has its parent's connections, and would get its answers
        request = self._calls.request(self._connections, call, timeout)
        tries = 0
        while True:
            tries += 1
            try:
                return await self._once(call, request)
            except CallFailed as failure:
                if not again:
                    raise failure.error from None
                wait = self._calls.wait_after(failure, request, tries)
            await self._sleep(wait)

    async def _once(self, call: ApiCall[T], request: "SentRequest") -> T:
        try:
            response = await self._connections.send(request)
        except Unanswered as why:
            raise self._calls.unanswered(call, why) from None
        return self._calls.read(call, response)

    async def each(self, pages: PagedCall[T]) -> AsyncIterator[T]:
        """Go through the entries of a list, page after page, in constant memory."""
        async for page in self.answers(pages):
            for entry in page.entries:
                yield entry

    async def answers(self, steps: CallChain[S]) -> AsyncIterator[S]:
        """Take step after step; after each, yield what it was answered."""
        cursor: str | None = None
        while True:
            step = await self.send(steps.at(cursor))
            yield step
            cursor = step.cursor
            if cursor is None:
                return

    async def steps(self, steps: SteppedCall[S]) -> AsyncIterator[S]:
        """Take step after step; after each, yield what they have come to."""
        found: S | None = None
        async for step in self.answers(steps):
            found = step if found is None else steps.total([found, step])
            yield found

    # ------------------------------------------------------------------------------------ queues

    create_queue = _sent(queues.create_queue)
    get_queue = _sent(queues.get_queue)
    list_queues = _listed(queues.list_queues)
    replace_queue = _sent(queues.replace_queue)
    delete_queue = _sent(queues.delete_queue)
    pause_queue = _sent(queues.pause_queue)
    resume_queue = _sent(queues.resume_queue)
    purge_queue = _sent(queues.purge_queue)
    recount_queue = _stepped(queues.recount_queue)
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

    @named
    async def edit_queue(self, name: str, **changes: Unpack[QueueFields]) -> Queue:
        """Change some settings and leave the others; those in objects one by one too.

        Raises NotFound, InvalidRequest naming the field, or VersionMismatch when others keep
        changing the queue at the same time.
        """
        for _ in range(_EDITS - 1):
            with suppress(VersionMismatch):
                return await self.replace_queue(queues.merged(await self.get_queue(name), changes))
        return await self.replace_queue(queues.merged(await self.get_queue(name), changes))

    # ------------------------------------------------------------------------------------- tasks

    enqueue = _sent(tasks.enqueue)
    upload_payload = _sent(upload_payload)
    get_task = _sent(tasks.get_task)
    delete_task = _sent(tasks.delete_task)
    cancel_task = _sent(tasks.cancel_task)
    explain_task = _sent(tasks.explain_task)
    list_tasks = _listed(tasks.list_tasks)
    count_tasks = _stepped(tasks.count_tasks)
    delete_tasks = _stepped(tasks.delete_tasks)
    undo = _stepped(tasks.undo)
    restart_tasks = _stepped(tasks.restart_tasks)
    run_tasks = _stepped(tasks.run_tasks)
    move_tasks = _stepped(tasks.move_tasks)
    cancel_tasks = _stepped(tasks.cancel_tasks)

    async def enqueue_many(
        self, queue: str, new: Iterable[NewTask], *, errors: Errors = "raise"
    ) -> list[Enqueued]:
        """Put any number of tasks into *queue*; one result for each, in their order.

        Raises what ``enqueue`` does; what came before is in the queue then.  Give ids of your own
        where all of it may have to be sent again.  Entries that come out INVALID keep no other one
        back: NotEnqueued is raised when all are sent, with the ``results``; with *errors*
        ``"return"`` they are results like the others.
        """
        raising = raises(errors)
        results = [result async for result in self.enqueue_each(queue, new, errors="return")]
        return checked(results, raising=raising)

    async def enqueue_each(
        self, queue: str, new: Iterable[NewTask], *, errors: Errors = "raise"
    ) -> AsyncIterator[Enqueued]:
        """Do the same in constant memory: each batch goes out when its results are consumed.

        The first entry that comes out INVALID raises NotEnqueued in its place; those of its batch
        are sent then, and none that come after.
        """
        raising = raises(errors)
        place = 0
        for batch in batches_of(new, self.codec):
            for result in await self.send(tasks.enqueue_entries(queue, batch)):
                if raising and result.outcome == "INVALID":
                    raise tasks.not_enqueued({f"tasks[{place}]": result.detail or ""}, [result])
                yield result
                place += 1

    async def wait(
        self,
        id: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 (as the synchronous twin)
        payload: bool | None = None,
    ) -> Task:
        """Return a task once it has ended, SUCCEEDED or DEAD; moves and retries are no end.

        It hears of the end at once over a file and from a service on this machine.  A deployment
        on AWS is asked again after 1 to 5 seconds: waiting there would cost more.
        *timeout* is in seconds; None waits for as long as it takes.  *payload* as in ``get_task``.
        Raises TimeoutError, and NotFound, also as soon as the task is gone: its queue keeps none
        that have ended so, or it was deleted.
        """
        async for look in self._looks(id, timeout, payload=payload):  # noqa: B007  the last one
            pass
        if not look.ended:
            raise not_ended(id, timeout, look.task.state)
        return look.task

    async def updates(
        self,
        id: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 (as the synchronous twin)
    ) -> AsyncIterator[JsonValue]:
        """Go through the progress of a task as its worker shows it, until the task has ended.

        What changes between two looks, half a second apart or as in ``wait``, is not seen.
        Raises as ``wait`` does, and Unreadable.
        """
        shown = NO_PROGRESS
        async for look in self._looks(id, timeout, payload=False, turn=UPDATES_EVERY):
            progress = bytes(look.task.progress_json)
            if progress not in {shown, NO_PROGRESS}:
                yield look.task.progress
            shown = progress
        if not look.ended:
            raise not_ended(id, timeout, look.task.state)

    async def _looks(
        self,
        id: str,
        timeout: float | None,  # noqa: ASYNC109 (likewise)
        *,
        payload: bool | None,
        turn: float | None = None,
    ) -> AsyncIterator[TaskLook]:
        """Look at a task again and again, at least once, until it has ended or time is over."""
        pace = LookPace(timeout, turn=turn or self._calls.turn_seconds)
        look = await self.send(look_at_task(id, payload=payload))
        yield look
        while not look.ended:
            step = pace.after(look)
            if step is None:
                return
            if step.rest:
                await self._sleep(step.rest)
            call = look_at_task(id, payload=payload, wait_seconds=step.wait)
            async with self._turns:
                look = await self.send(call, timeout=self.settings.timeout + step.wait)
            yield look

    # ------------------------------------------------------------------------------------ actions

    begin_action = _sent(actions.begin_action)
    list_actions = _listed(actions.list_actions)
    get_action = _sent(actions.get_action)
    pause_action = _sent(actions.pause_action)
    resume_action = _sent(actions.resume_action)
    cancel_action = _sent(actions.cancel_action)

    # ------------------------------------------------------------------------------------ batches

    create_batch = _sent_with_calls(batches.create_batch)
    get_batch = _sent(batches.get_batch)
    list_batches = _listed(batches.list_batches)
    close_batch = _sent(batches.close_batch)
    batch_results = _stepped(batches.batch_results)
    batch_steps = _sent(batches.batch_steps)
    cancel_batch = _stepped(batches.cancel_batch)
    recount_batch = _stepped(batches.recount_batch)
    delete_batch = _sent(batches.delete_batch)

    def batch(
        self,
        *,
        on_ended: SpawnedTask | None = None,
        on_succeeded: SpawnedTask | None = None,
        on_failed: SpawnedTask | None = None,
        id: str | None = None,
        expires_in_seconds: float | None = None,
    ) -> AsyncBatchWriter:
        """Make a batch and fill it, in a ``with`` block that closes it at its end.

        Should the block raise, the batch stays open, and expires.  Callbacks are as in
        ``create_batch``, those of an app as ``report.s(…)``; queues that the app declares
        are made where they are missing, and others must exist.
        """
        create = batches.create_batch(
            id=id,
            on_ended=on_ended,
            on_succeeded=on_succeeded,
            on_failed=on_failed,
            expires_in_seconds=expires_in_seconds,
        )
        return AsyncBatchWriter(self, create, (on_ended, on_succeeded, on_failed))

    # ------------------------------------------------------------------------------------ workers

    dequeue = _sent(work.dequeue)
    open_lease = _sent(work.open_lease)
    extend_lease = _sent(work.extend_lease)
    close_lease = _sent(work.close_lease)
    put_worker = _sent(work.put_worker)
    list_workers = _listed(work.list_workers)
    quiet_worker = _sent(work.quiet_worker)
    stop_worker = _sent(work.stop_worker)

    async def report(self, queue: str, reports: Sequence[Report]) -> list[Reported]:
        """Report on tasks of *queue*; one result for each, in their order."""
        results: list[Reported] = []
        for start in range(0, len(reports), limits.BATCH):
            some = reports[start : start + limits.BATCH]
            answered = await self.send(work.report_batch(queue, some))
            results += answered
        return results

    # -------------------------------------------------------------------------------- the service

    create_key = _sent(service.create_key)
    rotate_key = _sent(service.rotate_key)
    get_key = _sent(service.get_key)
    list_keys = _listed(service.list_keys)
    delete_key = _sent(service.delete_key)
    list_audit = _listed(service.list_audit)
    health = _sent(service.health)
    call = _sent(service.call)
