"""Messages of ASGI: the request of a scope, its body, and answers."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from anyio import to_thread

from headrace.domain.limits import KIB, LAMBDA_BYTES
from headrace.http.events import GatewayAnswer
from headrace.local.requests import LocalRequest, RequestRefused

Message: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

# Together with the headers, as much as API Gateway and Lambda take in an event in base64.  The
# limit of the API is lower, and its error names the field.
MAX_BODY_BYTES: Final = (LAMBDA_BYTES - 128 * KIB) * 3 // 4
BODY_SECONDS: Final = 60.0
_DISCARDED_BYTES: Final = 64 * 1024 * KIB
_DISCARD_SECONDS: Final = 2.0
_PART: Final = 256 * KIB  # of a streamed answer
_OUR_NAME: Final = re.compile(r"https?://[^/?]*", re.IGNORECASE)  # a request line may have it
_NO_BODY: Final = {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}


class ClientDisconnected(Exception):
    """The client has disconnected before its request was complete."""


def read_scope(scope: Mapping[str, Any]) -> LocalRequest:
    """Return the request of an ASGI *scope*; the values of a repeated header are joined."""
    headers: dict[str, str] = {}
    repeated: set[str] = set()
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        between = "; " if name == "cookie" else ", "
        if name in headers:
            repeated.add(name)
        headers[name] = f"{headers[name]}{between}{value}" if name in headers else value
    path = scope["raw_path"].decode("ascii")
    if not path.startswith("/"):
        path = _OUR_NAME.sub("", path, count=1) or "/"
    client, server = scope.get("client"), scope.get("server")
    return LocalRequest(
        scope["method"],
        path,
        scope["query_string"].decode("ascii"),
        headers,
        frozenset(repeated),
        protocol=f"HTTP/{scope['http_version']}",
        source=client[0] if client else "",
        port=(server[1] if server else None) or 0,
    )


def too_large() -> RequestRefused:
    detail = f"The request's body is larger than {MAX_BODY_BYTES} bytes."
    return RequestRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)


def too_slow() -> RequestRefused:
    detail = f"The request came too slowly: its body must be here within {BODY_SECONDS:g} s."
    return RequestRefused(HTTPStatus.REQUEST_TIMEOUT, detail)


async def read_body(receive: Receive) -> bytes:
    """Return the whole body.  Raises RequestRefused for one that is too large or too slow."""
    body, more = b"", True
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while more:
                part, more = await next_part(receive)
                body = body + part if body else part
                if len(body) > MAX_BODY_BYTES:
                    raise too_large()
    except TimeoutError:
        raise too_slow() from None
    return body


async def next_part(receive: Receive) -> tuple[bytes, bool]:
    """Return the next part of a body, and whether there is more.  Raises ClientDisconnected."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnected
    return message.get("body", b""), message.get("more_body", False)


async def send_answer(answer: GatewayAnswer, send: Send) -> None:
    size = len(answer.body) if answer.content is None else answer.size
    await send(_start(answer, size))
    if answer.content is None:
        await send({"type": "http.response.body", "body": answer.body})
        return
    with answer.content as content:
        while part := await to_thread.run_sync(content.read, _PART):
            await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body"})


async def send_refusal(answer: GatewayAnswer, receive: Receive, send: Send) -> None:
    """Send *answer*, and end the connection when the client has stopped sending its body.

    A connection that is closed before that may take the answer with it.
    """
    await send(_start(answer, len(answer.body), (b"connection", b"close")))
    await send({"type": "http.response.body", "body": answer.body, "more_body": True})
    left = _DISCARDED_BYTES
    with suppress(TimeoutError, ClientDisconnected):
        async with asyncio.timeout(_DISCARD_SECONDS):
            more = True
            while more and left > 0:
                part, more = await next_part(receive)
                left -= len(part)
    await send({"type": "http.response.body"})


def _start(answer: GatewayAnswer, size: int, *more: tuple[bytes, bytes]) -> Message:
    headers = [(name.encode("ascii"), value.encode("ascii")) for name, value in answer.headers]
    if answer.status not in _NO_BODY:
        headers.append((b"Content-Length", b"%d" % size))
    return {
        "type": "http.response.start",
        "status": int(answer.status),
        "headers": [*headers, *more],
    }
