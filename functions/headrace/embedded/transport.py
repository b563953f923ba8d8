"""From a client's request to the use cases and back, without a socket.

It goes the way of every request: bodies are checked, errors and limits are those of the API.
"""

import asyncio
import logging
import re
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, TypeVar
from urllib.parse import parse_qs

import msgspec
from aws_lambda_powertools.logging.filters import SuppressFilter

from headrace.client.address import FileAddress, TablesAddress
from headrace.client.connections import path_and_query
from headrace.domain.limits import WAIT_SECONDS
from headrace.domain.task import LIVE
from headrace.embedded.service import ADMIN_KEY, OPEN, EmbeddedService, opened
from headrace.http import app as api
from headrace.http.request import Request, lower_case, query_of
from headrace.runtime.wiring import using
from headrace.store.call_scope import ANSWER_SECONDS, CALL_SECONDS
from headrace.wire.base import without_halves

T = TypeVar("T")

_TASK: Final = re.compile(r"/v1/tasks/([A-Za-z0-9_-]+)/?")
_THREADS: Final = 64  # of an event loop's calls, most of which wait for tasks
_HEADERS: Final = {"Authorization": f"Bearer {ADMIN_KEY}", "User-Agent": "headrace-python"}
_SERVICE_LOG: Final = "headrace"  # above those of worker and timers


@dataclass(slots=True)
class _Context:
    """The context object of one call: how long its caller still waits, and whether it does."""

    until: float
    client_gone: Callable[[], bool]
    aws_request_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def get_remaining_time_in_millis(self) -> int:
        return max(1, int((self.until - time.monotonic()) * 1000))


@dataclass(slots=True)
class EmbeddedRequest:
    """A request that no socket sees; *within* so many seconds its caller waits for the answer.

    ``abandoned`` is set when the caller is cancelled.
    """

    method: str
    path: str
    query: str
    headers: dict[str, str]
    content: bytes
    within: float
    abandoned: bool = False


@dataclass(slots=True)
class EmbeddedAnswer:
    """Its answer, read as httpx's is."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes


def answer(
    service: EmbeddedService, request: EmbeddedRequest, *, waits: bool = True
) -> EmbeddedAnswer:
    """Answer one request, as whoever may do everything; unless it *waits*, at once."""
    within = request.within
    if not waits:
        within = min(within, ANSWER_SECONDS + CALL_SECONDS)  # time for that, and none besides
    context = _Context(time.monotonic() + within, lambda: request.abandoned)
    asked = Request(
        request.method,
        request.path,
        id=context.aws_request_id,
        context=context,
        headers=lower_case(request.headers),
        query=query_of(request.query),
        body=request.content,
    )
    with using(service.use):
        reply = api.answer(asked)
    return EmbeddedAnswer(reply.status, reply.headers, reply.text().encode())


def _log_as_a_library() -> None:
    """Leave what the service logs to the program: Lambda's way is every line, on stdout.

    A program that has set up no logging sees what is wrong, on stderr, as with any library.
    """
    log = logging.getLogger(_SERVICE_LOG)
    log.setLevel(logging.NOTSET)
    for handler in log.handlers:
        handler.addFilter(_unless_the_program_logs)
        if isinstance(handler, logging.StreamHandler):
            handler.stream = sys.stderr  # setStream() flushes the old one, which may be closed
    log.propagate = True
    for handler in logging.getLogger().handlers:
        for suppressing in [one for one in handler.filters if isinstance(one, SuppressFilter)]:
            handler.removeFilter(suppressing)  # Powertools' own, lest Lambda writes lines twice


def _unless_the_program_logs(record: logging.LogRecord) -> bool:
    # The service's own warnings are of what is unavailable, which its caller gets as an exception.
    least = logging.ERROR if record.name == _SERVICE_LOG else logging.WARNING
    return record.levelno >= least and not logging.getLogger().handlers


def _wait_for_end(request: EmbeddedRequest) -> tuple[str, float] | None:
    """Return the task whose end *request* waits for, and how long, if it may do that."""
    found, given = _TASK.fullmatch(request.path), parse_qs(request.query).get("wait_seconds")
    if found is None or given is None:
        return None
    try:
        seconds = float(given[0])
    except ValueError:  # the service says what is wrong with it
        return None
    return (found[1], seconds) if 0 < seconds <= WAIT_SECONDS else None


class _StateShown(msgspec.Struct):
    """What is looked at of a task."""

    state: str


_state_of: Final = msgspec.json.Decoder(_StateShown).decode


def _goes_on(response: EmbeddedAnswer) -> bool:
    """Tell whether *response* shows a task that has not ended."""
    if response.status_code != HTTPStatus.OK:
        return False
    shown = _state_of(without_halves(response.content, b"?"))
    return shown.state in LIVE


class _EmbeddedRequests:
    """Makes requests to the service at an address."""

    def __init__(self, address: FileAddress | TablesAddress) -> None:
        self._address = address
        _log_as_a_library()

    def build_request(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, str] | None,
        content: bytes | None,
        headers: dict[str, str],
        timeout: float,
    ) -> EmbeddedRequest:
        """Return the request for *url*, which is a path and may have a query; *params* replace it.

        Its caller waits *timeout* seconds for the answer.
        """
        path, query = path_and_query(url, params)
        return EmbeddedRequest(
            method, path, query, {**_HEADERS, **headers}, content or b"", timeout
        )

    def _answer(self, request: EmbeddedRequest) -> EmbeddedAnswer:
        service = OPEN.get(self._address) or opened(self._address)
        return answer(service, request)


class EmbeddedConnections(_EmbeddedRequests):
    """What a client sends its requests through, instead of httpx and the network."""

    def send(self, request: EmbeddedRequest) -> EmbeddedAnswer:
        """Answer *request*.  Raises Unavailable where the store cannot be opened."""
        return self._answer(request)

    def close(self) -> None:
        """Do nothing: the service is everybody's in this process, and stays open."""


class AsyncEmbeddedConnections(_EmbeddedRequests):
    """The same for an event loop: the work is done in threads."""

    def __init__(self, address: FileAddress | TablesAddress) -> None:
        super().__init__(address)
        self._threads = ThreadPoolExecutor(_THREADS, "headrace")

    async def send(self, request: EmbeddedRequest) -> EmbeddedAnswer:
        """Answer *request*.  Raises Unavailable where the store cannot be opened."""
        if request.method == "GET" and (wait := _wait_for_end(request)) is not None:
            return await self._at_end(request, *wait)
        return await self._answered(request, lambda: self._answer(request))

    async def _answered(
        self, request: EmbeddedRequest, call: Callable[[], EmbeddedAnswer]
    ) -> EmbeddedAnswer:
        try:
            return await self._in_thread(call)
        except asyncio.CancelledError:
            request.abandoned = True  # the thread goes on, and must lease nothing any more
            raise

    async def _at_end(
        self, request: EmbeddedRequest, task_id: str, seconds: float
    ) -> EmbeddedAnswer:
        """Answer when a task has ended or *seconds* are over, holding no thread meanwhile.

        So any number of a loop's calls may wait, and the others find their threads.
        """
        service = await self._in_thread(lambda: opened(self._address))
        ends, loop = service.store.ends, asyncio.get_running_loop()
        if ends is None:
            return await self._answered(request, lambda: answer(service, request))
        woken, until = asyncio.Event(), loop.time() + seconds

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is over
                loop.call_soon_threadsafe(woken.set)

        with ends.told(task_id, wake):
            while True:
                response = await self._in_thread(lambda: answer(service, request, waits=False))
                left = until - loop.time()
                if left <= 0 or not _goes_on(response):
                    return response
                with suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), left)
                woken.clear()

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def aclose(self) -> None:
        """Let go of the threads."""
        self._threads.shutdown(wait=False)
