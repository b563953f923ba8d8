"""Requests of clients to the service in the same process.

They take the same path as every request: bodies are checked, and errors and limits are those of the
API.
"""

import asyncio
import re
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, TypeVar, cast
from urllib.parse import quote, urlencode

import msgspec

from headrace.client.address import FileAddress, TablesAddress
from headrace.domain.limits import WAIT_SECONDS
from headrace.domain.task import LIVE
from headrace.embedded.service import ADMIN_KEY, OPEN, EmbeddedService, opened
from headrace.http import app as api
from headrace.http.request import Request, query_of
from headrace.runtime.wiring import using
from headrace.store.call_scope import ANSWER_SECONDS, CALL_SECONDS
from headrace.wire.base import without_halves

T = TypeVar("T")

_TASK: Final = re.compile(r"/v1/tasks/([A-Za-z0-9_-]+)/?")
_THREADS: Final = 64  # for the calls of an event loop, most of which wait for tasks
_HEADERS: Final = {"authorization": f"Bearer {ADMIN_KEY}"}


@dataclass(slots=True)
class CallerContext:
    """The context object of a call by this process: its caller waits *within* so many seconds.

    ``abandoned`` is set when the caller is cancelled.
    """

    within: float
    abandoned: bool = False
    until: float = 0.0
    aws_request_id: str = ""

    def get_remaining_time_in_millis(self) -> int:
        return max(1, int((self.until - time.monotonic()) * 1000))

    def client_gone(self) -> bool:
        return self.abandoned


@dataclass(slots=True)
class EmbeddedAnswer:
    """The answer to a request, in the form of httpx."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes


def answer(service: EmbeddedService, request: Request, *, waits: bool = True) -> EmbeddedAnswer:
    """Answer a request that has a CallerContext; unless it *waits*, at once."""
    context = cast("CallerContext", request.context)
    within = context.within if waits else min(context.within, ANSWER_SECONDS + CALL_SECONDS)
    context.until = time.monotonic() + within
    request.id = str(uuid.uuid4())
    with using(service.use):
        reply = api.answer(request)
    return EmbeddedAnswer(reply.status, reply.headers, reply.text().encode())


def _wait_for_end(request: Request) -> tuple[str, float] | None:
    """Return the task whose end *request* waits for, and the seconds, None for other requests."""
    found, given = _TASK.fullmatch(request.path), request.query.get("wait_seconds")
    if found is None or given is None:
        return None
    try:
        seconds = float(given[0])
    except ValueError:  # the service refuses it
        return None
    return (found[1], seconds) if 0 < seconds <= WAIT_SECONDS else None


class _StateShown(msgspec.Struct):
    """The state of a task."""

    state: str


_state_of: Final = msgspec.json.Decoder(_StateShown).decode


def _is_running(response: EmbeddedAnswer) -> bool:
    """Return whether *response* shows a task that is waiting or in flight."""
    if response.status_code != HTTPStatus.OK:
        return False
    shown = _state_of(without_halves(response.content, b"?"))
    return shown.state in LIVE


_IN_PATHS: Final = "/%:@!$&'()*+,;=~"  # that is left as it is; the rest of a path comes quoted


def _path_and_query(url: str, params: Mapping[str, str] | None) -> tuple[str, str]:
    """Return the two of *url*, a path that may have a query; *params* replace that."""
    path, _, query = url.partition("#")[0].partition("?")
    return quote(path, safe=_IN_PATHS), urlencode(params) if params else query


class _Requests:
    """Creates requests to the service at an address."""

    def __init__(self, address: FileAddress | TablesAddress) -> None:
        self._address = address

    def build_request(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, str] | None,
        content: bytes | None,
        headers: dict[str, str],
        timeout: float,
    ) -> Request:
        """Return the request for *url*, a path that may have a query; *params* replace the query.

        The caller waits *timeout* seconds for the answer.
        """
        path, query = _path_and_query(url, params)
        return Request(
            method,
            path,
            id="",
            context=CallerContext(timeout),
            headers={**_HEADERS, **headers},
            query=query_of(query),
            body=content or b"",
        )

    def _answer(self, request: Request) -> EmbeddedAnswer:
        service = OPEN.get(self._address) or opened(self._address)
        return answer(service, request)


class EmbeddedConnections(_Requests):
    """Sends the requests of a client to the service in this process."""

    def send(self, request: Request) -> EmbeddedAnswer:
        """Answer *request*.  Raises Unavailable where the store cannot be opened."""
        return self._answer(request)

    def close(self) -> None:
        """Do nothing: all clients in this process share the service, which stays open."""


class AsyncEmbeddedConnections(_Requests):
    """Does the same for an event loop, in threads."""

    def __init__(self, address: FileAddress | TablesAddress) -> None:
        super().__init__(address)
        self._threads = ThreadPoolExecutor(_THREADS, "headrace")

    async def send(self, request: Request) -> EmbeddedAnswer:
        """Answer *request*.  Raises Unavailable where the store cannot be opened."""
        if request.method == "GET" and (wait := _wait_for_end(request)) is not None:
            return await self._at_end(request, *wait)
        return await self._answered(request, lambda: self._answer(request))

    async def _answered(
        self, request: Request, call: Callable[[], EmbeddedAnswer]
    ) -> EmbeddedAnswer:
        try:
            return await self._in_thread(call)
        except asyncio.CancelledError:
            cast(
                "CallerContext", request.context
            ).abandoned = True  # the thread continues, but must not lease further tasks
            raise

    async def _at_end(self, request: Request, task_id: str, seconds: float) -> EmbeddedAnswer:
        """Answer when a task has ended or *seconds* are over, without blocking a thread.

        So any number of calls may wait, and the others still find threads.
        """
        service = await self._in_thread(lambda: opened(self._address))
        ends, loop = service.store.task_ends, asyncio.get_running_loop()
        if ends is None:
            return await self._answered(request, lambda: answer(service, request))
        woken, until = asyncio.Event(), loop.time() + seconds

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(woken.set)

        with ends.notify_on_end(task_id, wake):
            while True:
                response = await self._in_thread(lambda: answer(service, request, waits=False))
                left = until - loop.time()
                if left <= 0 or not _is_running(response):
                    return response
                with suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), left)
                woken.clear()

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def aclose(self) -> None:
        """Stop the threads."""
        self._threads.shutdown(wait=False)
