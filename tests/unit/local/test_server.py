"""The limits of the local service: sizes, times, threads, and requests at the same time."""

import http.client
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.domain.errors import Unauthenticated
from headrace.domain.limits import BODY_BYTES
from headrace.http.request import Reply, Request
from headrace.local import asgi
from headrace.local.app import Bounds
from headrace.local.asgi import MAX_BODY_BYTES
from headrace.local.server import LimitedProtocol
from tests.serving import Served, assert_refused, serving, until_end
from tests.waiting import until


@pytest.fixture
def served() -> Iterator[Served]:
    with serving() as running:
        yield running


class TestBodies:
    @pytest.mark.parametrize("size", [MAX_BODY_BYTES + 1, 10**15])
    def test_a_body_over_the_limit_is_refused_by_its_length(
        self, served: Served, size: int
    ) -> None:
        answer = served.raw(b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)

        assert_refused(answer, 413, "payload_too_large")
        assert served.api.requests == []

    def test_a_chunked_body_over_the_limit_is_refused(self, served: Served) -> None:
        connection = served.connect()
        chunks = iter([b"x" * 1024 * 1024] * 20)

        connection.request("POST", "/v1/x", body=chunks, encode_chunked=True, headers=KEY)

        response = connection.getresponse()
        assert response.status == 413
        assert json.loads(response.read())["code"] == "payload_too_large"
        assert served.api.requests == []
        connection.close()

    def test_the_largest_body_is_taken(self, served: Served) -> None:
        connection = served.connect()

        connection.request("POST", "/v1/x", body=b"x" * MAX_BODY_BYTES, headers=KEY)

        assert connection.getresponse().status == 200
        (request,) = served.api.requests
        assert len(request.body) == MAX_BODY_BYTES
        assert MAX_BODY_BYTES > BODY_BYTES  # the API's own refusal names the field
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
            assert ask(connection, b"x" * 100_000, {"Authorization": "Bearer right"}) == 200
            assert ask(connection, b"{}", {}) == 200, "the API itself refuses small bodies"
            connection.close()


KEY = {"Authorization": "Bearer any"}


class WaitingApi:
    """Answers only when the test allows it."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.leave = threading.Event()

    def __call__(self, request: Request) -> Reply:
        if request.path != "/v1/quick":
            self.entered.release()
            self.leave.wait(10)
        return Reply("finished")


class TestManyConnections:
    def test_requests_that_wait_leave_the_threads_to_others(self) -> None:
        api = WaitingApi()
        with serving(api, bounds=Bounds(threads=2, dequeues=40, ends=20)) as served:
            waiting = [served.connect() for _ in range(21)]
            for number, connection in enumerate(waiting):
                name = ("wait_seconds", "wait%5Fseconds")[number % 2]
                connection.request("GET", f"/v1/tasks/a?{name}=20")
                if number < 20:
                    api.entered.acquire(timeout=10)

            refused = waiting[20].getresponse()
            assert refused.status == 503
            assert b"20 requests wait for the end of a task already" in refused.read()
            workers = [served.connect() for _ in range(40)]
            for connection in workers:
                connection.request("POST", "/v1/queues/a/dequeue", b'{"wait_seconds": 20}')
                api.entered.acquire(timeout=10)
            quick = served.connect()
            quick.request("GET", "/v1/quick")
            assert quick.getresponse().read() == b"finished"
            api.leave.set()
            for connection in (*waiting[:20], *workers):
                assert connection.getresponse().read() == b"finished"
                connection.close()
            for connection in (quick, waiting[20]):
                connection.close()

    def test_a_connection_over_the_limit_is_refused_until_another_one_ends(self) -> None:
        class TwoConnections(LimitedProtocol):
            most_connections = 2

        with serving(protocol=TwoConnections) as served:
            idle = [served.connect() for _ in range(2)]
            assert [ask(connection, b"{}", KEY) for connection in idle] == [200, 200]
            request = b"GET /v1/x HTTP/1.1\r\nHost: x\r\n\r\n"
            assert_refused(served.raw(request), 503, "unavailable")
            idle[0].close()
            request = request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
            until(lambda: served.raw(request).startswith(b"HTTP/1.1 200 "), 10)
            idle[1].close()

    def test_large_bodies_are_limited_together(self) -> None:
        api = WaitingApi()
        with serving(api, bounds=Bounds(bodies=1_000_000)) as served:
            first, second = served.connect(), served.connect()
            first.request("POST", "/v1/x", body=b"x" * 900_000, headers=KEY)
            api.entered.acquire(timeout=10)

            second.request("POST", "/v1/x", body=b"x" * 900_000, headers=KEY)
            refused = second.getresponse()
            assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
            api.leave.set()
            assert first.getresponse().status == 200
            third = served.connect()
            assert ask(third, b"x" * 900_000, KEY) == 200
            for connection in (first, second, third):
                connection.close()


class TestSlowClients:
    @pytest.mark.parametrize("begun", [b"G", b"GET /v1/x HTTP/1.1\r\nHost: x\r\n"])
    def test_a_head_has_a_time_limit(self, begun: bytes) -> None:
        class Impatient(LimitedProtocol):
            head_seconds = 0.1

        with serving(protocol=Impatient) as served:
            assert_refused(served.raw(begun), 408, "invalid_request")

    def test_a_body_has_a_time_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(asgi, "BODY_SECONDS", 0.1)
        with serving() as served, served.open() as connection:
            connection.sendall(b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\nx")
            assert_refused(until_end(connection), 408, "invalid_request")
            assert served.api.requests == []


def ask(connection: http.client.HTTPConnection, body: bytes, headers: dict[str, Any]) -> int:
    connection.request("POST", "/v1/x", body=body, headers=headers)
    response = connection.getresponse()
    response.read()
    return response.status


def test_a_client_that_waits_for_100_continue_gets_it(served: Served) -> None:
    with served.open() as connection:
        connection.sendall(
            b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
        )
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"{}")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 OK\r\n")
