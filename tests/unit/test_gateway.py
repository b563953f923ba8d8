"""The gateway gives a handler what API Gateway would, and bounds what it takes from outside."""

import base64
import http.client
import io
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from wsgiref.util import setup_testing_defaults

import pytest

from infra.local.gateway import Gateway
from infra.local.lambdas import Event, LambdaContext
from infra.local.server import MAX_BODY_BYTES, MAX_HEADER_BYTES, listen
from infra.local.tables import Function, Route

API = Function("ApiFunction", "api.handler", timeout_seconds=29, memory_mb=512)
ROUTES = [
    Route("ANY", "/v1/{proxy+}", API),
    Route("GET", "/v2/things/{thing}", API),
    Route("POST", "/v2/things/{thing}", API),
    Route("GET", "/v2/things/special", API),
]


@dataclass
class FakeHandler:
    """Keeps what it is called with, and answers what it is told."""

    answer: Any = field(default_factory=lambda: {"statusCode": 200, "body": "fine"})
    events: list[Event] = field(default_factory=list)
    contexts: list[LambdaContext] = field(default_factory=list)

    def __call__(self, event: Event, context: LambdaContext) -> Any:
        self.events.append(event)
        self.contexts.append(context)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@dataclass
class Response:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def problem(self) -> dict[str, Any]:
        assert dict(self.headers)["Content-Type"] == "application/problem+json"
        loaded: dict[str, Any] = json.loads(self.body)
        return loaded


def call(  # one request, without a socket
    handler: FakeHandler,
    method: str,
    target: str,
    *,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
) -> Response:
    environ: dict[str, Any] = {}
    setup_testing_defaults(environ)
    environ["REQUEST_METHOD"] = method
    environ["REQUEST_URI"] = target
    environ["QUERY_STRING"] = target.partition("?")[2]
    environ["REMOTE_ADDR"] = "127.0.0.9"
    environ["CONTENT_LENGTH"] = str(len(body))
    environ["wsgi.input"] = io.BytesIO(body)
    for name, value in (headers or {}).items():
        key = name.upper().replace("-", "_")
        environ[key if key == "CONTENT_TYPE" else f"HTTP_{key}"] = value
    seen: list[Any] = []
    gateway = Gateway(ROUTES, {"api.handler": handler})
    chunks = gateway(environ, lambda status, lines: seen.extend((status, lines)))
    return Response(int(seen[0].split()[0]), seen[1], b"".join(chunks))


class TestEvents:
    def test_an_event_has_what_api_gateway_sends(self) -> None:
        handler = FakeHandler()

        call(
            handler,
            "POST",
            "/v1/queues/a/tasks?state=DEAD&tag=x&tag=y&empty=",
            body='{"ü": 1}'.encode(),
            headers={"Authorization": "Bearer k", "Content-Type": "application/json"},
        )

        (event,) = handler.events
        assert event["resource"] == "/v1/{proxy+}"
        assert event["path"] == "/v1/queues/a/tasks"
        assert event["httpMethod"] == "POST"
        assert event["pathParameters"] == {"proxy": "queues/a/tasks"}
        assert event["headers"]["Authorization"] == "Bearer k"
        assert event["headers"]["Content-Type"] == "application/json"
        assert event["headers"]["X-Forwarded-For"] == "127.0.0.9"
        assert event["multiValueHeaders"]["Authorization"] == ["Bearer k"]
        assert event["queryStringParameters"] == {"state": "DEAD", "tag": "y", "empty": ""}
        assert event["multiValueQueryStringParameters"] == {
            "state": ["DEAD"],
            "tag": ["x", "y"],
            "empty": [""],
        }
        assert event["stageVariables"] is None
        assert event["body"] == '{"ü": 1}'
        assert event["isBase64Encoded"] is False
        context = event["requestContext"]
        assert context["resourcePath"] == "/v1/{proxy+}"
        assert context["httpMethod"] == "POST"
        assert context["path"] == "/v1/queues/a/tasks"
        assert context["stage"] == "local"
        assert context["identity"]["sourceIp"] == "127.0.0.9"
        assert context["requestTimeEpoch"] > 1_600_000_000_000
        assert context["requestId"] == handler.contexts[0].aws_request_id

    def test_what_is_absent_is_null(self) -> None:
        handler = FakeHandler()

        call(handler, "GET", "/v2/things/special")

        (event,) = handler.events
        assert event["body"] is None
        assert event["queryStringParameters"] is None
        assert event["multiValueQueryStringParameters"] is None
        assert event["pathParameters"] is None

    def test_a_body_that_is_no_text_travels_as_base64(self) -> None:
        handler = FakeHandler()

        call(handler, "POST", "/v1/x", body=b"\xff\x00")

        (event,) = handler.events
        assert event["isBase64Encoded"] is True
        assert base64.b64decode(event["body"]) == b"\xff\x00"

    def test_the_path_stays_encoded_and_its_parameters_do_not(self) -> None:
        handler = FakeHandler()

        call(handler, "GET", "/v2/things/a%2Fb%20c")

        (event,) = handler.events
        assert event["path"] == "/v2/things/a%2Fb%20c"
        assert event["pathParameters"] == {"thing": "a/b c"}

    def test_the_context_tells_function_and_time_left(self) -> None:
        handler = FakeHandler()

        call(handler, "GET", "/v1/x")

        (context,) = handler.contexts
        assert context.function_name == "ApiFunction"
        assert context.memory_limit_in_mb == "512"
        assert context.invoked_function_arn.endswith(":function:ApiFunction")
        assert 28_000 < context.get_remaining_time_in_millis() <= 29_000

    def test_no_time_is_left_once_the_service_stops(self) -> None:
        assert LambdaContext(API, lambda: True).get_remaining_time_in_millis() == 0


class TestRoutes:
    @pytest.mark.parametrize(
        ("target", "resource"),
        [
            ("/v1/queues/a/b", "/v1/{proxy+}"),
            ("/v2/things/special", "/v2/things/special"),
            ("/v2/things/other", "/v2/things/{thing}"),
        ],
    )
    def test_the_most_exact_path_is_taken(self, target: str, resource: str) -> None:
        handler = FakeHandler()

        assert call(handler, "GET", target).status == 200

        assert handler.events[0]["resource"] == resource

    @pytest.mark.parametrize(
        ("method", "target"),
        [
            ("GET", "/"),
            ("GET", "/v1"),
            ("GET", "/v1/"),
            ("GET", "/v2/things/a/b"),
            ("GET", "/v2/thingsXa"),
            ("DELETE", "/v2/things/a"),
        ],
    )
    def test_what_no_route_takes_is_not_found(self, method: str, target: str) -> None:
        handler = FakeHandler()

        response = call(handler, method, target)

        assert response.status == 404
        assert response.problem["code"] == "not_found"
        assert response.problem["status"] == 404
        assert response.problem["errors"] == []
        assert handler.events == []

    def test_head_is_get_without_a_body(self) -> None:
        handler = FakeHandler()

        response = call(handler, "HEAD", "/v2/things/a")

        assert (response.status, response.body) == (200, b"")
        assert dict(response.headers)["Content-Length"] == "4"
        assert handler.events[0]["httpMethod"] == "GET"

    def test_options_names_the_methods(self) -> None:
        response = call(FakeHandler(), "OPTIONS", "/v2/things/a")

        assert (response.status, response.body) == (204, b"")
        assert dict(response.headers)["Allow"] == "GET, OPTIONS, POST"

    def test_a_route_for_any_method_sees_all_of_them(self) -> None:
        handler = FakeHandler()

        for method in ("HEAD", "OPTIONS", "PATCH"):
            call(handler, method, "/v1/x")

        assert [event["httpMethod"] for event in handler.events] == ["HEAD", "OPTIONS", "PATCH"]


class TestAnswers:
    def test_status_headers_and_body_are_the_handlers(self) -> None:
        answer = {
            "statusCode": 201,
            "headers": {"X-One": "1", "Set-Cookie": "left out", "Content-Length": "999"},
            "multiValueHeaders": {"set-cookie": ["a=1", "b=2"], "X-Number": [7]},
            "body": "größer",
        }

        response = call(FakeHandler(answer), "GET", "/v1/x")

        assert response.status == 201
        assert response.body == "größer".encode()
        assert sorted(response.headers) == [
            ("Content-Length", "8"),
            ("X-Number", "7"),
            ("X-One", "1"),
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2"),
        ]

    def test_a_body_in_base64_is_decoded(self) -> None:
        answer = {"statusCode": 200, "body": "/wA=", "isBase64Encoded": True}

        assert call(FakeHandler(answer), "GET", "/v1/x").body == b"\xff\x00"

    def test_no_content_has_no_body_and_no_length(self) -> None:
        response = call(FakeHandler({"statusCode": 204, "body": ""}), "DELETE", "/v1/x")

        assert (response.status, response.body, response.headers) == (204, b"", [])

    @pytest.mark.parametrize(
        "answer",
        [
            RuntimeError("the secret reason"),
            None,
            "text",
            {"body": "no status"},
            {"statusCode": 200, "headers": {"X": "two\r\nlines: the secret reason"}},
            {"statusCode": 200, "body": "%%", "isBase64Encoded": True},
        ],
    )
    def test_a_handler_that_fails_is_a_500_whose_reason_is_only_logged(
        self, answer: object, caplog: pytest.LogCaptureFixture
    ) -> None:
        response = call(FakeHandler(answer), "GET", "/v1/x")

        assert response.status == 500
        assert response.problem["code"] == "internal_error"
        assert b"secret" not in response.body
        assert b"Traceback" not in response.body
        assert response.problem["request_id"] in caplog.text
        assert "Traceback" in caplog.text


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

        assert [event["body"] for event in served.handler.events] == ["one, two"] * 2
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
        assert len(served.handler.events[0]["body"]) == MAX_BODY_BYTES
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
