"""Requests as they come from a connection, and as the events that API Gateway sends for them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headrace.http.events import proxy_event
from infra.local.lambdas import Event

# A client may name us in full, as to a proxy: only what is behind the host tells where to.
_OUR_NAME: Final = re.compile(r"https?://[^/?]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LocalRequest:
    """A whole request.

    Attributes:
        target: path and query as the client sent them, still percent-encoded.
        headers: in the order they came, names in lower case.
        source: the client's address.
        port: ours.

    """

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    protocol: str = "HTTP/1.1"
    source: str = ""
    port: int = 0

    @property
    def path(self) -> str:
        """The path, still encoded, which is what a REST API passes on."""
        path = _OUR_NAME.sub("", self.target, count=1).partition("?")[0]
        return path or "/"

    @property
    def query(self) -> str:
        """What is behind the question mark."""
        return self.target.partition("?")[2]


def request_event(
    request: LocalRequest,
    *,
    method: str,
    resource: str,
    parameters: Mapping[str, str],
    request_id: str,
) -> Event:
    """Make the event (payload format 1.0).

    `method` is what the route takes the request's for; `resource` is the template's path.
    """
    return proxy_event(
        method,
        request.path,
        request_id=request_id,
        headers=_headers(request),
        query=request.query,
        body=request.body,
        resource=resource,
        parameters=parameters,
        protocol=request.protocol,
        source_ip=request.source,
    )


def _headers(request: LocalRequest) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in request.headers:
        title = name.title()
        between = "; " if name == "cookie" else ", "
        headers[title] = f"{headers[title]}{between}{value}" if title in headers else value
    forwarded = [headers.get("X-Forwarded-For"), request.source]
    headers["X-Forwarded-For"] = ", ".join(address for address in forwarded if address)
    headers["X-Forwarded-Proto"] = "http"
    headers["X-Forwarded-Port"] = str(request.port)
    return headers
