"""Connections without TLS: kept and let go of, what is sent over them, and what fails."""

import http.client
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress

import httpx2 as httpx
import pytest

from headrace.client.client import Client
from headrace.client.kept import KeptAnswer, KeptConnections, suits
from headrace.domain.errors import Unavailable

SOON = 10.0
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Name: Value\r\n\r\n{}"
LAST = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
LATE = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nlate"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"


class Service:
    """Answers the requests of each connection with what is given for it, then hangs up.

    What is late it sends when it is told to go on.
    """

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.listening.settimeout(SOON)
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}"
        self.requests: list[bytes] = []
        self.go_on = threading.Event()
        self.threads: list[threading.Thread] = []
        self.hung_up = threading.Semaphore(0)

    def answers(self, *connections: Sequence[bytes]) -> None:
        thread = threading.Thread(target=self._answer, args=connections)
        self.threads.append(thread)
        thread.start()

    def _answer(self, *connections: Sequence[bytes]) -> None:
        for replies in connections:
            connection, _ = self.listening.accept()
            connection.settimeout(SOON)
            with connection:
                for reply in replies:
                    self.requests.append(connection.recv(65536))
                    if reply is LATE:
                        self.go_on.wait(SOON)
                    with suppress(OSError):  # whoever asked is gone
                        connection.sendall(reply)
            self.hung_up.release()

    def close(self) -> None:
        self.go_on.set()
        self.listening.close()
        for thread in self.threads:
            thread.join(SOON)


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    yield service
    service.close()


def connected(service: Service, *, most: int = 2) -> KeptConnections:
    return KeptConnections(service.url, {"Authorization": "Bearer x"}, most=most)


def sent(connections: KeptConnections, *, timeout: float = SOON, body: bytes = b"{}") -> KeptAnswer:
    request = connections.build_request(
        "POST", "/v1/tasks", params=None, content=body, headers={}, timeout=timeout
    )
    return connections.send(request)


def test_calls_share_a_connection(service: Service) -> None:
    service.answers([OK, CHUNKED, OK])
    connections = connected(service)

    answers = [sent(connections) for _ in range(3)]

    assert [(one.status_code, one.content) for one in answers] == [(200, b"{}")] * 3
    assert answers[0].headers.get("x-name") == answers[0].headers.get("X-Name") == "Value"
    connections.close()


def test_head_and_body_go_out_together(service: Service) -> None:
    service.answers([OK])
    connections = connected(service)
    request = connections.build_request(
        "POST",
        f"{service.url}/v1/queues/a b/tasks?not=this#part",
        params={"limit": "1 0"},
        content=b"{}",
        headers={"Idempotency-Key": "k"},
        timeout=httpx.Timeout(SOON),
    )

    connections.send(request)

    head, body = service.requests[0].split(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /v1/queues/a%20b/tasks?limit=1+0 HTTP/1.1"
    host = service.url.removeprefix("http://").encode()
    assert {b"Host: " + host, b"Authorization: Bearer x", b"Idempotency-Key: k"} < set(lines)
    assert body == b"{}"
    connections.close()


@pytest.mark.parametrize("first", [[LAST], [OK]], ids=["it says so", "it just does"])
def test_one_that_the_service_has_ended_is_made_anew(service: Service, first: list[bytes]) -> None:
    service.answers(first, [OK])
    connections = connected(service)

    sent(connections)
    assert service.hung_up.acquire(timeout=SOON)

    assert sent(connections).status_code == 200
    connections.close()


def test_an_answer_that_came_too_late_is_not_that_of_the_next_call(service: Service) -> None:
    service.answers([LATE], [OK])
    connections = connected(service)

    with pytest.raises(httpx.ReadTimeout):
        sent(connections, timeout=0.01)
    service.go_on.set()

    assert sent(connections).content == b"{}"
    connections.close()


def test_what_is_no_answer_is_said_as_httpx_does(service: Service) -> None:
    service.answers([b"NONSENSE\r\n\r\n"], [OK[:-1]])
    connections = connected(service)

    for _ in range(2):
        with pytest.raises(httpx.RemoteProtocolError):
            sent(connections)


def test_nobody_there_is_unavailable(service: Service) -> None:
    service.listening.close()

    with pytest.raises(httpx.ConnectError):
        sent(connected(service))
    with (
        Client(service.url, "hr_key", retries=0) as client,
        pytest.raises(Unavailable, match="refused"),
    ):
        client.get_queue("mail")


def test_there_are_no_more_than_so_many(service: Service) -> None:
    service.answers([LATE])
    connections = connected(service, most=1)
    other = threading.Thread(target=lambda: sent(connections))
    other.start()
    while not service.requests:
        other.join(0.001)

    with pytest.raises(httpx.PoolTimeout):
        sent(connections, timeout=0.01)
    service.go_on.set()
    other.join(SOON)


def test_an_answer_to_a_body_that_was_not_read_is_read(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.answers([b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n"])
    send = http.client.HTTPConnection.send

    def broken(self: http.client.HTTPConnection, data: bytes) -> None:
        send(self, data)
        raise BrokenPipeError

    monkeypatch.setattr(http.client.HTTPConnection, "send", broken)
    connections = connected(service)

    assert sent(connections).status_code == 413
    connections.close()


def test_proxies_and_tls_are_left_to_httpx(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    assert suits("http://queue.test:8080/stage")
    assert not suits("https://queue.test")
    assert not suits("http://käse.test")

    monkeypatch.setenv("http_proxy", "http://proxy.test:3128")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert suits("http://127.0.0.1:8080")
    assert not suits("http://queue.test")
