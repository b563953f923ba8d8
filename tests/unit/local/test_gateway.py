"""The gateway gives a handler what API Gateway would, and takes what API Gateway would."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from headrace.local.gateway import Gateway
from headrace.local.requests import LocalRequest
from headrace.runtime.function import ALWAYS
from tests.fake_handler import ROUTES, FakeHandler


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
    def test_the_path_stays_encoded_and_its_parameters_do_not(self) -> None:
        handler = FakeHandler()

        call(handler, "GET", "/v2/things/a%2Fb%20c")

        (event,) = handler.events
        assert event["path"] == "/v2/things/a%2Fb%20c"
        assert event["pathParameters"] == {"thing": "a/b c"}

    @pytest.mark.parametrize("target", ["/", ""])
    @pytest.mark.parametrize("method", ["GET", "HEAD"])
    def test_the_bare_address_leads_to_the_console(self, method: str, target: str) -> None:
        answer = call(FakeHandler(), method, target)

        assert (answer.status, dict(answer.headers)["Location"]) == (303, "/console/")


class TestRoutes:
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


class TestAnswers:
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
