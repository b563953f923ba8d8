"""Requests as the events that API Gateway sends (REST API, Lambda proxy), and the answers back."""

import base64
import binascii
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs

from infra.local.lambdas import ACCOUNT, Event

STAGE: Final = "local"

Environ: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back to the client."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


def proxy_event(
    environ: Environ,
    *,
    method: str,
    path: str,
    resource: str,
    parameters: Mapping[str, str],
    body: bytes,
    request_id: str,
) -> Event:
    """Make the event (payload format 1.0).

    `path` is as the client sent it, still percent-encoded; `resource` is the template's path.
    """
    headers = _headers(environ)
    query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
    text, is_base64 = _body_text(body)
    now = time.time()
    return {
        "resource": resource,
        "path": path,
        "httpMethod": method,
        "headers": headers,
        "multiValueHeaders": {name: [value] for name, value in headers.items()},
        "queryStringParameters": {name: values[-1] for name, values in query.items()} or None,
        "multiValueQueryStringParameters": query or None,
        "pathParameters": dict(parameters) or None,
        "stageVariables": None,
        "requestContext": {
            "accountId": ACCOUNT,
            "apiId": STAGE,
            "resourceId": resource,
            "resourcePath": resource,
            "httpMethod": method,
            "path": path,
            "stage": STAGE,
            "protocol": environ.get("SERVER_PROTOCOL", "HTTP/1.1"),
            "requestId": request_id,
            "requestTime": datetime.fromtimestamp(now, UTC).strftime("%d/%b/%Y:%H:%M:%S +0000"),
            "requestTimeEpoch": int(now * 1000),
            "domainName": headers.get("Host", ""),
            "identity": {
                "sourceIp": environ.get("REMOTE_ADDR", ""),
                "userAgent": headers.get("User-Agent"),
            },
        },
        "body": text,
        "isBase64Encoded": is_base64,
    }


def _headers(environ: Environ) -> dict[str, str]:
    names = {key: key[5:] for key in environ if key.startswith("HTTP_")}
    names |= {key: key for key in ("CONTENT_TYPE", "CONTENT_LENGTH") if environ.get(key)}
    headers = {name.replace("_", "-").title(): environ[key] for key, name in names.items()}
    forwarded = [headers.get("X-Forwarded-For"), environ.get("REMOTE_ADDR")]
    headers["X-Forwarded-For"] = ", ".join(address for address in forwarded if address)
    headers["X-Forwarded-Proto"] = environ.get("wsgi.url_scheme", "http")
    headers["X-Forwarded-Port"] = environ.get("SERVER_PORT", "")
    return headers


def _body_text(body: bytes) -> tuple[str | None, bool]:
    if not body:
        return None, False
    try:
        return body.decode(), False
    except UnicodeDecodeError:
        return base64.b64encode(body).decode("ascii"), True


def read_answer(answer: Any) -> Answer:  # noqa: ANN401 (a handler may return anything)
    """Read a handler's answer.

    Raises:
        ValueError: it is not what API Gateway would take.

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
    lines = [(name, _header_value(value)) for name, values in headers.items() for value in values]
    body = answer.get("body") or ""
    if answer.get("isBase64Encoded"):
        try:
            return Answer(answer["statusCode"], lines, base64.b64decode(body, validate=True))
        except binascii.Error as error:
            raise ValueError("the answer's body is not base64") from error
    return Answer(answer["statusCode"], lines, body.encode())


def _header_value(value: object) -> str:
    text = str(value)
    if not text.isascii() or "\r" in text or "\n" in text:
        raise ValueError(f"a header of the answer cannot be sent: {text!r}")
    return text
