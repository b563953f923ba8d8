"""The gateway behind its HTTP server: connections are kept, and everything has a bound."""

import base64
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from headrace.domain.limits import BODY_BYTES, LAMBDA_BYTES
from infra.local.gateway import Gateway
from infra.local.lambdas import Event, LambdaContext
from infra.local.server import MAX_BODY_BYTES, MAX_HEADER_BYTES, listen
from tests.fake_handler import ROUTES, FakeHandler


@dataclass
class Served:
    """A gateway behind its real server."""

    port: int
    handler: FakeHandler

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)

    def raw(self, request: bytes) -> bytes:
        """Send bytes and return everything that comes until the server hangs up."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            connection.sendall(request)
            return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.fixture
def served() -> Iterator[Served]:
    handler = FakeHandler()
    server = listen(Gateway(ROUTES, {"api.handler": handler}), "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve)
    thread.start()
    yield Served(server.bind_addr[1], handler)
    server.stop()
    thread.join()


class TestServer:
    def test_one_connection_serves_many_requests(self, served: Served) -> None:
        connection = served.connect()
        for number in range(3):
            connection.request("POST", f"/v1/x?n={number}", body=b"{}")
            assert connection.getresponse().read() == b"fine"

        assert len(served.handler.events) == 3
        connection.close()

    def test_a_chunked_body_arrives_whole(self, served: Served) -> None:
        connection = served.connect()
        for _ in range(2):
            connection.request("POST", "/v1/x", body=iter([b"one, ", b"two"]), encode_chunked=True)
            assert connection.getresponse().read() == b"fine"

        bodies = [base64.b64decode(event["body"]) for event in served.handler.events]
        assert bodies == [b"one, two"] * 2
        connection.close()

    def test_clients_that_have_sent_chunks_and_idle_hold_no_thread(self, served: Served) -> None:
        idle = [served.connect() for _ in range(40)]  # more than there are threads
        for connection in idle:
            connection.request("POST", "/v1/x", body=iter([b"a"]), encode_chunked=True)
            assert connection.getresponse().read() == b"fine"

        for connection in idle:
            connection.close()

    @pytest.mark.parametrize("size", [MAX_BODY_BYTES + 1, 20 * 1024 * 1024, 10**15])
    def test_a_body_over_the_limit_is_refused_by_its_length(
        self, served: Served, size: int
    ) -> None:
        answer = served.raw(b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)

        assert_refused(answer, 413, "payload_too_large")
        assert served.handler.events == []

    def test_the_refusal_arrives_although_the_client_goes_on_sending(self, served: Served) -> None:
        connection = served.connect()

        connection.request("POST", "/v1/x", body=b"x" * (20 * 1024 * 1024))

        response = connection.getresponse()
        assert response.status == 413
        assert json.loads(response.read())["code"] == "payload_too_large"
        connection.close()

    @pytest.mark.parametrize("chunk", [1024 * 1024, 20 * 1024 * 1024])
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

    @pytest.mark.parametrize(
        "request_",
        [
            b"NONSENSE\r\n\r\n",
            b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
            b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n",
            b"POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        ],
    )
    def test_broken_http_is_a_400_in_our_shape(self, served: Served, request_: bytes) -> None:
        assert_refused(served.raw(request_), 400, "invalid_request")
        assert served.handler.events == []

    def test_headers_have_a_limit(self, served: Served) -> None:
        headers = b"X-Long: " + b"x" * MAX_HEADER_BYTES
        answer = served.raw(b"GET /v1/x HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n\r\n")

        assert_refused(answer, 413, "payload_too_large")

    def test_a_request_under_way_is_finished_when_the_server_stops(self) -> None:
        entered, leave = threading.Event(), threading.Event()

        def slow(_event: Event, _context: LambdaContext) -> dict[str, Any]:
            entered.set()
            leave.wait(10)
            return {"statusCode": 200, "body": "finished"}

        server = listen(Gateway(ROUTES, {"api.handler": slow}), "127.0.0.1", 0)
        threads = [threading.Thread(target=server.serve), threading.Thread(target=server.stop)]
        threads[0].start()
        connection = http.client.HTTPConnection("127.0.0.1", server.bind_addr[1], timeout=10)
        connection.request("GET", "/v1/x")
        entered.wait(10)

        threads[1].start()
        leave.set()

        assert connection.getresponse().read() == b"finished"
        connection.close()
        for thread in threads:
            thread.join(10)


def assert_refused(answer: bytes, status: int, code: str) -> None:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"Content-Type: application/problem+json" in head
    assert json.loads(body)["code"] == code
    assert json.loads(body)["status"] == status
