"""The client of the API for programs with an event loop; see ``headrace.client.client``."""

import asyncio
import os
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from headrace.client.calls import ApiCall, CallFailed
from headrace.client.codec import PLAIN, Codec
from headrace.client.filling import AsyncBatchWriter, BatchFields
from headrace.client.http import AsyncSleep, HttpCalls, Unanswered
from headrace.client.methods import ClientMethods
from headrace.client.operations import Blocking, Found, FromClient, Operation, Pause, Step, Stream
from headrace.client.settings import RETRIES, ClientSettings
from headrace.domain.errors import HeadraceError

if TYPE_CHECKING:
    import httpx2 as httpx

T = TypeVar("T")


class AsyncClient(ClientMethods):
    """Headrace's API.  Tasks of one loop may share one; every method raises kinds of HeadraceError.

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
        transport: "httpx.AsyncBaseTransport | None" = None,
        sleep: AsyncSleep = asyncio.sleep,
    ) -> None:
        self.settings = ClientSettings.of(url, key, timeout=timeout)
        self.codec = codec
        self._calls = HttpCalls(self.settings, codec, retries=retries)
        self._sleep = sleep
        self._new_connections = partial(self._calls.async_connections, transport)
        self._connect()

    def _connect(self) -> None:
        self._connections = self._new_connections()
        self._process = os.getpid()
        self._turns = asyncio.Semaphore(self._calls.turns)

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
        if isinstance(step, FromClient):
            return getattr(self, step.name)
        return await self._pause(step)

    async def _pause(self, pause: Pause) -> None:
        await self._sleep(pause.seconds)

    def batch(self, *, id: str | None = None, **fields: Unpack[BatchFields]) -> AsyncBatchWriter:
        """Create a batch and fill it in an ``async with`` block; see ``Client.batch``."""
        return AsyncBatchWriter(self, id, fields)
