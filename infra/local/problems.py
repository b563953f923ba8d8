"""Errors that the gateway answers itself, in the one shape of the API (RFC 9457)."""

import json
from http import HTTPStatus
from typing import Final

CONTENT_TYPE: Final = "application/problem+json"

_CODES: Final = {
    HTTPStatus.NOT_FOUND: "not_found",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "payload_too_large",
    HTTPStatus.REQUEST_URI_TOO_LONG: "payload_too_large",
    HTTPStatus.INTERNAL_SERVER_ERROR: "internal_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "unavailable",
}


def problem(status: HTTPStatus, detail: str, *, request_id: str | None = None) -> bytes:
    """Make the body of an error answer; `request_id` is what the log knows the failure by."""
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
    return json.dumps(body).encode()
