"""The clients and queues of an app, made when they are first needed."""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from threading import Lock
from typing import Final
from weakref import WeakKeyDictionary

from headrace.client.address import absolute_url
from headrace.client.aio import AsyncClient
from headrace.client.app import checks
from headrace.client.app.declared import Settings, declared, merged
from headrace.client.calls.queues import create_queue, get_queue
from headrace.client.calls.tasks import enqueue_task
from headrace.client.client import Client
from headrace.client.codec import PLAIN, Codec
from headrace.client.operations import Errors, Operation, Stream, enqueued_chunks
from headrace.client.queue_fields import QueueFields
from headrace.client.sending import NewTask
from headrace.client.settings import working_folder
from headrace.domain import limits
from headrace.domain.errors import Forbidden, InvalidRequest, NotFound, QueueExists
from headrace.domain.queue_settings import QueueSettings
from headrace.wire.tasks import Enqueued

_RETENTION: Final = QueueSettings().history_retention_in_seconds


class AppQueues:
    """The queues of an app, each with the settings it is made with.

    Queues are in order of declaration, but a queue for alerts or ends comes before the queues that
    refer to it.  A worker makes all of them, and takes tasks from the queues that `work` names.
    """

    def __init__(self, *, create: bool) -> None:
        self._create = create
        self._settings: dict[str, Settings] = {}
        self._worked: set[str] = set()

    @property
    def worked(self) -> list[str]:
        """The queues that a worker takes tasks from, in order of declaration."""
        return [name for name in self._settings if name in self._worked]

    @property
    def settings(self) -> Mapping[str, Settings]:
        """The settings of all queues; a queue that others refer to comes first."""
        found: dict[str, Settings] = {}

        def add(name: str, path: frozenset[str]) -> None:
            for other in _referenced(self._settings[name]):
                if other not in path:  # two queues may refer to each other
                    add(other, path | {other})
            found.setdefault(name, self._settings[name])

        for name in self._settings:
            add(name, frozenset((name,)))
        return found

    def declare(self, name: str, settings: QueueFields) -> None:
        """Add a queue, or settings to one that was named before.

        Raises TypeError, or InvalidRequest naming queue and field.
        """
        known = self._settings.get(checks.name("queue", name), {})
        self._settings[name] = merged(known, declared(name, settings))
        for other in _referenced(self._settings[name]):
            self._settings.setdefault(other, {})

    def work(self, name: str) -> None:
        """Add a queue that a worker takes tasks from.  Raises InvalidRequest."""
        self.declare(name, {})
        self._worked.add(name)

    def check_kept(self, name: str, seconds: float) -> None:
        """Check that a finished task is known for *seconds*, by what is declared of its queue.

        Raises InvalidRequest naming ``unique_for``.
        """
        field = "history_retention_in_seconds"
        retention = self._settings.get(name, {}).get(field, _RETENTION)
        kept = retention or limits.TOMBSTONE_SECONDS
        if isinstance(kept, int | float) and seconds > kept:
            seconds = int(seconds) if seconds == int(seconds) else seconds
            message = (
                f"must be at most {kept} s, as long as queue {name} knows finished tasks, "
                f"not {seconds}: declare app.queue({name!r}, {field}={seconds})"
            )
            raise checks.wrong("unique_for", message)

    def ensure(self) -> Operation[None]:
        """Make the queues that are missing; existing queues are not changed.

        Raises NotFound naming the command when this is not wanted or the key may not.
        """
        for name in self.settings:
            yield from self._ensure(name)

    def _ensure(self, name: str, path: frozenset[str] = frozenset()) -> Operation[None]:
        try:
            yield get_queue(name)
        except NotFound as missing:
            yield from self.make(name, missing, path)

    def make(
        self, name: str, missing: NotFound, path: frozenset[str] = frozenset()
    ) -> Operation[None]:
        """Make a queue, after the queues that it refers to and that are not in *path*.

        Raises NotFound naming the command when it may not be made, and InvalidRequest naming the
        queue whose settings the service refuses.
        """
        if not self._create:
            raise _missing(name, "this app makes none (create_queues=False)") from missing
        settings = self._settings.get(name, {})
        for other in _referenced(settings):
            if other not in path | {name}:
                yield from self._ensure(other, path | {name})
        try:
            yield create_queue(name, **settings)
        except QueueExists:
            pass  # another process was quicker
        except Forbidden as error:
            raise _missing(name, "this key may not make queues") from error
        except InvalidRequest as error:
            raise InvalidRequest(f"queue {name}: {error.detail}", errors=error.errors) from None


def _referenced(settings: Settings) -> list[str]:
    """Return the queues that alerts and ends of a queue with *settings* go to."""
    found = [settings.get(name) for name in ("alerts", "on_end")]
    return [str(one["queue"]) for one in found if isinstance(one, Mapping) and one.get("queue")]


def _missing(name: str, why: str) -> NotFound:
    return NotFound(f"there is no queue {name}, and {why}: run `headrace queue create {name}`")


@dataclass(frozen=True, slots=True)
class PreparedTask:
    """A task that was not sent yet, with its queue and its codec."""

    queue: str
    task: NewTask
    codec: Codec


class AppClients:
    """The clients of an app.  One for threads, and one for each event loop."""

    def __init__(
        self,
        queues: AppQueues,
        *,
        client: Client | None,
        async_client: AsyncClient | None,
        url: str | None,
        key: str | None,
        codec: Codec | None,
        now: Callable[[], datetime],
    ) -> None:
        self.now = now
        self.runs_here = False  # whether a worker in this process has run a task of the app
        self.queues = queues
        self._client = client
        self._own_client = client is None
        self._async_client = async_client
        self._async_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncClient]
        self._async_clients = WeakKeyDictionary()
        self.folder = working_folder()
        self._url = url
        self._key = key
        self.codec: Codec = codec or (client.codec if client is not None else PLAIN)
        self._making = Lock()

    @property
    def client(self) -> Client:
        """The client for threads.  Raises InvalidRequest when address or key are missing."""
        with self._making:
            if self._client is None:
                self.fix_address()
                self._client = Client(self._url, self._key, codec=self.codec)
            return self._client

    @property
    def async_client(self) -> AsyncClient:
        """The client of the running event loop."""
        if self._async_client is not None:
            return self._async_client
        loop = asyncio.get_running_loop()
        found = self._async_clients.get(loop)
        if found is None:
            self._forget_closed_loops()
            found = self._async_clients[loop] = self._new_async_client()
        return found

    def _forget_closed_loops(self) -> None:
        """Drop the clients of closed loops, with their connections.

        A client refers to its loop, so that neither would ever be collected.
        """
        with self._making:
            for loop in [loop for loop in self._async_clients if loop.is_closed()]:
                del self._async_clients[loop]

    @contextmanager
    def using(
        self, client: Client, async_client: AsyncClient, now: Callable[[], datetime]
    ) -> Iterator[None]:
        """Use these clients and this clock in the block."""
        before = self._client, self._async_client, self.now, self.runs_here
        self._client, self._async_client, self.now, self.runs_here = client, async_client, now, True
        try:
            yield
        finally:
            self._client, self._async_client, self.now, self.runs_here = before

    def _new_async_client(self) -> AsyncClient:
        if self._client is None:
            self.fix_address()
            return AsyncClient(self._url, self._key, codec=self.codec)
        known = self._client.settings
        return AsyncClient(known.url, known.key, timeout=known.timeout, codec=self.codec)

    def fix_address(self) -> None:
        """Take address and key from the environment now, if they were not given.

        A relative path is one of the folder in which the app was made: handlers may have changed
        to another one.
        """
        self._url = self._url or os.environ.get("HEADRACE_URL")
        self._key = self._key or os.environ.get("HEADRACE_KEY")
        if self._url:
            self._url = absolute_url(self._url, self.folder)

    def close(self) -> None:
        """Close the client that was made here."""
        if self._own_client and self._client is not None:
            self._client.close()
            self._client = None

    async def aclose(self) -> None:
        """Close the client of the running event loop."""
        found = self._async_clients.pop(asyncio.get_running_loop(), None)
        if found is not None:
            await found.close()

    def enqueue(self, queue: str, task: NewTask) -> Operation[Enqueued]:
        """Enqueue one task, making its queue where it is missing.

        Raises NotEnqueued for an entry that only the service could tell is wrong.
        """
        call = enqueue_task(queue, task)
        try:
            made: Enqueued = yield call
        except NotFound as missing:
            yield from self.queues.make(queue, missing)
            made = yield call
        return made

    def enqueue_each(
        self, queue: str, tasks: Iterable[NewTask], errors: Errors
    ) -> Stream[Enqueued]:
        """Enqueue tasks as their results are consumed, making the queue where it is missing."""
        rest = iter(tasks)
        first = list(islice(rest, limits.BATCH))  # they may have to be sent again
        try:
            yield from enqueued_chunks(queue, first, self.codec, errors)
        except NotFound as missing:
            yield from self.queues.make(queue, missing)
            yield from enqueued_chunks(queue, first, self.codec, errors)
        yield from enqueued_chunks(queue, rest, self.codec, errors, place=len(first))
