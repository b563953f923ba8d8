"""The methods of the clients: a table of calls and operations, which both clients have.

``Client`` returns a result, ``AsyncClient`` an awaitable of it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

from headrace.client import filling, operations, payloads
from headrace.client.calls import (
    ApiCall,
    CallStep,
    Consumed,
    PagedCall,
    SteppedCall,
    batches,
    many,
    method_of,
    queues,
    service,
    tasks,
    waiting,
    work,
)
from headrace.client.codec import Codec
from headrace.client.http import HttpCalls
from headrace.client.operations import Operation, Stream
from headrace.client.settings import ClientSettings

if TYPE_CHECKING:
    from headrace.client.aio import AsyncClient
    from headrace.client.client import Client

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
S = TypeVar("S", bound=CallStep)


class Method(Protocol[P, T_co]):
    """The type of a method; the method itself is a function."""

    @overload
    def __get__(self, client: None, owner: object, /) -> Callable[..., Any]: ...
    @overload
    def __get__(self, client: "Client", owner: object, /) -> Callable[P, T_co]: ...
    @overload
    def __get__(self, client: "AsyncClient", owner: object, /) -> Callable[P, Awaitable[T_co]]: ...


class Listing(Protocol[P, T_co]):
    """The type of a method that goes through values."""

    @overload
    def __get__(self, client: None, owner: object, /) -> Callable[..., Any]: ...
    @overload
    def __get__(self, client: "Client", owner: object, /) -> Callable[P, Iterator[T_co]]: ...
    @overload
    def __get__(
        self, client: "AsyncClient", owner: object, /
    ) -> Callable[P, AsyncIterator[T_co]]: ...


def _sent(make: Callable[P, ApiCall[T]]) -> Method[P, T]:
    """Return a method that sends a call and returns the answer."""
    return method_of(make, "send")  # type: ignore[no-any-return]


def _total(make: Callable[P, SteppedCall[S]]) -> Method[P, S]:
    """Return a method that sends all calls of an operation and returns their total."""
    return method_of(make, "run", operations.whole)  # type: ignore[no-any-return]


def _run(make: Callable[P, Operation[T]]) -> Method[P, T]:
    """Return a method that takes the steps of an operation and returns its result."""
    return method_of(make, "run")  # type: ignore[no-any-return]


def _listed(make: Callable[P, PagedCall[T]]) -> Listing[P, T]:
    """Return a method that goes through a list; it asks for a page only when it is needed."""
    return method_of(make, "stream", operations.entries)  # type: ignore[no-any-return]


def _streamed(make: Callable[P, Stream[T]]) -> Listing[P, T]:
    """Return a method that takes the steps of a stream as its values are consumed."""
    return method_of(make, "stream")  # type: ignore[no-any-return]


class ClientMethods:
    """What both clients have."""

    settings: ClientSettings
    codec: Codec
    _calls: HttpCalls

    @property
    def url(self) -> str:
        """The address of the service."""
        return self.settings.url

    @property
    def consumed(self) -> Consumed:
        """The cost of its calls so far."""
        return self._calls.usage.so_far

    @property
    def clock(self) -> operations.Clock:
        """The clock of waits, in seconds."""
        return operations.monotonic

    def __repr__(self) -> str:
        """A short form for logs, without secrets."""
        return f"{type(self).__name__}({self.url!r})"

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
    enqueue_many = _run(operations.enqueue_many)
    enqueue_each = _streamed(operations.enqueue_each)
    upload_payload = _sent(payloads.upload_payload)
    upload = _run(payloads.upload)
    enqueue_file = _run(payloads.enqueue_file)
    download = _run(payloads.download)
    get_task = _sent(tasks.get_task)
    wait = _run(waiting.wait)
    updates = _streamed(waiting.updates)
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

    # ------------------------------------------------------------------------------------ actions

    begin_action = _sent(many.begin_action)
    list_actions = _listed(many.list_actions)
    get_action = _sent(many.get_action)
    pause_action = _sent(many.pause_action)
    resume_action = _sent(many.resume_action)
    cancel_action = _sent(many.cancel_action)

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
