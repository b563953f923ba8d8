"""Connections of a blocking client to a service without TLS, kept for its next calls.

By Python's own ``http.client``, which takes a quarter of httpx's CPU for a call and sends head and
body together.  What fails is raised as httpx does.
"""

import http.client
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2 as httpx

_IDLE_SECONDS: Final = 5.0
"""How long a connection is kept for the next call, as httpx has it."""

_IN_PATHS: Final = "/%:@!$&'()*+,;=~"  # left as they are; the rest of a path comes quoted


def suits(url: str) -> bool:
    """Tell whether *url* can be asked this way: without TLS, and not through a proxy."""
    place = urlsplit(url)
    host = place.hostname or ""
    if place.scheme != "http" or not host.isascii():
        return False
    return not {"http", "all"} & getproxies().keys() or bool(proxy_bypass(host))


@dataclass(slots=True)
class KeptRequest:
    """A request, and the seconds that connecting and each read may take."""

    method: str
    target: str
    headers: dict[str, str]
    content: bytes | None
    connect_within: float | None
    read_within: float | None


class _Headers(dict[str, str]):
    """Headers of an answer, their names in lower case."""

    def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]  # of one type here
        return super().get(name.lower(), default)


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """Its answer, read as httpx's is."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes


class _Connection(http.client.HTTPConnection):
    """Sends head and body together, so that whoever reads is woken once."""

    def request(  # type: ignore[override]  # what is asked of it here
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]
    ) -> None:
        self._parts: list[bytes] = []
        super().request(method, url, body, headers)
        super().send(b"".join(self._parts))

    def send(self, data: bytes) -> None:  # type: ignore[override]  # likewise
        self._parts.append(data)


class KeptConnections:
    """At most *most* connections to the service at *url*, and *headers* of every request."""

    def __init__(self, url: str, headers: Mapping[str, str], *, most: int) -> None:
        place = urlsplit(url)
        self._origin = f"{place.scheme}://{place.netloc}"
        self._host, self._port = place.hostname or "", place.port
        self._headers = headers
        self._room = threading.Semaphore(most)
        self._idle: deque[tuple[_Connection, float]] = deque()
        self._closed = False

    def build_request(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, str] | None,
        content: bytes | None,
        headers: dict[str, str],
        timeout: httpx.Timeout | float,
    ) -> KeptRequest:
        """Return the request for *url*, which may have a query; *params* replace it."""
        path, _, query = url.removeprefix(self._origin).partition("#")[0].partition("?")
        query = urlencode(params) if params else query
        target = (quote(path, safe=_IN_PATHS) or "/") + (f"?{query}" if query else "")
        if isinstance(timeout, httpx.Timeout):
            connect, read = timeout.connect, timeout.read
        else:
            connect = read = timeout
        return KeptRequest(method, target, {**self._headers, **headers}, content, connect, read)

    def send(self, request: KeptRequest) -> KeptAnswer:
        """Send *request* and return its answer.  Raises httpx.RequestError."""
        if not self._room.acquire(timeout=request.read_within):
            raise httpx.PoolTimeout("all connections are in use")
        try:
            connection = self._kept() or self._connected(request)
            try:
                answer = _exchange(connection, request)
            except BaseException:
                connection.close()
                raise
            self._keep(connection)
            return answer
        finally:
            self._room.release()

    def close(self) -> None:
        """Let go of those that nothing is sent over; the others follow."""
        self._closed = True
        while self._idle:
            self._idle.pop()[0].close()

    def _kept(self) -> _Connection | None:
        while self._idle:
            try:
                connection, since = self._idle.pop()
            except IndexError:  # another thread has it
                return None
            if time.monotonic() - since < _IDLE_SECONDS and _is_open(connection.sock):
                return connection
            connection.close()
        return None

    def _connected(self, request: KeptRequest) -> _Connection:
        connection = _Connection(self._host, self._port, timeout=request.connect_within)
        with _as_httpx(httpx.ConnectTimeout, httpx.ConnectError):
            connection.connect()
        return connection

    def _keep(self, connection: _Connection) -> None:
        if self._closed or connection.sock is None:  # the service has ended it with its answer
            connection.close()
        else:
            self._idle.append((connection, time.monotonic()))


def _exchange(connection: _Connection, request: KeptRequest) -> KeptAnswer:
    connection.sock.settimeout(request.read_within)
    with _as_httpx(httpx.ReadTimeout, httpx.ReadError):
        with suppress(BrokenPipeError, ConnectionResetError):  # it may have refused the body unread
            connection.request(request.method, request.target, request.content, request.headers)
        answer = connection.getresponse()
        headers = _Headers((name.lower(), value) for name, value in answer.getheaders())
        return KeptAnswer(answer.status, headers, answer.read())


def _is_open(sock: socket.socket) -> bool:
    """Tell whether it may be used: of one that nothing was asked of, only its end can be read."""
    sock.settimeout(0.0)
    try:
        sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


@contextmanager
def _as_httpx(
    late: type[httpx.TimeoutException], failed: type[httpx.NetworkError]
) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        if type(error) is not TimeoutError:  # thrown into this thread, which is to end
            raise
        raise late(str(error)) from error
    except http.client.HTTPException as error:
        raise httpx.RemoteProtocolError(str(error) or type(error).__name__) from error
    except OSError as error:
        raise failed(str(error)) from error
