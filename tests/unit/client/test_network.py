"""Requests straight to a service: what is sent, what comes back, and what is known of the lost."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from headrace import AsyncClient, Client, InvalidRequest

KEY = "hr_key"
HEALTHY = b'{"status":"ok","version":"1","now":"2026-11-21T08:00:00.000000Z"}'
PROXIES = ("http_proxy", "https_proxy", "all_proxy")

Serve = Callable[[socket.socket, int], None]


def _request(connection: socket.socket) -> bytes:
    """Read one request, whose body is as long as it says."""
    text = b""
    while b"\r\n\r\n" not in text:
        if not (piece := connection.recv(65536)):
            return text
        text += piece
    head, _, body = text.partition(b"\r\n\r\n")
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    while len(body) < int(length or b"0"):
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def _answer(body: bytes = HEALTHY, status: str = "200 OK", *more: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *more, "", ""]
    return "\r\n".join(lines).encode() + body


@contextmanager
def _service(serve: Serve, host: str = "127.0.0.1") -> Iterator[str]:
    """Have *serve* take each connection, with its number; its address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listening:

        def accept() -> None:
            number = 0
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                number += 1
                with connection:
                    serve(connection, number)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        port = listening.getsockname()[1]
        yield f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(5)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_connections_are_kept_and_one_that_was_closed_meanwhile_is_not_used() -> None:
    closed, numbers = threading.Semaphore(0), []

    def serve(connection: socket.socket, number: int) -> None:
        for _ in range(2):
            _request(connection)
            numbers.append(number)
            connection.sendall(_answer())
        connection.close()
        closed.release()

    with _service(serve) as url, Client(url, KEY, retries=0) as client:
        for _ in range(2):
            for _ in range(2):
                client.health()
            assert closed.acquire(timeout=10)
    assert numbers == [1, 1, 2, 2]


def test_a_call_behind_a_proxy_goes_there(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []

    def serve(connection: socket.socket, _number: int) -> None:
        seen.append(_request(connection))
        connection.sendall(_answer())

    with _service(serve) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy)
        monkeypatch.setenv("http_proxy", proxy)
        with Client("http://queue.test/prod", KEY) as client:
            assert client.health().status == "ok"
    assert seen[0].startswith(b"GET http://queue.test/prod/v1/health ")


@pytest.mark.parametrize(
    ("proxy", "message"),
    [
        ("socks5://proxy.test:1080", "by SOCKS needs one more package: pip install socksio"),
        ("http://[::1", "cannot be used: Invalid port"),
    ],
)
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_proxy_that_cannot_be_used_is_refused_at_once(
    kind: type[Client | AsyncClient], proxy: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(InvalidRequest) as raised:
        kind("https://queue.test", KEY)
    assert [error.field for error in raised.value.errors] == ["proxy"]
    assert message in raised.value.detail
