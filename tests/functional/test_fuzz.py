"""Requests made at random from our own OpenAPI document: no 5xx, and no answer it does not tell of.

They go to the API in this process.  Each example has a
service of its own with a few queues and tasks, and most requests name one of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any
from uuid import uuid4

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import CheckFunction, not_a_server_error
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi import checks as documented

from headrace.http.app import TABLE, answer
from headrace.http.openapi import document
from headrace.http.request import Request, query_of
from headrace.runtime.wiring import using
from tests.functional.conftest import KEY, Service, new_service
from tests.invocation import InvocationContext

OPERATIONS = [
    f"{method.upper()} {path}"
    for path, methods in document(TABLE.routes)["paths"].items()
    for method in methods
]
WITH_INPUT = [
    f"{method.upper()} {path}"
    for path, methods in document(TABLE.routes)["paths"].items()
    for method, operation in methods.items()
    if "parameters" in operation or "requestBody" in operation
]
SOME = (
    "POST /v1/queues/{queue}/tasks",
    "POST /v1/queues/{queue}/dequeue",
    "POST /v1/queues/{queue}/reports",
    "GET /v1/queues/{queue}/tasks",
    "GET /v1/tasks/{id}",
    "PUT /v1/queues/{queue}",
)
"""The operations that `make test` has; `make test-slow` has the others."""


def others_slow(labels: list[str]) -> list[Any]:
    assert set(labels).issuperset(SOME)
    return [
        label if label in SOME else pytest.param(label, marks=pytest.mark.slow) for label in labels
    ]


CHECKS: list[CheckFunction] = [
    not_a_server_error,
    documented.status_code_conformance,
    documented.content_type_conformance,
    documented.response_headers_conformance,
    documented.response_schema_conformance,
]
# To look for more: more examples, and without derandomize.
FUZZ = settings(
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def schema() -> BaseSchema:
    """Give the document as Schemathesis reads it, its requests going to the handler."""
    soon = st.datetimes(datetime(2026, 11, 21, 7), datetime(2026, 11, 21, 12))  # noqa: DTZ001  Z is put behind
    ever = st.datetimes(datetime(1970, 1, 1), datetime(9998, 12, 31))  # noqa: DTZ001  likewise
    instants = (soon | ever).map(lambda at: f"{at.isoformat()}Z")
    schemathesis.openapi.format("date-time", instants)
    read = schemathesis.openapi.from_dict(document(TABLE.routes))
    read.app = as_wsgi
    return read


def as_wsgi(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    """Answer a request as Schemathesis sends it in this process."""
    names = {key: key[5:] for key in environ if key.startswith("HTTP_")}
    names |= {key: key for key in ("CONTENT_TYPE", "CONTENT_LENGTH") if environ.get(key)}
    reply = answer(
        Request(
            environ["REQUEST_METHOD"],
            environ["REQUEST_URI"].partition("?")[0],
            id=str(uuid4()),
            context=InvocationContext(),
            headers={name.replace("_", "-").lower(): environ[key] for key, name in names.items()},
            query=query_of(environ["QUERY_STRING"]),
            body=environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)),
        )
    )
    start_response(
        f"{reply.status} {HTTPStatus(reply.status).phrase}",
        [(name, str(value)) for name, value in reply.headers.items()],
    )
    return [reply.text().encode()]


@dataclass(frozen=True)
class FuzzedService:
    """A service with something in it, a report of a task that is held, ids of a key and a lease."""

    service: Service
    held: dict[str, str]
    key_id: str
    lease_id: str


def populated() -> FuzzedService:
    """Return a service with tasks in every state, a schedule and a key."""
    service = new_service()
    service.polls(service.clock.forward)
    service.use.sleep = service.clock.forward
    service.use.waiting.task_ends = None  # who waits for these waits by the real clock
    mail = service.queue("mail")
    service.queue("next")
    service.put(mail, {"n": 1.5}, id="held")
    (held,) = service.take(mail)
    service.put(mail, id="waiting", tags={"a": "1"}, dedupe_key="k")
    service.put(mail, "late", delay_in_seconds=600)
    service.put(mail, "bad")
    (dead,) = (task for task in service.take(mail, 2) if task["id"] != "waiting")
    service.say(dead, "FAILED", retryable=False, error={"type": "T", "message": "m"})
    service.put(service.queue("ngsi.notify"), {"data": [1]}, tags={"fiware-service": "a"})
    assert service("PUT", f"{mail}/schedules/one", {"every_seconds": 60}).status < 300
    made = service("POST", "/v1/keys", {"name": "k", "role": "viewer", "queues": ["*"]})
    sign = {"queues": ["mail"], "started_at": "2026-11-21T08:00:00Z"}
    assert service("PUT", "/v1/workers/one", sign).status == 200
    report = {"task_id": "held", "lease_id": held["lease"]["id"]}
    lease = service("POST", "/v1/leases", {"name": "one"})
    return FuzzedService(service, report, made.json["id"], lease.json["lease"]["id"])


def send(case: Case[Any], there: FuzzedService, checks: list[CheckFunction]) -> None:
    with using(there.service.use):
        response = case.call(headers={"Authorization": f"Bearer {KEY}"})
    case.validate_response(response, checks=checks)


@pytest.mark.parametrize("label", others_slow(OPERATIONS))
def test_requests_are_answered_as_documented(schema: BaseSchema, label: str) -> None:
    method, path = label.split(" ")
    operation = schema[path][method]

    @settings(FUZZ, max_examples=4)
    @given(case=operation.as_strategy(), data=st.data())
    def as_documented(case: Case[Any], data: st.DataObject) -> None:
        there = populated()
        aim(case, data.draw, there)
        send(case, there, CHECKS)

    @settings(FUZZ, max_examples=2)
    @given(case=operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
    def not_as_documented(case: Case[Any]) -> None:
        send(case, populated(), [*CHECKS, documented.negative_data_rejection])

    as_documented()
    if label in WITH_INPUT:
        not_as_documented()


def aim(
    case: Case[Any], draw: Callable[[st.SearchStrategy[Any]], Any], world: FuzzedService
) -> None:
    """Let most requests name something that is there."""
    mostly = st.sampled_from([True, True, True, False])
    there = {
        "queue": st.sampled_from(["mail", "next", "ngsi.notify"]),
        "id": st.sampled_from(["held", "waiting", world.key_id, world.lease_id]),
        "name": st.just("one"),
        "key": st.just("acme"),
    }
    for name in case.path_parameters:
        if draw(mostly):
            case.path_parameters[name] = draw(there[name])
    case.query.pop("cursor", None)
    body: Any = case.body
    if isinstance(body, dict):
        body.pop("cursor", None)
        if "to_queue" in body:
            body["to_queue"] = draw(there["queue"])
        for report in body.get("reports") or ():
            report.update(world.held)
