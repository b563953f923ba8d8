"""The client of the API for programs that wait for their answers."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from headrace.client.batcher import Batcher
from headrace.client.batches import (
    Errors,
    batches_of,
    checked,
    gathered,
    ids_in_calls,
    merged,
    not_enqueued,
    raises,
)
from headrace.client.call import ApiCall, CallStep, PagedCall, SteppedCall
from headrace.client.calls import queues, service, tasks, work
from headrace.client.calls.tasks import Action
from headrace.client.codec import PLAIN, Codec
from headrace.client.consumed import Consumed
from headrace.client.models import Bulk, Enqueued, Queue, Reported
from headrace.client.sending import NewTask, Overwritable, Report
from headrace.client.settings import RETRIES, ClientSettings
from headrace.domain import limits
from headrace.domain.errors import VersionMismatch
from headrace.domain.retry import RetryStrategy

if TYPE_CHECKING:
    import httpx2 as httpx

    from headrace.client.transport import Sleep

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound=CallStep)

_EDITS = 5  # tries of an edit that others get in the way of


def _sent(make: Callable[P, ApiCall[T]]) -> Callable[Concatenate["Client", P], T]:
    """Make a method of a call: it sends it and returns what it is answered."""

    @wraps(make)
    def method(self: "Client", *args: P.args, **kwargs: P.kwargs) -> T:
        return self.send(make(*args, **kwargs))

    return method  # type: ignore[return-value]  # `wraps` gives `self` a name of its own


def _listed(make: Callable[P, PagedCall[T]]) -> Callable[Concatenate["Client", P], Iterator[T]]:
    """Make a method of a list: it asks for one page after the other, as they are needed."""

    @wraps(make)
    def method(self: "Client", *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self.each(make(*args, **kwargs))

    return method  # type: ignore[return-value]  # `wraps` gives `self` a name of its own


def _stepped(make: Callable[P, SteppedCall[S]]) -> Callable[Concatenate["Client", P], S]:
    """Make a method of what may take several calls: it returns what they come to."""

    @wraps(make)
    def method(self: "Client", *args: P.args, **kwargs: P.kwargs) -> S:
        *_, last = self.steps(make(*args, **kwargs))
        return last

    return method  # type: ignore[return-value]  # `wraps` gives `self` a name of its own


class Client:
    """Headrace's API.  Threads may share one; every method raises headrace.domain.errors.

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
        transport: "httpx.BaseTransport | None" = None,
        sleep: "Sleep" = time.sleep,
    ) -> None:
        # HTTP takes as long to import as all else together: not before it is needed.
        from headrace.client.transport import Transport  # noqa: PLC0415

        self.settings = ClientSettings.of(url, key, timeout=timeout)
        self.codec = codec
        self._transport = Transport(
            self.settings, codec, retries=retries, transport=transport, sleep=sleep
        )

    @property
    def url(self) -> str:
        """Where the service is."""
        return self.settings.url

    @property
    def consumed(self) -> Consumed:
        """The cost of its calls so far."""
        return self._transport.usage.so_far

    def __repr__(self) -> str:
        """A short form for logs, without secrets."""
        return f"Client({self.url!r})"

    def __enter__(self) -> Self:
        """Return the client; leaving the block closes it."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connections."""
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def send(self, call: ApiCall[T], *, again: bool = True, timeout: float | None = None) -> T:
        """Send *call* and return what it is answered.

        *again* False tries it only once; *timeout* (seconds) takes the place of the client's.
        """
        return self._transport.send(call, again=again, timeout=timeout)

    def each(self, pages: PagedCall[T]) -> Iterator[T]:
        """Go through the entries of a list, page after page, in constant memory."""
        cursor: str | None = None
        while True:
            page = self.send(pages.at(cursor))
            yield from page.entries
            cursor = page.cursor
            if cursor is None:
                return

    def steps(self, steps: SteppedCall[S]) -> Iterator[S]:
        """Take step after step; after each, yield what they have come to."""
        found: S | None = None
        cursor: str | None = None
        while True:
            step = self.send(steps.at(cursor))
            found = steps.so_far(found, step)
            yield found
            cursor = step.cursor
            if cursor is None:
                return

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
    get_stats = _sent(queues.get_stats)
    get_metrics = _sent(queues.get_metrics)
    put_schedule = _sent(queues.put_schedule)
    get_schedule = _sent(queues.get_schedule)
    delete_schedule = _sent(queues.delete_schedule)
    run_schedule = _sent(queues.run_schedule)

    def edit_queue(self, name: str, **changes: Any) -> Queue:  # noqa: ANN401 (as the API takes them)
        """Change some settings and leave the others; those in objects one by one too.

        Raises NotFound, InvalidRequest naming the field, or VersionMismatch when others keep
        changing the queue at the same time.
        """
        for tries_left in reversed(range(_EDITS)):
            try:
                return self.replace_queue(merged(self.get_queue(name), changes))
            except VersionMismatch:
                if not tries_left:
                    raise
        raise AssertionError("unreachable")

    # ------------------------------------------------------------------------------------- tasks

    get_task = _sent(tasks.get_task)
    delete_task = _sent(tasks.delete_task)
    explain_task = _sent(tasks.explain_task)
    list_tasks = _listed(tasks.list_tasks)
    count_tasks = _stepped(tasks.count_tasks)

    def enqueue(  # noqa: PLR0913 (the API's own fields)
        self,
        queue: str,
        payload: Any = None,  # noqa: ANN401 (any JSON value)
        *,
        id: str | None = None,
        scheduled_at: datetime | None = None,
        delay_in_seconds: float | None = None,
        expires_at: datetime | None = None,
        dedupe_key: str | None = None,
        overwrite_on_duplicate: Sequence[Overwritable] | None = None,
        keepalive_timeout_in_seconds: float | None = None,
        retry_strategy: RetryStrategy | Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> Enqueued:
        """Put one task into *queue*.  Repeats are safe: a task without an id gets one here.

        Raises NotFound for a missing queue, InvalidRequest naming the field, and NotEnqueued, which
        is one too, for what only the service's clock or tables could tell.
        """
        return self.send(
            tasks.enqueue_task(
                queue,
                NewTask(
                    payload=payload,
                    id=id,
                    scheduled_at=scheduled_at,
                    delay_in_seconds=delay_in_seconds,
                    expires_at=expires_at,
                    dedupe_key=dedupe_key,
                    overwrite_on_duplicate=overwrite_on_duplicate,
                    keepalive_timeout_in_seconds=keepalive_timeout_in_seconds,
                    retry_strategy=retry_strategy,
                    tags=tags,
                ),
            )
        )

    def enqueue_many(
        self, queue: str, new: Iterable[NewTask], *, errors: Errors = "raise"
    ) -> list[Enqueued]:
        """Put any number of tasks into *queue*; one result for each, in their order.

        Raises what ``enqueue`` does; what came before is in the queue then.  Give ids of your own
        where all of it may have to be sent again.  Entries that come out INVALID keep no other one
        back: NotEnqueued is raised when all are sent, with the ``results``; with *errors*
        ``"return"`` they are results like the others.
        """
        raising = raises(errors)
        results = list(self.enqueue_each(queue, new, errors="return"))
        return checked(results, raising=raising)

    def enqueue_each(
        self, queue: str, new: Iterable[NewTask], *, errors: Errors = "raise"
    ) -> Iterator[Enqueued]:
        """Do the same in constant memory: each batch goes out when its results are consumed.

        The first entry that comes out INVALID raises NotEnqueued in its place; those of its batch
        are sent then, and none that come after.
        """
        raising = raises(errors)
        place = 0
        for batch in batches_of(new, self.codec):
            for result in self.send(tasks.enqueue_entries(queue, batch)):
                if raising and result.outcome == "INVALID":
                    raise not_enqueued({f"tasks[{place}]": result.detail or ""}, [result])
                yield result
                place += 1

    def batcher(self, *, linger_seconds: float = 0.01) -> Batcher:
        """A batcher that gathers single enqueues into batches in the background."""
        return Batcher(self, linger_seconds=linger_seconds)

    # ------------------------------------------------------------------------------ many at once

    def delete_tasks(
        self,
        queue: str,
        *,
        ids: Sequence[str] | None = None,
        filter: Mapping[str, Any] | None = None,
        dry_run: bool = False,
    ) -> Bulk:
        """Delete the tasks named, or else exactly those that the filter holds for.

        Raises InvalidRequest for both, or for neither, as do the other three.
        """
        return gathered(self.bulk_pages("delete", queue, ids=ids, filter=filter, dry_run=dry_run))

    def restart_tasks(
        self,
        queue: str,
        *,
        ids: Sequence[str] | None = None,
        filter: Mapping[str, Any] | None = None,
        dry_run: bool = False,
    ) -> Bulk:
        """Restart dead or succeeded tasks."""
        return gathered(self.bulk_pages("restart", queue, ids=ids, filter=filter, dry_run=dry_run))

    def run_tasks(
        self,
        queue: str,
        *,
        ids: Sequence[str] | None = None,
        filter: Mapping[str, Any] | None = None,
        dry_run: bool = False,
    ) -> Bulk:
        """Let waiting tasks be due now."""
        return gathered(self.bulk_pages("run", queue, ids=ids, filter=filter, dry_run=dry_run))

    def move_tasks(
        self,
        queue: str,
        to_queue: str,
        *,
        ids: Sequence[str] | None = None,
        filter: Mapping[str, Any] | None = None,
        dry_run: bool = False,
    ) -> Bulk:
        """Move waiting or dead tasks to another queue."""
        return gathered(
            self.bulk_pages(
                "move", queue, ids=ids, filter=filter, to_queue=to_queue, dry_run=dry_run
            )
        )

    def bulk_pages(
        self,
        action: Action,
        queue: str,
        *,
        ids: Sequence[str] | None = None,
        filter: Mapping[str, Any] | None = None,
        to_queue: str | None = None,
        dry_run: bool = False,
    ) -> Iterator[Bulk]:
        """Act page after page, of exactly one of *ids* and *filter*, to show progress.

        Raises InvalidRequest for both, or for neither, before anything is done.
        """
        for some in ids_in_calls(ids, filter):
            yield self.send(
                tasks.bulk_by_ids(action, queue, some, to_queue=to_queue, dry_run=dry_run)
            )
        if filter is None:
            return
        cursor: str | None = None
        while True:
            page = self.send(
                tasks.bulk_by_filter(
                    action, queue, filter, to_queue=to_queue, cursor=cursor, dry_run=dry_run
                )
            )
            yield page
            cursor = page.cursor
            if cursor is None:
                return

    # ------------------------------------------------------------------------------------ workers

    dequeue = _sent(work.dequeue)
    open_lease = _sent(work.open_lease)
    extend_lease = _sent(work.extend_lease)
    close_lease = _sent(work.close_lease)
    put_worker = _sent(work.put_worker)
    list_workers = _listed(work.list_workers)
    quiet_worker = _sent(work.quiet_worker)
    stop_worker = _sent(work.stop_worker)

    def report(self, queue: str, reports: Sequence[Report]) -> list[Reported]:
        """Report on tasks of *queue*; one result for each, in their order."""
        results: list[Reported] = []
        for start in range(0, len(reports), limits.BATCH):
            some = reports[start : start + limits.BATCH]
            answered = self.send(work.report_batch(queue, some))
            results += answered
        return results

    # -------------------------------------------------------------------------------- the service

    create_key = _sent(service.create_key)
    rotate_key = _sent(service.rotate_key)
    list_keys = _listed(service.list_keys)
    delete_key = _sent(service.delete_key)
    list_audit = _listed(service.list_audit)
    health = _sent(service.health)
    call = _sent(service.call)
