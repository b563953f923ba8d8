"""Requests straight to a service, over connections that httpcore keeps.

httpx, which stands on the same connections, takes two thirds as much CPU again (decision 70), and
what it adds is not used here: redirects, cookies, forms.  It is asked where `goes_straight` says
no, and where a test gives a transport.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from ssl import SSLContext
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies

import httpcore2 as httpcore

from headrace.client.connections import (
    CONNECT_WITHIN,
    MOST_CONNECTIONS,
    Unanswered,
)
from headrace.client.http import path_and_query

_NEVER_SENT: Final = (httpcore.ConnectError, httpcore.ConnectTimeout, httpcore.PoolTimeout)
_LOST: Final = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.TimeoutException,
)
_WITHOUT_BODY: Final = {"GET", "HEAD", "DELETE", "OPTIONS"}
"""Of all others the length is said even if it is 0: some proxies ask for it (RFC 9110, 8.6)."""
_IDLE_SECONDS: Final = 5.0
"""How long a connection that nobody uses is kept: less than API Gateway and others keep one."""


def goes_straight(url: str) -> bool:
    """Tell whether requests to *url* need no httpx: it knows proxies, and names beyond ASCII."""
    return url.isascii() and not getproxies().keys() & {"http", "https", "all"}


@dataclass(slots=True)
class DirectRequest:
    """A request, which may be sent more than once; *timeout* is seconds for one try."""

    method: str
    target: str
    headers: dict[str, str]
    content: bytes | None
    timeout: float


@dataclass(slots=True)
class DirectAnswer:
    """Its answer; each word of a header's name begins with a capital."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes


class _DirectRequests:
    """Makes requests to the service at *url*, each with *headers*."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        self._base = len(f"{parts.scheme}://{parts.netloc}")
        self._scheme, self._host = parts.scheme.lower(), parts.hostname or ""
        self._port = parts.port
        self._headers = [(b"Host", parts.netloc.encode()), *_encoded(headers)]

    def build_request(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, str] | None,
        content: bytes | None,
        headers: dict[str, str],
        timeout: float,
    ) -> DirectRequest:
        """Return the request for *url*, one of this service; *params* replace its query."""
        path, query = path_and_query(url[self._base :], params)
        return DirectRequest(
            method, f"{path}?{query}" if query else path, headers, content, timeout
        )

    def _arguments(self, request: DirectRequest) -> dict[str, Any]:
        """Return what httpcore sends *request* by."""
        seconds = request.timeout
        connect = min(CONNECT_WITHIN, seconds)
        timeout = {"connect": connect, "read": seconds, "write": seconds, "pool": seconds}
        return {
            "method": request.method,
            "url": httpcore.URL(
                scheme=self._scheme, host=self._host, port=self._port, target=request.target
            ),
            "headers": self._headers + _encoded(request.headers),
            "content": request.content or (None if request.method in _WITHOUT_BODY else b""),
            "extensions": {"timeout": timeout},
        }


class DirectConnections(_DirectRequests):
    """What a client's requests go through; threads may share it."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        """Connect to the service at *url* when the first request is sent."""
        super().__init__(url, headers)
        self._pool = httpcore.ConnectionPool(**_pool())

    def send(self, request: DirectRequest) -> DirectAnswer:
        """Send *request*, and wait for the whole answer.  Raises Unanswered."""
        try:
            return _answer(self._pool.request(**self._arguments(request)))
        except _LOST as error:
            raise Unanswered(error, sent=not isinstance(error, _NEVER_SENT)) from None

    def close(self) -> None:
        """Let go of the connections."""
        self._pool.close()


class AsyncDirectConnections(_DirectRequests):
    """The same for an event loop."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        """Connect to the service at *url* when the first request is sent."""
        super().__init__(url, headers)
        self._pool = httpcore.AsyncConnectionPool(**_pool())

    async def send(self, request: DirectRequest) -> DirectAnswer:
        """Send *request*, and wait for the whole answer.  Raises Unanswered."""
        try:
            return _answer(await self._pool.request(**self._arguments(request)))
        except _LOST as error:
            raise Unanswered(error, sent=not isinstance(error, _NEVER_SENT)) from None

    async def aclose(self) -> None:
        """Let go of the connections."""
        await self._pool.aclose()


def _pool() -> dict[str, Any]:
    return {
        "ssl_context": _trusted(),
        "max_connections": MOST_CONNECTIONS,
        "keepalive_expiry": _IDLE_SECONDS,
    }


@cache
def _trusted() -> SSLContext:
    """The certificates that clients trust: to read them takes longer than most calls."""
    return httpcore.default_ssl_context()


def _encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]


def _answer(response: httpcore.Response) -> DirectAnswer:
    headers = {
        name.decode("latin-1").title(): value.decode("latin-1") for name, value in response.headers
    }
    return DirectAnswer(response.status, headers, response.content)
