"""A whole deployment in memory, API and console, for `headrace smoke`; and ways to spoil it."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias

import httpx2 as httpx

from console.app import handler as console
from headrace.cli.session import CliSession
from headrace.client.client import Client
from headrace.http.app import TABLE
from headrace.http.events import proxy_event, read_answer
from headrace.http.openapi import document
from headrace.runtime.function import ALWAYS
from headrace.runtime.wiring import Settings, build, using
from headrace.testing import MemoryService
from headrace.testing.transport import HandlerContext
from tests.unit.cli.cli_runner import Ran, invoke

URL = "https://queue.test/prod"
REQUESTS = 175  # more than a run makes
OPERATIONS = {
    operation["operationId"]: (method.upper(), path)
    for path, methods in document(TABLE.routes)["paths"].items()
    for method, operation in methods.items()
}
Answer: TypeAlias = Callable[[], httpx.Response]
Spoil: TypeAlias = Callable[[httpx.Request, Answer], httpx.Response]
"""Answers a request, with or without what the deployment would answer."""


def is_of(operation: str, method: str, path: str) -> bool:
    """Whether a request is one of an operation of the API."""
    by, template = OPERATIONS[operation]
    return method == by and bool(re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path))


@dataclass
class SmokeDeployment:
    """A deployment at a stage of API Gateway, whose timers run whenever somebody waits."""

    spoil: Spoil = lambda _request, answer: answer()
    timers: bool = True
    service: MemoryService = field(default_factory=MemoryService)
    requests: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        settings = Settings(
            admin_key=self.service.key,
            session_secret="a-secret-for-sessions-of-the-tests",
            settings_ttl_seconds=0,
        )
        self.use = build(settings, self.service.store, now=self.service.clock)

    @property
    def client(self) -> Client:
        """A client that nothing is spoilt for."""
        return self.service.client

    def smoke(self, *args: str, key: str | None = None) -> Ran:
        """Run the command."""
        session = CliSession(
            env={"HEADRACE_URL": URL, "HEADRACE_KEY": key or self.service.key},
            now=self.service.clock,
            sleep=self.sleep,
            transport=httpx.MockTransport(self.answer),
        )
        return invoke("smoke", *args, session=session)

    def rows(self, *args: str, code: int = 0) -> dict[str, dict[str, Any]]:
        """Run it and return its rows by what they check."""
        ran = self.smoke("--json", *args)
        assert ran.code == code, ran.out + ran.err
        return {row["check"]: row for row in ran.json["checks"]}

    def wrong(self, *args: str) -> dict[str, dict[str, Any]]:
        """Run it, something being wrong, and return those rows."""
        rows = self.rows(*args, code=1)
        return {title: row for title, row in rows.items() if row["outcome"] == "wrong"}

    def sleep(self, seconds: float) -> None:
        self.service.clock.forward(timedelta(seconds=seconds))
        if self.timers:
            self.service.tick()

    def answer(self, request: httpx.Request) -> httpx.Response:
        """Answer as it would at its address, spoilt or not."""
        assert request.url.path.startswith("/prod/"), request.url
        self.requests.append((request.method, request.url.path.removeprefix("/prod")))
        return self.spoil(request, lambda: self._answer(request))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode("ascii").removeprefix("/prod")
        inner = httpx.Request(
            request.method,
            f"{self.service.url}{path}",
            headers=[(name, text) for name, text in request.headers.items() if name != "host"],
            content=request.content,
        )
        if path.startswith("/console"):
            return self._console(inner, path)
        return self.service.transport.handle_request(inner)

    def _console(self, request: httpx.Request, path: str) -> httpx.Response:
        bare, _, query = path.partition("?")
        below = bare.removeprefix("/console/")
        resource = bare if bare in ("/console", "/console/sign-in") else "/console/{proxy+}"
        event = proxy_event(
            request.method,
            bare,
            request_id="r",
            headers=dict(request.headers),
            query=query,
            body=request.content,
        )
        event["requestContext"] |= {"resourcePath": resource, "path": f"/prod{bare}"}
        event["pathParameters"] = {"proxy": below} if resource != bare else None
        with using(self.use):
            answer = read_answer(console(event, HandlerContext()))
        self.service.clock.forward(timedelta(milliseconds=1))
        return httpx.Response(answer.status, headers=answer.headers, content=answer.body)

    def there(self) -> set[str]:
        """The queues, keys and batches there are."""
        queues = {f"queue {queue.name}" for queue in self.client.list_queues()}
        batches = {f"batch {batch.id}" for batch in self.client.list_batches()}
        return queues | batches | {f"key {key.name}" for key in self.client.list_keys()}


def problem(status: int, code: str = "internal_error") -> httpx.Response:
    """Return a refusal in the right shape and with the right headers, in the wrong place."""
    body = {"status": status, "code": code, "detail": "spoilt", "request_id": "req-1"}
    headers = {
        "Content-Type": "application/problem+json",
        "X-Request-Id": "req-1",
        "X-Consumed-Units": "w=0, r=0",
        **ALWAYS,
    }
    return httpx.Response(status, headers=headers, content=json.dumps(body).encode())


def for_operation(operation: str, spoilt: Spoil) -> Spoil:
    """A function that spoils the answers of one operation."""

    def spoil(request: httpx.Request, answer: Answer) -> httpx.Response:
        path = request.url.path.removeprefix("/prod")
        if is_of(operation, request.method, path):
            return spoilt(request, answer)
        return answer()

    return spoil


class InterruptedAt:
    """Lets the requests before a *number* through, answers that one, and is interrupted."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, _request: httpx.Request, answer: Answer) -> httpx.Response:
        self.left -= 1
        if self.left == 0:
            answer()
            raise KeyboardInterrupt
        return answer()
