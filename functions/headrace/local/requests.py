"""Requests to the local service, and the answers that refuse them.

A refusal has the form of the API's errors (RFC 9457).
"""

import json
import re
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Final
from uuid import uuid4

from headrace.http.events import GatewayAnswer
from headrace.runtime.function import ALWAYS

MAX_HEADER_BYTES: Final = 32 * 1024

# A name, an IPv4 address or an IPv6 address in brackets, with a port or without (RFC 9110, 7.2).
_HOST: Final = re.compile(
    r"([0-9A-Za-z._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2}){0,255}(:[0-9]{0,5})?"
    r"|\[[0-9A-Fa-f:.]{2,45}\](:[0-9]{0,5})?"
)
_CODES: Final = {
    HTTPStatus.UNAUTHORIZED: "unauthenticated",
    HTTPStatus.FORBIDDEN: "forbidden",
    HTTPStatus.NOT_FOUND: "not_found",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "payload_too_large",
    HTTPStatus.INTERNAL_SERVER_ERROR: "internal_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "unavailable",
}


@dataclass(frozen=True, slots=True)
class LocalRequest:
    """A request without its body.

    Attributes:
        path: the path, percent-encoded.
        query: the query, percent-encoded.
        headers: by their names in lower case; values of a repeated header are joined.
        repeated: the names of the headers that came more than once.
        source: the address of the client.
        proto: how the client reaches the service, "http" or "https".
        base: the prefix of the client's URL that is not in the path; links of ours begin with it.
        port: the port of the service.

    """

    method: str
    path: str
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    repeated: frozenset[str] = frozenset()
    protocol: str = "HTTP/1.1"
    source: str = ""
    port: int = 0
    proto: str = "http"
    base: str = ""

    @property
    def length(self) -> int | None:
        """The declared length of the body in bytes; None if the body comes in chunks."""
        if "transfer-encoding" in self.headers:
            return None
        return int(self.headers.get("content-length", 0))

    def below(self, root_path: str) -> "LocalRequest":
        """Return the request with *root_path* as its base, unless a proxy has named another base.

        The path may begin with *root_path*, because not every proxy removes it.
        """
        rest = self.path.removeprefix(root_path)
        path = rest or "/" if rest[:1] in ("", "/") else self.path
        return replace(self, path=path, base=self.base or root_path)


class RequestRefused(Exception):
    """The service does not take a request; `status` is that of the answer."""

    def __init__(self, status: HTTPStatus, detail: str) -> None:
        super().__init__(detail)
        self.status = status


def check_head(request: LocalRequest) -> None:
    """Raise RequestRefused for headers that are too large or that can be read in two ways."""
    names = request.headers
    if sum(map(len, names)) + sum(map(len, names.values())) > MAX_HEADER_BYTES:
        detail = f"The request's headers are larger than {MAX_HEADER_BYTES} bytes."
        raise RequestRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
    wrong = ""
    if "transfer-encoding" in names and "content-length" in names:
        wrong = "Transfer-Encoding and Content-Length exclude each other"
    elif "transfer-encoding" in names and request.protocol < "HTTP/1.1":
        wrong = "HTTP/1.0 has no Transfer-Encoding"
    elif _HOST.fullmatch(names.get("host", "")) is None:
        wrong = "the Host header is not a host"
    if wrong:
        raise RequestRefused(HTTPStatus.BAD_REQUEST, f"The request is malformed: {wrong}.")


def refusal(status: HTTPStatus, detail: str, *, request_id: str | None = None) -> GatewayAnswer:
    """Return the answer to a request that no application has answered.

    The log has *request_id* if the application failed; without it the body has no id.
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
        ("Content-Type", "application/problem+json"),
        ("X-Request-Id", request_id or str(uuid4())),
        ("X-Consumed-Units", "w=0, r=0"),
        *ALWAYS.items(),
    ]
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        headers.append(("Retry-After", "1"))
    return GatewayAnswer(status, headers, json.dumps(body).encode())
