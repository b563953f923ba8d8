"""The gateway behind its HTTP server: connections are kept, and everything has a bound."""

import base64
import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.domain.errors import Unauthenticated
from headrace.domain.limits import BODY_BYTES, LAMBDA_BYTES
from headrace.local.gateway import Event, InvocationContext
from headrace.local.server import MAX_BODY_BYTES, Bounds
from tests.serving import Served, assert_refused, serving, until_end


@pytest.fixture
def served() -> Iterator[Served]:
    with serving() as running:
        yield running


class TestServer:
    @pytest.mark.parametrize("size", [MAX_BODY_BYTES + 1, 10**15])
    def test_a_body_over_the_limit_is_refused_by_its_length(
        self, served: Served, size: int
    ) -> None:
        answer = served.raw(b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)

        assert_refused(answer, 413, "payload_too_large")
        assert served.handler.events == []

    @pytest.mark.parametrize("chunk", [1024 * 1024])
    def test_a_chunked_body_over_the_limit_is_refused(self, served: Served, chunk: int) -> None:
        connection = served.connect()
        chunks = iter([b"x" * chunk] * (20 * 1024 * 1024 // chunk))

        connection.request("POST", "/v1/x", body=chunks, encode_chunked=True)

        response = connection.getresponse()
        assert response.status == 413
        assert json.loads(response.read())["code"] == "payload_too_large"
        assert served.handler.events == []
        connection.close()

    def test_the_largest_body_is_taken(self, served: Served) -> None:
        connection = served.connect()

        connection.request("POST", "/v1/x", body=b"x" * MAX_BODY_BYTES)

        assert connection.getresponse().status == 200
        (event,) = served.handler.events
        assert len(base64.b64decode(event["body"])) == MAX_BODY_BYTES
        assert MAX_BODY_BYTES > BODY_BYTES  # the API's own refusal names the field
        assert LAMBDA_BYTES - 200_000 < len(json.dumps(event)) < LAMBDA_BYTES
        connection.close()


class WaitingHandler:
    """A handler that answers when it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.leave = threading.Event()

    def __call__(self, event: Event, _context: InvocationContext) -> dict[str, Any]:
        if event["path"] != "/v1/quick":
            self.entered.release()
            self.leave.wait(10)
        return {"statusCode": 200, "body": "finished"}


class TestManyConnections:
    def test_those_that_wait_for_ends_leave_workers_their_threads_and_connections(self) -> None:
        handler = WaitingHandler()
        with serving(handler, bounds=Bounds(connections=80)) as served:
            waiting = [served.connect() for _ in range(21)]
            for number, connection in enumerate(waiting):
                connection.request("GET", "/v1/tasks/a?wait_seconds=20")
                if number < 20:  # a quarter of all
                    handler.entered.acquire(timeout=10)

            refused = waiting[20].getresponse()
            assert refused.status == 503
            assert b"20 requests wait for the end of a task already" in refused.read()
            workers = [served.connect() for _ in range(40)]  # more than there are threads
            for connection in workers:
                connection.request("POST", "/v1/queues/a/dequeue", b'{"wait_seconds": 20}')
                handler.entered.acquire(timeout=10)
            assert get(served, "/v1/quick") == 200
            handler.leave.set()
            for connection in (*waiting[:20], *workers):
                assert connection.getresponse().read() == b"finished"
                connection.close()
            waiting[20].close()

    def test_large_bodies_are_bounded_together(self) -> None:
        handler = WaitingHandler()
        with serving(handler, bounds=Bounds(bodies=2_000_000)) as served:
            first, second = served.connect(), served.connect()
            first.request("POST", "/v1/x", body=b"x" * 900_000)
            handler.entered.acquire(timeout=10)

            second.request("POST", "/v1/x", body=b"x" * 900_000)
            refused = second.getresponse()
            assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
            handler.leave.set()
            assert first.getresponse().status == 200
            third = served.connect()
            third.request("POST", "/v1/x", body=b"x" * 900_000)
            assert third.getresponse().status == 200, "what was answered is not counted any more"
            for connection in (first, second, third):
                connection.close()

    @pytest.mark.parametrize(
        "head", [b"Content-Length: 4000000", b"Transfer-Encoding: chunked"], ids=["long", "chunked"]
    )
    @pytest.mark.parametrize("key", [b"", b"Authorization: Bearer wrong\r\n"])
    def test_a_large_body_without_a_valid_key_is_refused_before_it_comes(
        self, head: bytes, key: bytes
    ) -> None:
        def verify(presented: str) -> None:
            if presented != "right":
                raise Unauthenticated("no such key")

        with serving(verify_key=verify) as served:
            request = b"POST /v1/x HTTP/1.1\r\nHost: x\r\n" + key + head + b"\r\n\r\n"
            assert_refused(served.raw(request), 401, "unauthenticated")

            connection = served.connect()
            headers = {"Authorization": "Bearer right"}
            connection.request("POST", "/v1/x", body=b"x" * 100_000, headers=headers)
            assert connection.getresponse().read() == b"fine"
            connection.request("POST", "/v1/x", body=b"{}")
            assert connection.getresponse().read() == b"fine", "the API refuses small ones"
            connection.close()


class TestSlowClients:
    """Their seconds are a hundredth of ours."""

    @pytest.fixture
    def served(self) -> Iterator[Served]:
        with serving(clock=lambda: time.monotonic() * 100) as running:
            yield running

    @pytest.mark.parametrize("begun", [b"G", b"GET /v1/x HTTP/1.1\r\nHost: x\r\n"])
    def test_a_head_has_five_seconds(self, served: Served, begun: bytes) -> None:
        assert_refused(served.raw(begun), 408, "invalid_request")

    def test_a_body_has_a_minute(self, served: Served) -> None:
        with served.open() as connection:
            connection.sendall(b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n")
            drip(connection, b"x")
            assert_refused(until_end(connection), 408, "invalid_request")
        assert served.handler.events == []


def drip(connection: socket.socket, drop: bytes) -> None:
    """Send *drop* again and again until something comes back."""
    connection.settimeout(0.02)
    while True:
        with contextlib.suppress(TimeoutError):
            connection.recv(1, socket.MSG_PEEK)
            break
        connection.sendall(drop)
    connection.settimeout(10)


def get(served: Served, path: str = "/v1/x") -> int:
    connection = served.connect()
    connection.request("GET", path)
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status
