"""From the client's request to the Lambda handler and back, without a socket, faults on the way."""

import json
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import httpx2 as httpx

from headrace.http.app import handle
from headrace.http.events import proxy_event, read_answer
from headrace.runtime.service import Service
from headrace.runtime.wiring import using
from headrace.testing.conditions import Call, Faults

Respond: TypeAlias = Callable[[httpx.Request], httpx.Response]
"""What `httpx2.MockTransport` wants, for sync and async clients alike."""

Leases: TypeAlias = Callable[[Sequence[str]], None]
"""Lets the leases of these tasks lapse."""

_CALLS: Final[dict[str, Call]] = {"tasks": "enqueue", "dequeue": "dequeue", "reports": "report"}
_PATH: Final = re.compile(r"/v1/(?:queues/[^/]+/(?=tasks|reports|dequeue)|(?=dequeue))(\w+)")


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


def responder(use: Service) -> Respond:
    """A function that answers requests as API Gateway and the Lambda function over *use* would."""

    def respond(request: httpx.Request) -> httpx.Response:
        context = HandlerContext()
        with using(use):
            answer = read_answer(handle(_event(request, context), context))
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


def faulty(
    respond: Respond, faults: Faults, *, lapse: Leases, may_repeat: Callable[[str, str], bool]
) -> Respond:
    """Return *respond* as it is on a bad day.

    *may_repeat* tells of a task and its lease whether it can be delivered once more.
    """
    repeated: set[str] = set()

    def answer(request: httpx.Request) -> httpx.Response:
        call = _call(request)
        if fault := faults.struck("unavailable", call):
            return _away(fault.retry_after_seconds)
        if faults.struck("lost request", call):
            raise httpx.ConnectError("the request was lost, as asked for", request=request)
        if call == "report" and faults.active("duplicate delivery"):
            lapse([task for task, lease in _finished(request) if strikes_once(task, lease)])
        response = respond(request)
        if call == "dequeue" and faults.active("lapsed lease"):
            lapse([task for task in _leased(response) if faults.struck("lapsed lease")])
        if faults.struck("lost answer", call):
            raise httpx.ReadTimeout("the answer was lost, as asked for", request=request)
        return response

    def strikes_once(task_id: str, lease_id: str) -> bool:
        if task_id in repeated or not may_repeat(task_id, lease_id):
            return False
        if not faults.struck("duplicate delivery"):
            return False
        repeated.add(task_id)
        return True

    return answer


def _call(request: httpx.Request) -> Call | None:
    path = _PATH.fullmatch(request.url.path)
    return _CALLS[path[1]] if path and request.method == "POST" else None


def _away(retry_after_seconds: int) -> httpx.Response:
    problem = {
        "type": "about:blank",
        "title": "Unavailable",
        "status": 503,
        "code": "unavailable",
        "detail": "the service is away, as asked for",
    }
    headers = {
        "Content-Type": "application/problem+json",
        "Retry-After": str(retry_after_seconds),
    }
    return httpx.Response(503, headers=headers, content=json.dumps(problem))


def _finished(request: httpx.Request) -> list[tuple[str, str]]:
    """Return task and lease of the reports that would end an attempt."""
    reports: list[dict[str, str]] = _json(request.content).get("reports", [])
    return [
        (report.get("task_id", ""), report.get("lease_id", ""))
        for report in reports
        if report.get("status") != "INFLIGHT"
    ]


def _leased(response: httpx.Response) -> list[str]:
    return [task["id"] for task in _json(response.content).get("tasks", [])]


def _json(text: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found
