"""What holds for every request: the key, the headers, errors, health, documents, threads."""

import base64
import hashlib
import re
from dataclasses import replace
from typing import Any

import pytest

from headrace.domain.errors import Unavailable
from headrace.store.sqlite import SqliteStore
from tests.functional.conftest import KEY, REQUEST_ID, Service, new_service


class FailingStore(SqliteStore):
    """A store that raises *error* when it reads."""

    def __init__(self, error: Exception) -> None:
        super().__init__(":memory:")
        self._error = error

    def read(self, *_: Any, **__: Any) -> Any:
        raise self._error

    record = records = read


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/queues", {"name": "mail"}, 201),
        ("POST", "/v1/queues", {}, 400),
        ("POST", "/v1/queues", "x" * 4_194_305, 413),
        ("GET", "/nowhere", None, 404),
    ],
)
def test_every_answer_names_its_request_and_its_cost(
    call: Service, method: str, path: str, body: Any, status: int
) -> None:
    answer = call(method, path, body)

    assert answer.status == status
    assert answer.headers["x-request-id"] == REQUEST_ID
    assert re.fullmatch(r"w=\d+(\.5)?, r=\d+(\.5)?", answer.headers["x-consumed-units"])


def test_a_service_without_a_key_lets_nobody_in(call: Service) -> None:
    closed = call.keyed(None)

    for key in (KEY, "None", ""):
        answer = replace(closed, key=key)("GET", "/v1/queues")
        assert answer.status == 401
    assert "no admin key" in closed("GET", "/v1/queues").json["detail"]
    assert closed("GET", "/v1/health").status == 200


def test_a_body_is_not_read_before_the_key_is_checked(call: Service) -> None:
    stranger = replace(call, key=None)

    assert stranger("POST", "/v1/queues", "x" * 5_000_000).status == 401


def test_a_table_that_is_away_is_a_503() -> None:
    error = Unavailable("the table does not answer", retry_after_seconds=3)
    away = new_service(FailingStore(error))

    made = replace(away, key=f"hr_{'0' * 20}_{'0' * 40}")  # a key that cannot be looked up

    for service, path in ((away, "/v1/health"), (away, "/v1/tasks/a"), (made, "/v1/queues")):
        answer = service("GET", path)
        assert (answer.status, answer.json["code"]) == (503, "unavailable")
        assert answer.headers["retry-after"] == "3"
        assert answer.json["request_id"] == REQUEST_ID


def test_an_unexpected_error_is_logged_with_its_traceback_and_answered_without(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = new_service(FailingStore(ZeroDivisionError("a secret of ours")))

    answer = broken("GET", "/v1/tasks/a")

    assert (answer.status, answer.json["code"]) == (500, "internal_error")
    assert answer.json["request_id"] == answer.headers["x-request-id"] == REQUEST_ID
    assert "secret" not in answer.body
    assert "Traceback" not in answer.body
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError
    assert record.__dict__["request_id"] == REQUEST_ID


def test_the_docs_page_may_show_itself_and_do_nothing_else(call: Service) -> None:
    answer = call("GET", "/v1/docs")

    policy = dict(
        part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; ")
    )
    (style,) = re.findall("<style>(.*?)</style>", answer.body, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy.pop("style-src") == f"'sha256-{digest}'"
    assert set(policy) == {"default-src", "base-uri", "form-action", "frame-ancestors"}
    assert set(policy.values()) == {"'none'"}
    assert not re.search("<script| style=| on[a-z]+=", answer.body)
