"""The gateway gives a handler what API Gateway would, and takes what API Gateway would."""

import base64
import json
import re
from dataclasses import dataclass
from typing import Any

import pytest

from headrace.local.gateway import Gateway, InvocationContext, ShortWay
from headrace.local.requests import LocalRequest, WaitsFor
from headrace.local.tables import load_template, routes
from headrace.runtime.function import ALWAYS
from tests.fake_handler import API, ROUTES, FakeHandler


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
    lines = tuple((name.lower(), value) for name, value in (headers or {}).items())
    gateway = Gateway(ROUTES, {"api.handler": handler})
    answer = gateway(LocalRequest(method, target, lines, body, source="127.0.0.9", port=8080))
    for header in ALWAYS.items():  # whoever answers
        assert answer.headers.count(header) == 1
    return Response(answer.status, answer.headers, answer.body)


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
        assert base64.b64decode(event["body"]).decode() == '{"ü": 1}'
        assert event["isBase64Encoded"] is True
        context = event["requestContext"]
        assert context["resourcePath"] == "/v1/{proxy+}"
        assert context["httpMethod"] == "POST"
        assert context["path"] == "/v1/queues/a/tasks"
        assert context["stage"] == "local"
        assert context["identity"]["sourceIp"] == "127.0.0.9"
        assert context["requestTimeEpoch"] > 1_600_000_000_000
        assert context["requestId"] == handler.contexts[0].aws_request_id

    def test_a_header_sent_twice_is_one_list(self) -> None:
        handler = FakeHandler()
        gateway = Gateway(ROUTES, {"api.handler": handler})
        lines = (("accept", "a"), ("cookie", "a=1"), ("accept", "b"), ("cookie", "b=2"))
        gateway(LocalRequest("GET", "/v1/x", lines, source="::1"))

        (event,) = handler.events
        assert event["headers"]["Accept"] == "a, b"
        assert event["headers"]["Cookie"] == "a=1; b=2"
        assert event["headers"]["X-Forwarded-For"] == "::1"

    @pytest.mark.parametrize("name", ["http://there:80", "HTTPS://there"])
    def test_a_target_may_name_the_host(self, name: str) -> None:
        handler = FakeHandler()

        call(handler, "GET", f"{name}/v1/x?y=http://z")

        (event,) = handler.events
        assert event["path"] == "/v1/x"
        assert event["queryStringParameters"] == {"y": "http://z"}

    def test_what_is_absent_is_null(self) -> None:
        handler = FakeHandler()

        call(handler, "GET", "/v2/things/special")

        (event,) = handler.events
        assert event["body"] is None
        assert event["isBase64Encoded"] is False
        assert event["queryStringParameters"] is None
        assert event["multiValueQueryStringParameters"] is None
        assert event["pathParameters"] is None

    def test_a_body_that_is_no_text_arrives_as_it_is(self) -> None:
        handler = FakeHandler()

        call(handler, "POST", "/v1/x", body=b"\xff\x00")

        (event,) = handler.events
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
        assert InvocationContext(API, lambda: True).get_remaining_time_in_millis() == 0

    @pytest.mark.parametrize("target", ["/", ""])
    @pytest.mark.parametrize("method", ["GET", "HEAD"])
    def test_the_bare_address_leads_to_the_console(self, method: str, target: str) -> None:
        answer = call(FakeHandler(), method, target)

        assert (answer.status, dict(answer.headers)["Location"]) == (303, "/console/")

    def test_nothing_is_sent_to_the_bare_address(self) -> None:
        assert call(FakeHandler(), "POST", "/").problem["code"] == "not_found"


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

    @pytest.mark.parametrize("end", ["", "/"])
    def test_each_path_of_the_template_is_told_from_all_others(self, end: str) -> None:
        found = routes(load_template())
        handler = FakeHandler()
        gateway = Gateway(found, {route.function.handler: handler for route in found})

        for route in found:
            names = re.findall(r"\{(\w+)\}", route.path)
            path = re.sub(r"\{\w+\}", "a%2Fb", route.path).replace("{", "").replace("+}", "/x")
            gateway(LocalRequest("GET" if route.method == "ANY" else route.method, path + end))
            event = handler.events.pop()
            given = event["pathParameters"] or {}
            assert event["resource"] == route.path
            assert {name: given[name] for name in names} == dict.fromkeys(names, "a/b")
            assert len(given) == route.path.count("{")

    @pytest.mark.parametrize(
        ("method", "target"),
        [
            ("POST", "/"),
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
        assert dict(response.headers)["X-Consumed-Units"] == "w=0, r=0"
        assert dict(response.headers)["X-Request-Id"]
        assert response.problem["errors"] == []
        assert handler.events == []

    def test_head_asks_what_get_asks(self) -> None:
        handler = FakeHandler()

        assert call(handler, "HEAD", "/v2/things/a").status == 200
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

    @pytest.mark.parametrize(
        ("target", "body", "waits"),
        [
            ("/v1/queues/a/dequeue", b'{"wait_seconds": 20}', WaitsFor.TASKS),
            ("/v1/queues/a/dequeue?x", b'{"wait\\u005fseconds": 20}', WaitsFor.TASKS),
            ("/v1/dequeue", b'{"queues": ["a"], "wait_seconds": 1}', WaitsFor.TASKS),
            ("/v1/queues/a/dequeue/", b'{"wait_seconds": 20}', WaitsFor.TASKS),
            # it may leave others theirs
            ("/v1/queues/a/dequeue", b'{"worker": "w"}', WaitsFor.TASKS),
            ("/v1/queues/a/dequeue", b"{}", None),
            ("/v1/queues/a/tasks", b'{"tasks": [{"payload": {"wait_seconds": 1}}]}', None),
        ],
    )
    def test_who_asks_to_wait_is_known_before_the_handler_is_called(
        self, target: str, body: bytes, waits: WaitsFor | None
    ) -> None:
        gateway = Gateway(ROUTES, {"api.handler": FakeHandler()})

        assert gateway.may_wait(LocalRequest("POST", target, body=body)) is waits

    @pytest.mark.parametrize(
        ("method", "target", "waits"),
        [
            ("GET", "/v1/tasks/a?wait_seconds=20", WaitsFor.AN_END),
            ("HEAD", "/v1/tasks/a/?payload=false&wait_seconds=20", WaitsFor.AN_END),
            ("GET", "/v1/tasks/a?wait%5Fseconds=20", WaitsFor.AN_END),
            ("GET", "/v1/tasks/a?payload=false", None),
            ("GET", "/v1/tasks/a", None),
            ("GET", "/v1/tasks/a/explain?wait_seconds=20", None),
            ("DELETE", "/v1/tasks/a?wait_seconds=20", None),
        ],
    )
    def test_so_is_who_waits_for_the_end_of_a_task(
        self, method: str, target: str, waits: WaitsFor | None
    ) -> None:
        gateway = Gateway(ROUTES, {"api.handler": FakeHandler()})

        assert gateway.may_wait(LocalRequest(method, target)) is waits


class TestAnswers:
    def test_a_short_way_is_taken_be_it_known_only_later(self) -> None:
        handler = FakeHandler()
        short_ways: dict[str, ShortWay] = {}
        gateway = Gateway(ROUTES, {"api.handler": handler}, short_ways=short_ways)
        short_ways["api.handler"] = lambda event, _: (201, {"X-Path": event["path"]}, "größer")

        answer = gateway(LocalRequest("GET", "/v1/x"))

        assert (answer.status, answer.headers) == (201, [("X-Path", "/v1/x")])
        assert answer.body == "größer".encode()
        assert handler.events == []

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
        assert sorted({*response.headers} - {*ALWAYS.items()}) == [
            ("X-Number", "7"),
            ("X-One", "1"),
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2"),
        ]

    def test_a_body_in_base64_is_decoded(self) -> None:
        answer = {"statusCode": 200, "body": "/wA=", "isBase64Encoded": True}

        assert call(FakeHandler(answer), "GET", "/v1/x").body == b"\xff\x00"

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
