"""Every error has one shape, its own status, and nothing in it that helps an attacker."""

import json
from typing import Any

from headrace.http.problems import invalid, is_expected, problem


def text(error: Exception) -> str:
    return problem(error, request_id="req-1").text()


def body(error: Exception) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(text(error))
    return loaded


def wrong(location: tuple[str | int, ...], kind: str = "missing", **context: Any) -> dict[str, Any]:
    return {"loc": ("body", *location), "type": kind, "msg": "Bad", "ctx": context}


def test_what_nobody_foresaw_tells_nothing_but_the_request_id() -> None:
    error = ZeroDivisionError("secret in a traceback")

    shown = body(error)

    assert (shown["status"], shown["code"]) == (500, "internal_error")
    assert shown["request_id"] == "req-1"
    assert "secret" not in text(error)
    assert not is_expected(error)


def test_an_answer_is_bounded_whatever_was_sent() -> None:
    error = invalid([wrong(("x" * 100_000,))] * 1000)

    assert len(text(error)) < 100_000
    assert len(body(error)["errors"]) == 100
