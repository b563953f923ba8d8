"""The registry of workers over HTTP."""

from typing import Any
from urllib.parse import quote

import pytest

from headrace.domain.access import Role
from tests.functional.conftest import Service
from tests.functional.roles import keyed

SIGN: dict[str, Any] = {
    "queues": ["mail", "news"],
    "concurrency": 8,
    "running": ["tsk_1"],
    "version": "1.4.2",
    "started_at": "2026-11-21T07:00:00.000000Z",
}
ADA = "/v1/workers/ada:4711"


def test_the_life_of_a_worker(call: Service) -> None:
    first = call("PUT", ADA, SIGN)
    assert (first.status, first.json) == (200, {"command": None})
    (shown,) = call("GET", "/v1/workers").json["workers"]
    assert shown == {
        "name": "ada:4711",
        **SIGN,
        "seen_at": "2026-11-21T08:00:00.000000Z",
        "command": None,
    }

    requested = call("POST", f"{ADA}/quiet")
    assert (requested.status, requested.json) == (200, {**shown, "command": "quiet"})
    assert call("PUT", ADA, SIGN).json == {"command": "quiet"}
    assert call("POST", f"{ADA}/stop", {}).json["command"] == "stop"
    assert call("POST", f"{ADA}/quiet", {}).json["command"] == "stop"
    assert call("PUT", ADA, SIGN).json == {"command": "stop"}

    again = {**SIGN, "started_at": "2026-11-21T08:00:00.000001Z"}
    assert call("PUT", ADA, again).json == {"command": None}


@pytest.mark.parametrize("name", ["x" * 257, quote("é" * 129), "%ff"])
def test_a_name_that_can_be_none_is_refused(call: Service, name: str) -> None:
    for method, path, body in (
        ("PUT", f"/v1/workers/{name}", SIGN),
        ("POST", f"/v1/workers/{name}/stop", None),
    ):
        answer = call(method, path, body)
        assert (answer.status, answer.fields) == (400, {"name"})


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("queues", [], "queues"),
        ("queues", ["a"] * 101, "queues"),
        ("queues", ["mail", "no good"], "queues[1]"),
        ("queues", "mail", "queues"),
        ("concurrency", 0, "concurrency"),
        ("concurrency", 10_001, "concurrency"),
        ("concurrency", "8", "concurrency"),
        ("running", ["a"] * 101, "running"),
        ("running", ["a", "b c"], "running[1]"),
        ("running", None, "running"),
        ("version", "é" * 33, "version"),
        ("version", 1.4, "version"),
        ("started_at", "yesterday", "started_at"),
        ("stopped", "yes", "stopped"),
        ("command", "stop", "command"),
        ("seen_at", "2026-11-21T08:00:00Z", "seen_at"),
    ],
)
def test_a_bad_sign_of_life_is_refused_by_name(
    call: Service, field: str, value: Any, named: str
) -> None:
    answer = call("PUT", ADA, {**SIGN, field: value})

    assert (answer.status, answer.json["code"]) == (400, "invalid_request")
    assert answer.fields == {named}
    assert call("GET", "/v1/workers").json["workers"] == []


def test_a_sign_of_life_names_its_queues(call: Service) -> None:
    body = {name: value for name, value in SIGN.items() if name != "queues"}

    assert call("PUT", ADA, body).fields == {"queues"}


def test_the_largest_sign_of_life_is_taken(call: Service) -> None:
    body = {
        **SIGN,
        "queues": [f"q{number:0127d}" for number in range(100)],
        "running": [f"t{number:063d}" for number in range(100)],
        "concurrency": 10_000,
        "version": "x" * 64,
    }

    assert call("PUT", f"/v1/workers/{'w' * 256}", body).status == 200


def test_workers_are_listed_in_pages(call: Service) -> None:
    for name in ("b", "a", "c"):
        call("PUT", f"/v1/workers/{name}", SIGN)

    first = call("GET", "/v1/workers", query={"limit": "2"}).json
    last = call("GET", "/v1/workers", query={"limit": "2", "cursor": first["cursor"]}).json

    assert [worker["name"] for worker in first["workers"]] == ["a", "b"]
    assert ([worker["name"] for worker in last["workers"]], last["cursor"]) == (["c"], None)
    assert call("GET", "/v1/workers", query={"cursor": "x"}).fields == {"cursor"}
    assert call("GET", "/v1/workers", query={"limit": "251"}).fields == {"limit"}


def test_keys_for_some_queues_stay_inside(call: Service) -> None:
    worker = keyed(call, Role.WORKER, "mail")
    outside = worker("PUT", ADA, SIGN)
    assert (outside.status, outside.fields) == (403, {"queues[1]"})
    assert worker("PUT", "/v1/workers/mine", {**SIGN, "queues": ["mail"]}).status == 200
    call("PUT", ADA, SIGN)
    over = worker("PUT", ADA, {**SIGN, "queues": ["mail"]})
    assert (over.status, over.json["code"]) == (403, "forbidden")

    viewer = keyed(call, Role.VIEWER, "mail")
    shared, own = viewer("GET", "/v1/workers").json["workers"]
    assert (shared["name"], shared["queues"], shared["running"]) == ("ada:4711", ["mail"], None)
    assert (own["name"], own["queues"], own["running"]) == ("mine", ["mail"], ["tsk_1"])
    assert keyed(call, Role.VIEWER, "web")("GET", "/v1/workers").json["workers"] == []

    operator = keyed(call, Role.OPERATOR, "mail")
    assert operator("POST", "/v1/workers/mine/stop").status == 200
    assert operator("POST", f"{ADA}/stop").status == 403
    assert operator("POST", "/v1/workers/nobody/stop").status == 403
    assert call("PUT", ADA, SIGN).json == {"command": None}
    (entry,) = operator("GET", "/v1/audit").json["entries"]
    assert (entry["action"], entry["queue"], entry["ids"]) == ("stop_worker", "mail", ["mine"])
