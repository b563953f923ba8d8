"""The client of the API for programs with threads.

Its methods are made of the calls in ``headrace.client.calls`` and of the operations in
``headrace.client.operations``, as those of the client for event loops in ``aio`` are.
"""

import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from headrace.client.calls import ApiCall, CallFailed
from headrace.client.codec import PLAIN, Codec
from headrace.client.filling import BatchFields, BatchWriter
from headrace.client.http import HttpCalls, Sleep, Unanswered
from headrace.client.methods import ClientMethods
from headrace.client.operations import Blocking, Found, FromClient, Operation, Pause, Step, Stream
from headrace.client.settings import RETRIES, ClientSettings
from headrace.domain.errors import HeadraceError

if TYPE_CHECKING:
    import httpx2 as httpx

T = TypeVar("T")


class Client(ClientMethods):
    """Headrace's API.  Threads may share one; every method raises kinds of HeadraceError.

    Address and key are taken from the arguments, else from ``HEADRACE_URL`` and ``HEADRACE_KEY``.

    Args:
        url: the address of the service, as ``https://host/stage``.
        key: an API key.
        timeout: seconds that one try of one call may take.
        codec: encodes payloads, results and progress.
        retries: tries after the first (6), after growing random waits of up to ten seconds.
        transport: replaces the network, in tests.
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
        sleep: Sleep = time.sleep,
    ) -> None:
        self.settings = ClientSettings.of(url, key, timeout=timeout)
        self.codec = codec
        self._calls = HttpCalls(self.settings, codec, retries=retries)
        self._sleep = sleep
        self._new_connections = partial(self._calls.connections, transport)
        self._connect()

    def _connect(self) -> None:
        self._connections = self._new_connections()
        self._process = os.getpid()
        self._turns = threading.Semaphore(self._calls.turns)

    def __enter__(self) -> Self:
        """Return the client; leaving the block closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def send(self, call: ApiCall[T], *, again: bool = True, timeout: float | None = None) -> T:
        """Send *call* and return the answer.

        With *again* False it is tried only once; *timeout* (seconds) replaces the client's.
        """
        if os.getpid() != self._process:
            self._connect()  # a fork has its parent's connections, and would get its answers
        if not call.wait_seconds:
            return self._tries(call, timeout, again=again)
        with self._turns:
            return self._tries(call, timeout, again=again)

    def _tries(self, call: ApiCall[T], timeout: float | None, *, again: bool) -> T:
        request = self._calls.request(self._connections, call, timeout)
        tries = 0
        while True:
            tries += 1
            try:
                response = self._connections.send(request)
                return self._calls.read(call, response)
            except Unanswered as why:
                failure = self._calls.unanswered(call, why)
            except CallFailed as refused:
                failure = refused
            if not again:
                raise failure.error from None
            self._sleep(self._calls.wait_after(failure, request, tries))

    def run(self, operation: Operation[T]) -> T:
        """Take the steps of *operation*, and return its result."""
        try:
            step = next(operation)
            while True:
                try:
                    result = self._take(step)
                except HeadraceError as error:
                    step = operation.throw(error)
                else:
                    step = operation.send(result)
        except StopIteration as done:
            found: T = done.value
            return found

    def stream(self, stream: Stream[T]) -> Iterator[T]:
        """Take the steps of *stream* as its values are consumed; yield these."""
        try:
            step = next(stream)
            while True:
                if isinstance(step, Found):
                    yield from step.values
                    step = next(stream)
                    continue
                try:
                    result = self._take(step)
                except HeadraceError as error:
                    step = stream.throw(error)
                else:
                    step = stream.send(result)
        except StopIteration:
            return

    def _take(self, step: Step) -> Any:  # noqa: ANN401  as the operation expects
        if isinstance(step, ApiCall):
            return self.send(step)
        if isinstance(step, FromClient):
            return getattr(self, step.name)
        return step.call() if isinstance(step, Blocking) else self._pause(step)

    def _pause(self, pause: Pause) -> None:
        self._sleep(pause.seconds)

    def batch(self, *, id: str | None = None, **fields: Unpack[BatchFields]) -> BatchWriter:
        """Create a batch and fill it in a ``with`` block, which closes the batch at its end.

        If the block raises, the batch stays open until it expires.  Callbacks are as in
        ``create_batch``; callbacks of an app are ``report.s(…)``.  Missing queues that the app
        declares are created; other queues must exist.
        """
        return BatchWriter(self, id, fields)
