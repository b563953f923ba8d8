"""The connections of clients to a service on the network, by httpx."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from ssl import SSLContext
from typing import Any, Final

import httpx2 as httpx

from headrace.client.http import CONNECT_WITHIN, MOST_CONNECTIONS, Unanswered
from headrace.domain.errors import InvalidRequest

_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_LIMITS: Final = httpx.Limits(
    max_connections=MOST_CONNECTIONS, max_keepalive_connections=MOST_CONNECTIONS
)


class _HttpxRequests:
    """Makes requests, each with the client's headers."""

    def __init__(self, client: httpx.Client | httpx.AsyncClient) -> None:
        self._makes = client

    def build_request(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, str] | None,
        content: bytes | None,
        headers: dict[str, str],
        timeout: float,
    ) -> httpx.Request:
        """Return the request for *url*; *params* replace its query, *timeout* is in seconds."""
        return self._makes.build_request(
            method,
            url,
            params=params,
            content=content,
            headers=headers,
            timeout=timeout_of(timeout),
        )


class HttpxConnections(_HttpxRequests):
    """What a client's requests go through; *transport* takes the place of the network."""

    def __init__(self, headers: Mapping[str, str], transport: httpx.BaseTransport | None) -> None:
        """Connect when the first request is sent.  Raises InvalidRequest for the proxy."""
        with _proxy():
            self._client = httpx.Client(**_client(headers), transport=transport)
        super().__init__(self._client)

    def send(self, request: httpx.Request) -> httpx.Response:
        """Send *request*, and wait for the whole answer.  Raises Unanswered."""
        with _answered():
            return self._client.send(request)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


class AsyncHttpxConnections(_HttpxRequests):
    """The same for an event loop."""

    def __init__(
        self, headers: Mapping[str, str], transport: httpx.AsyncBaseTransport | None
    ) -> None:
        """Connect when the first request is sent.  Raises InvalidRequest for the proxy."""
        with _proxy():
            self._client = httpx.AsyncClient(**_client(headers), transport=transport)
        super().__init__(self._client)

    async def send(self, request: httpx.Request) -> httpx.Response:
        """Send *request*, and wait for the whole answer.  Raises Unanswered."""
        with _answered():
            return await self._client.send(request)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def timeout_of(seconds: float) -> httpx.Timeout:
    """How long one try may take, and how much of that until it is connected."""
    return httpx.Timeout(seconds, connect=min(CONNECT_WITHIN, seconds))


def _client(headers: Mapping[str, str]) -> dict[str, Any]:
    return {"headers": headers, "limits": _LIMITS, "verify": _trusted()}


@cache
def _trusted() -> SSLContext:
    """Return the certificates that clients trust: reading them takes longer than most calls."""
    return httpx.create_ssl_context()


@contextmanager
def _proxy() -> Iterator[None]:
    """Say what is wrong with the proxy that the environment names, which httpx looks for."""
    try:
        yield
    except ImportError:
        message = "by SOCKS needs one more package: pip install socksio"
        raise InvalidRequest.of("proxy", message) from None
    except (ValueError, httpx.InvalidURL) as error:
        message = f"of the environment (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY) cannot be used: {error}"
        raise InvalidRequest.of("proxy", message) from None


@contextmanager
def _answered() -> Iterator[None]:
    try:
        yield
    except httpx.RequestError as error:
        raise Unanswered(error, sent=not isinstance(error, _NEVER_SENT)) from None
