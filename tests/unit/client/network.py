"""A network in the test's hand: it notes requests and answers as it is told."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2 as httpx

Reply = httpx.Response | Exception | Callable[[httpx.Request], httpx.Response]

AT = "2026-11-21T08:00:00.000000Z"


def reply(status: int, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
    """Return an answer with *body* as JSON."""
    content = b"" if body is None else json.dumps(body).encode()
    return httpx.Response(status, content=content, headers=dict(headers or {}))


def problem(status: int, code: str, **more: Any) -> Any:
    """Return a refusal as the service words it."""
    return reply(status, {"code": code, "status": status, "detail": "no", "errors": [], **more})


def enqueued(request: httpx.Request) -> httpx.Response:
    """Answer an enqueue as if each entry was new."""
    results = [
        {"outcome": "CREATED", "id": entry["id"], "task": None, "detail": None}
        for entry in json.loads(request.content)["tasks"]
    ]
    return httpx.Response(200, content=json.dumps({"results": results}).encode())


@dataclass
class Network(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Answers with *replies* in their order; the last one again and again."""

    replies: list[Reply]
    requests: list[httpx.Request] = field(default_factory=list)
    headers: list[httpx.Headers] = field(default_factory=list)  # of each try of a request
    waits: list[float] = field(default_factory=list)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        self.headers.append(request.headers.copy())
        turn = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(turn, Exception):
            raise turn
        return turn if isinstance(turn, httpx.Response) else turn(request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        return self.handle_request(request)

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    async def async_sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(0)

    def body(self, place: int = -1) -> Any:
        """The body of the request at *place*."""
        return json.loads(self.requests[place].content)
