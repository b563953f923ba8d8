"""From a client's request to the use cases and back, without a socket.

It goes the way of every request: bodies are checked, errors and limits are those of the API.
"""

import asyncio
import base64
import logging
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2 as httpx
from aws_lambda_powertools.logging.filters import SuppressFilter

from headrace.client.address import FileAddress, TablesAddress
from headrace.embedded.service import ADMIN_KEY, EmbeddedService, opened
from headrace.http.app import handle
from headrace.http.events import proxy_event, read_answer
from headrace.runtime.wiring import using

_THREADS: Final = 64  # of an event loop's calls, most of which wait for tasks
_SECONDS: Final = 30.0
_SERVICE_LOG: Final = "headrace"  # above those of worker and timers


@dataclass(frozen=True, slots=True)
class _Context:
    """The context object of one call: how long its caller still waits."""

    until: float
    aws_request_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def get_remaining_time_in_millis(self) -> int:
        return max(1, int((self.until - time.monotonic()) * 1000))


def answer(service: EmbeddedService, request: httpx.Request) -> httpx.Response:
    """Answer one request, as whoever may do everything."""
    within = request.extensions.get("timeout", {}).get("read") or _SECONDS
    context = _Context(time.monotonic() + within)
    with using(service.use):
        found = read_answer(handle(_event(request, context), context))  # type: ignore[arg-type]  # as much of a context as the handler needs
    return httpx.Response(found.status, headers=found.headers, content=found.body)


def _event(request: httpx.Request, context: _Context) -> dict[str, Any]:
    path, _, query = request.url.raw_path.decode("ascii").partition("?")
    event = proxy_event(
        request.method,
        path,
        request_id=context.aws_request_id,
        headers={**request.headers, "authorization": f"Bearer {ADMIN_KEY}"},
        query=query,
    )
    if request.content:
        try:
            event["body"] = request.content.decode()
        except UnicodeDecodeError:  # refused, as the API does
            event |= {"body": base64.b64encode(request.content).decode(), "isBase64Encoded": True}
    return event


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
    return record.levelno >= logging.WARNING and not logging.getLogger().handlers


class EmbeddedTransport(httpx.BaseTransport):
    """What a client sends its requests through, instead of the network."""

    def __init__(self, address: FileAddress | TablesAddress) -> None:
        self._address = address
        _log_as_a_library()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answer *request*.  Raises Unavailable where the store cannot be opened."""
        return answer(opened(self._address), request)


class AsyncEmbeddedTransport(httpx.AsyncBaseTransport):
    """The same for an event loop: the work is done in threads."""

    def __init__(self, address: FileAddress | TablesAddress) -> None:
        self._address = address
        _log_as_a_library()
        self._threads = ThreadPoolExecutor(_THREADS, "headrace")

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer *request*.  Raises Unavailable where the store cannot be opened."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._threads, lambda: answer(opened(self._address), request)
        )

    async def aclose(self) -> None:
        """Let go of the threads."""
        self._threads.shutdown(wait=False)
