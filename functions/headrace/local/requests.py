"""Requests, what of them is not taken, and the answers that refuse them.

h11 takes heads that others might read otherwise; these are refused here.  A refusal has the one
shape of the API's errors (RFC 9457).
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Final, Protocol
from uuid import uuid4

import h11

from headrace.http.events import GatewayAnswer
from headrace.runtime.function import ALWAYS

# A client may name us in full, as to a proxy: only what is behind the host tells where to.
_OUR_NAME: Final = re.compile(r"https?://[^/?]*", re.IGNORECASE)
# A name, an IPv4 address or an IPv6 address in brackets, with a port or without (RFC 9110, 7.2).
_HOST: Final = re.compile(
    rb"([0-9A-Za-z._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2}){0,255}(:[0-9]{0,5})?"
    rb"|\[[0-9A-Fa-f:.]{2,45}\](:[0-9]{0,5})?"
)
_END: Final = re.compile(rb"\n\r?\n")
_FOLDED: Final = re.compile(rb"\n[ \t]")
_BARE: Final = re.compile(rb"(?<!\r)\n")

CONTENT_TYPE: Final = "application/problem+json"
_CODES: Final = {
    HTTPStatus.UNAUTHORIZED: "unauthenticated",
    HTTPStatus.NOT_FOUND: "not_found",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "payload_too_large",
    HTTPStatus.INTERNAL_SERVER_ERROR: "internal_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "unavailable",
}


class Incoming(Protocol):
    """A body that is not held but taken as it comes."""

    def write(self, part: bytes) -> None:
        """Take the next part; raises RequestRefused."""

    def finish(self) -> str | None:
        """Keep it, or return what is wrong with it."""

    def abandon(self) -> None:
        """Forget what came of it."""


class WaitsFor(StrEnum):
    """For what an answer may be long in coming."""

    TASKS = "tasks"  #: to work on
    AN_END = "the end of a task"


@dataclass(frozen=True, slots=True)
class LocalRequest:
    """A whole request.

    Attributes:
        target: path and query as the client sent them, still percent-encoded.
        headers: in the order they came, names in lower case.
        source: the client's address.
        proto: how the client reaches the service, "http" or "https".
        base: what a proxy removed from the path: it comes before all paths of ours in links.
        port: ours.
        incoming: the body, where it is not in `body`.
        client_gone: returns whether the client has closed the connection, or its side of it.

    """

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    protocol: str = "HTTP/1.1"
    source: str = ""
    port: int = 0
    incoming: Incoming | None = None
    client_gone: Callable[[], bool] = lambda: False
    proto: str = "http"
    base: str = ""

    @property
    def path(self) -> str:
        """The path, still encoded, which is what a REST API passes on."""
        target = self.target
        if not target.startswith("/"):
            target = _OUR_NAME.sub("", target, count=1)
        return target.partition("?")[0] or "/"

    @property
    def query(self) -> str:
        """What is behind the question mark."""
        return self.target.partition("?")[2]


class RequestRefused(Exception):
    """A request cannot be taken; `status` says why."""

    def __init__(self, status: HTTPStatus, detail: str) -> None:
        """Keep both for the answer."""
        super().__init__(detail)
        self.status = status


def not_http(wrong: str) -> RequestRefused:
    """Return the refusal of what breaks the protocol."""
    return RequestRefused(HTTPStatus.BAD_REQUEST, f"This is not HTTP as it should be: {wrong}.")


def long_head(most: int) -> RequestRefused:
    """Return the refusal of headers above `most` bytes."""
    detail = f"The request's headers are larger than {most} bytes."
    return RequestRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)


def long_body(most: int) -> RequestRefused:
    """Return the refusal of a body above `most` bytes."""
    detail = f"The request's body is larger than {most} bytes."
    return RequestRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)


def check_head(head: h11.Request, raw: bytes | bytearray, *, max_head: int) -> None:
    """Check a head that h11 has read; `raw` is what came, and may go on behind it.

    Raises:
        RequestRefused: it is too large, or could be read in two ways.

    """
    end = _END.search(raw)
    lines = raw[: end.end() if end else None]
    if len(lines) > max_head:
        raise long_head(max_head)
    names = {name for name, _ in head.headers}
    wrong = ""
    if _FOLDED.search(lines):
        wrong = "a header goes on in a second line"
    elif _BARE.search(lines):
        wrong = "a line ends without a carriage return"
    elif b"transfer-encoding" in names and b"content-length" in names:
        wrong = "Transfer-Encoding and Content-Length exclude each other"
    elif b"transfer-encoding" in names and head.http_version < b"1.1":
        wrong = "there is no Transfer-Encoding in HTTP/1.0"
    elif any(_HOST.fullmatch(value) is None for name, value in head.headers if name == b"host"):
        wrong = "the Host header names no host"
    if wrong:
        raise not_http(wrong)
    if not head.http_version.startswith(b"1."):
        raise RequestRefused(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "This service speaks HTTP/1.1.")


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
