"""A custom domain whose mapping has a base path: API Gateway leaves it in the path."""

import json
from typing import Any

import pytest

from headrace.domain.queue_settings import QueueSettings
from headrace.http.app import handle as handler
from headrace.http.events import proxy_event
from headrace.runtime.service import Service
from headrace.runtime.wiring import Settings, build, using
from headrace.store.sqlite import SqliteStore
from tests.invocation import InvocationContext

KEY = "a-key-for-the-tests"
REQUEST_ID = "b1946ac9-2d9e-4c38-8a5e-5a5f4b6a1b1a"


def _context() -> Any:
    return InvocationContext()


@pytest.fixture
def use() -> Service:
    made = build(Settings(admin_key=KEY), SqliteStore(":memory:"))
    made.queues.create("mail", QueueSettings())
    return made


@pytest.mark.parametrize(
    ("path", "resource", "parameters", "status"),
    [
        ("/tasks/v1/health", "/v1/health", None, 200),
        ("/tasks/v1/queues/mail", "/v1/{proxy+}", {"proxy": "queues/mail"}, 200),
        ("/v1/queues/mail", "/v1/{proxy+}", {"proxy": "queues/mail"}, 200),
        ("/tasks/v1/queues/nobody", "/v1/{proxy+}", {"proxy": "queues/nobody"}, 404),
    ],
)
def test_a_custom_domain_may_have_a_base_path(
    use: Service, path: str, resource: str, parameters: Any, status: int
) -> None:
    event = proxy_event(
        "GET",
        path,
        request_id=REQUEST_ID,
        headers={"Authorization": f"Bearer {KEY}"},
        resource=resource,
        parameters=parameters,
    )
    with using(use):
        answer = handler(event, _context())

    assert answer["statusCode"] == status, answer["body"]
    assert "nothing at" not in answer["body"]


def test_the_document_names_the_base_path(use: Service) -> None:
    path, resource = "/tasks/v1/openapi.json", "/v1/openapi.json"
    event = proxy_event("GET", path, request_id=REQUEST_ID, headers={}, resource=resource)
    with using(use):
        answer = handler(event, _context())

    assert [server["url"] for server in json.loads(answer["body"])["servers"]] == ["/tasks"]
