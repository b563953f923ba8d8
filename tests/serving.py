"""A gateway behind its real server, on a port of its own."""

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from headrace.local.gateway import Gateway
from headrace.local.server import ApiServer, Bounds, listen
from headrace.runtime.function import ALWAYS
from tests.fake_handler import ROUTES, FakeHandler


@dataclass
class Served:
    """A server with what it calls."""

    server: ApiServer
    handler: FakeHandler

    @property
    def port(self) -> int:
        return self.server.bind_addr[1]

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
    handler: Any = None,
    *,
    bounds: Bounds | None = None,
    clock: Callable[[], float] = time.monotonic,
    verify_key: Callable[[str], object] | None = None,
) -> Iterator[Served]:
    """Serve *handler* for the length of a with block."""
    called = handler or FakeHandler()
    gateway = Gateway(ROUTES, {"api.handler": called}, verify_key=verify_key)
    server = ApiServer(gateway, listen("127.0.0.1", 0), bounds, clock)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield Served(server, called)
    finally:
        server.stop()
        thread.join()


def until_end(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


def assert_refused(answer: bytes, status: int, code: str) -> None:
    """Assert that *answer* is one refusal in our shape, with which the connection ends."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"\r\nContent-Type: application/problem+json" in head
    for name, value in ALWAYS.items():
        assert f"\r\n{name}: {value}".encode() in head
    assert b"\r\nConnection: close" in head
    assert json.loads(body)["code"] == code
    assert json.loads(body)["status"] == status
