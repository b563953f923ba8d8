"""From the client's request to the Lambda handler and back, in this process, without a socket."""

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import httpx2 as httpx

from headrace.http.app import handle
from headrace.http.events import proxy_event, read_answer
from headrace.runtime.wiring import UseCases, using

Respond: TypeAlias = Callable[[httpx.Request], httpx.Response]
"""What `httpx2.MockTransport` wants, for sync and async clients alike."""


_SERVICE_LOG: Final = "headrace"
_OF_WORKERS: Final = (f"{_SERVICE_LOG}.task", f"{_SERVICE_LOG}.worker")


def _of_the_service(record: logging.LogRecord) -> bool:
    """Keep lines of handlers and workers, which have loggers below it, out of the service's log."""
    return not record.name.startswith(_OF_WORKERS)


@dataclass(frozen=True, slots=True)
class HandlerContext:
    """The context object of one call of the handler.

    No time is left, so a dequeue that may wait for tasks answers at once: in a test nobody else
    could bring any.
    """

    aws_request_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def get_remaining_time_in_millis(self) -> int:
        """Return 0."""
        return 0


def responder(use: UseCases) -> Respond:
    """A function that answers requests as API Gateway and the Lambda function over *use* would."""
    for handler in logging.getLogger(_SERVICE_LOG).handlers:
        handler.addFilter(_of_the_service)

    def respond(request: httpx.Request) -> httpx.Response:
        context = HandlerContext()
        with using(use):
            answer = read_answer(handle(_event(request, context), context))  # type: ignore[arg-type]  # as much of a context as the handler needs
        return httpx.Response(answer.status, headers=answer.headers, content=answer.body)

    return respond


def _event(request: httpx.Request, context: HandlerContext) -> dict[str, Any]:
    path, _, query = request.url.raw_path.decode("ascii").partition("?")
    return proxy_event(
        request.method,
        path,
        request_id=context.aws_request_id,
        headers=dict(request.headers),
        query=query,
        body=request.content,
    )
