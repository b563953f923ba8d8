"""The events that API Gateway sends (REST API, Lambda proxy), and the answers to them.

The local service and the test kit use them in place of API Gateway.
"""

import base64
import binascii
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, BinaryIO, Final

from headrace.http.request import query_of

ACCOUNT: Final = "000000000000"
STAGE: Final = "local"


@dataclass(frozen=True, slots=True)
class GatewayAnswer:
    """The answer to the client: *body*, or *size* bytes of *content*, sent in parts."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    content: BinaryIO | None = None
    size: int = 0


def proxy_event(  # noqa: PLR0913 (a request has as many parts)
    method: str,
    path: str,
    *,
    request_id: str,
    headers: Mapping[str, str],
    query: str = "",
    body: bytes = b"",
    resource: str | None = None,
    parameters: Mapping[str, str] | None = None,
    protocol: str = "HTTP/1.1",
    source_ip: str = "127.0.0.1",
    base: str = "",
) -> dict[str, Any]:
    """Return the event of a request (payload format 1.0).

    *path* and *query* are percent-encoded, as the client sent them. *resource* is the path in the
    template, with *parameters* for its variables. The body is in base64, because the template sets
    this for API Gateway; it takes a third more space in the event.
    """
    names = {name.lower(): name for name in headers}
    values = query_of(query)
    now = time.time()
    return {
        "path": path,
        "httpMethod": method,
        "headers": dict(headers),
        "multiValueHeaders": {name: [value] for name, value in headers.items()},
        "queryStringParameters": {name: given[-1] for name, given in values.items()} or None,
        "multiValueQueryStringParameters": values or None,
        "resource": resource or path,
        "pathParameters": dict(parameters or {}) or None,
        "stageVariables": None,
        "requestContext": {
            "accountId": ACCOUNT,
            "apiId": STAGE,
            "resourceId": resource or path,
            "resourcePath": resource or path,
            "httpMethod": method,
            "path": base + path,
            "stage": STAGE,
            "protocol": protocol,
            "requestId": request_id,
            "requestTime": datetime.fromtimestamp(now, UTC).strftime("%d/%b/%Y:%H:%M:%S +0000"),
            "requestTimeEpoch": int(now * 1000),
            "domainName": headers.get(names.get("host", ""), ""),
            "identity": {
                "sourceIp": source_ip,
                "userAgent": headers.get(names.get("user-agent", "")),
            },
        },
        "body": base64.b64encode(body).decode("ascii") if body else None,
        "isBase64Encoded": bool(body),
    }


def read_answer(answer: object) -> GatewayAnswer:
    """Return the answer that a handler gave.

    Raises ValueError if API Gateway would not accept it.
    """
    if not isinstance(answer, dict) or not isinstance(answer.get("statusCode"), int):
        raise ValueError(f"not an answer for API Gateway: {type(answer).__name__}")  # noqa: TRY004 (one error for every wrong answer)
    headers: dict[str, list[Any]] = {
        name: [value] for name, value in (answer.get("headers") or {}).items()
    }
    # Where both have a name, API Gateway takes the values of the second.
    known = {name.lower(): name for name in headers}
    for name, values in (answer.get("multiValueHeaders") or {}).items():
        headers.pop(known.get(name.lower(), ""), None)
        headers[name] = values
    lines = [(name, header_value(value)) for name, values in headers.items() for value in values]
    body = answer.get("body") or ""
    if answer.get("isBase64Encoded"):
        try:
            return GatewayAnswer(answer["statusCode"], lines, base64.b64decode(body, validate=True))
        except binascii.Error as error:
            raise ValueError("the answer's body is not base64") from error
    return GatewayAnswer(answer["statusCode"], lines, body.encode())


def header_value(value: object) -> str:
    """Return *value* as the text of a header. Raises ValueError if a header cannot have it."""
    text = str(value)
    if not text.isascii() or "\r" in text or "\n" in text:
        raise ValueError(f"a header of the answer cannot be sent: {text!r}")
    return text
