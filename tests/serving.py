"""The local application behind its real server, on a port of its own."""

import contextlib
import http.client
import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from headrace.http.request import Reply, Request
from headrace.local.app import Bounds, LocalApp
from headrace.local.server import LimitedProtocol, LocalServer, listen
from headrace.runtime.function import ALWAYS


@dataclass
class FakeApi:
    """Answers every request with "fine", and keeps the requests."""

    requests: list[Request] = field(default_factory=list)

    def __call__(self, request: Request) -> Reply:
        self.requests.append(request)
        return Reply("fine")


@dataclass
class Served:
    """A server on *port* with the API that it calls."""

    port: int
    api: FakeApi

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)

    def open(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def raw(self, request: bytes) -> bytes:
        """Send bytes and return everything that comes until the server hangs up."""
        with self.open() as connection:
            connection.sendall(request)
            return until_end(connection)


@contextlib.contextmanager
def serving(
    api: Callable[[Request], Reply] | None = None,
    *,
    bounds: Bounds | None = None,
    protocol: type[LimitedProtocol] = LimitedProtocol,
    verify_key: Callable[[str], object] = str,
) -> Iterator[Served]:
    """Serve *api* for the length of a with block; *verify_key* accepts every key."""
    fake = FakeApi()
    listening = listen("127.0.0.1", 0)
    app = LocalApp(api or fake, lambda *_: None, bounds=bounds, verify_key=verify_key)
    server = LocalServer(app, listening, protocol)
    port = listening.getsockname()[1]
    server.start()
    try:
        yield Served(port, fake)
    finally:
        server.stop()


def until_end(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


def assert_refused(answer: bytes, status: int, code: str) -> None:
    """Assert that *answer* is one refusal in our form, and ends the connection."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"\r\nContent-Type: application/problem+json" in head
    for name, value in ALWAYS.items():
        assert f"\r\n{name}: {value}".encode() in head
    assert b"\r\nconnection: close" in head.lower()
    assert json.loads(body)["code"] == code
    assert json.loads(body)["status"] == status
