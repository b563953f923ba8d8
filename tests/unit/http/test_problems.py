"""Every error has one shape, its own status, and nothing in it that helps an attacker."""

import json
from typing import Any

import pytest
from aws_lambda_powertools.event_handler.openapi.exceptions import RequestValidationError

from headrace.domain import errors
from headrace.domain.errors import HeadraceError
from headrace.http.problems import ProblemAnswer, is_ours, problem


def answer(error: Exception) -> ProblemAnswer:
    return problem(error, request_id="req-1", where="GET /v1/nowhere")


def body(error: Exception) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(answer(error).body)
    return loaded


def wrong(location: tuple[str | int, ...], kind: str = "missing", **context: Any) -> dict[str, Any]:
    return {"loc": ("body", *location), "type": kind, "msg": "Bad", "ctx": context}


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.InvalidRequest("x"), 400, "invalid_request"),
        (errors.PayloadTooLarge("x"), 413, "payload_too_large"),
        (errors.Forbidden("x"), 403, "forbidden"),
        (errors.VersionMismatch("x"), 409, "version_mismatch"),
        (errors.LeaseLost("x"), 409, "lease_lost"),
        (errors.Unavailable("x"), 503, "unavailable"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_each_error_of_ours_has_its_status_and_code(
    error: HeadraceError, status: int, code: str
) -> None:
    shown = body(error)

    assert answer(error).status == shown["status"] == status
    assert shown["code"] == code
    assert shown["detail"] == "x"
    assert set(shown) - {"request_id"} == {"type", "title", "status", "code", "detail", "errors"}
    assert is_ours(error)


def test_what_nobody_foresaw_tells_nothing_but_the_request_id() -> None:
    error = ZeroDivisionError("secret in a traceback")

    shown = body(error)

    assert (shown["status"], shown["code"]) == (500, "internal_error")
    assert shown["request_id"] == "req-1"
    assert "secret" not in answer(error).body
    assert not is_ours(error)


def test_validation_errors_become_paths_and_plain_words() -> None:
    shown = body(
        RequestValidationError(
            [
                wrong(("tasks", 3, "delay_in_seconds"), "greater_than_equal", ge=0.0),
                wrong(("tasks", 3, "tags", "a")),
                wrong(()),
            ]
        )
    )

    assert shown["status"] == 400
    assert shown["detail"] == "tasks[3].delay_in_seconds must be at least 0, and 2 more"
    assert shown["errors"] == [
        {"field": "tasks[3].delay_in_seconds", "message": "must be at least 0"},
        {"field": "tasks[3].tags.a", "message": "is required"},
        {"field": "body", "message": "is required"},
    ]


def test_an_answer_is_bounded_whatever_was_sent() -> None:
    error = RequestValidationError([wrong(("x" * 100_000,))] * 1000)

    assert len(answer(error).body) < 100_000
    assert len(body(error)["errors"]) == 100


def test_names_with_half_a_surrogate_pair_can_be_answered() -> None:
    error = RequestValidationError([wrong(("\ud800",))])

    assert answer(error).body.encode()
