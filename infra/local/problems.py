"""Errors that the local service answers itself, in the one shape of the API (RFC 9457)."""

import json
from http import HTTPStatus
from typing import Final
from uuid import uuid4

from headrace.http.events import GatewayAnswer
from headrace.runtime.headers import ALWAYS

CONTENT_TYPE: Final = "application/problem+json"

_CODES: Final = {
    HTTPStatus.NOT_FOUND: "not_found",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "payload_too_large",
    HTTPStatus.INTERNAL_SERVER_ERROR: "internal_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "unavailable",
}


def refusal(status: HTTPStatus, detail: str, *, request_id: str | None = None) -> GatewayAnswer:
    """Make the answer to a request that no handler has seen, or that one has failed to answer.

    `request_id` is what the log knows a failure by; without it the body names none.
    """
    code = _CODES.get(status, "invalid_request")
    body: dict[str, object] = {
        "type": "about:blank",
        "title": code.replace("_", " ").capitalize(),
        "status": status.value,
        "code": code,
        "detail": detail,
        "errors": [],
    }
    if request_id is not None:
        body["request_id"] = request_id
    headers = [
        ("Content-Type", CONTENT_TYPE),
        ("X-Request-Id", request_id or str(uuid4())),
        ("X-Consumed-Units", "w=0, r=0"),
        *ALWAYS.items(),
    ]
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        headers.append(("Retry-After", "1"))
    return GatewayAnswer(status, headers, json.dumps(body).encode())
