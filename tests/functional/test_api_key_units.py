"""What a call cost tells a key of its own queues, and nothing of others."""

from typing import Any

import pytest

from headrace.domain.access import Role
from headrace.runtime.wiring import Settings, build
from headrace.store.sqlite import SqliteStore
from tests.functional.conftest import KEY, Service
from tests.functional.roles import ADMIN, OPERATOR, WORKER, keyed
from tests.manual_clock import ManualClock


def service(*, others: int = 0) -> Service:
    """Return a service with one queue and task, and *others* of each kind of another tenant."""
    clock = ManualClock()
    call = Service(clock, build(Settings(admin_key=KEY), SqliteStore(), now=clock))
    call.queue("ngsi.a")
    call.put("/v1/queues/ngsi.a", "mine", id="mine")
    for number in range(others):
        queue = call.queue(f"mail.{number}", description="m" * 1000)
        call.put(queue, *range(3), tags={"a": "b"})
        call.put(queue, LARGE, id=f"other-{number}")
        key = {"name": f"k{number}", "role": "viewer", "queues": [f"mail.{number}"]}
        assert call("POST", "/v1/keys", key).status == 201
        worker = {"queues": ["mail.1"], "concurrency": 1, "running": [], "version": "1"}
        worker["started_at"] = "2026-11-21T08:00:00Z"
        assert call("PUT", f"/v1/workers/w{number}", worker).status == 200
    call.clock.forward(600)  # the workers have long been silent
    return call


LARGE = "x" * 200_000
CALLS: dict[str, tuple[Role, str, str, Any]] = {
    "queues": (ADMIN, "GET", "/v1/queues", None),
    "audit": (OPERATOR, "GET", "/v1/audit", None),
    "a list": (OPERATOR, "GET", "/v1/queues/ngsi.a/tasks", None),
    "deleting a task": (OPERATOR, "DELETE", "/v1/tasks/other-1", None),
    "a report": (
        WORKER,
        "POST",
        "/v1/queues/ngsi.a/reports",
        {"reports": [{"task_id": "other-1", "lease_id": "lse_x", "status": "SUCCEEDED"}]},
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_costs_a_restricted_key_the_same_whatever_others_have(name: str) -> None:
    role, method, path, body = CALLS[name]
    units: dict[str, set[str]] = {"ngsi.*": set(), "*": set()}
    for pattern, reported in units.items():
        for others in (0, 8):
            answer = keyed(service(others=others), role, pattern)(method, path, body)
            reported.add(answer.headers["x-consumed-units"])

    assert len(units["ngsi.*"]) == 1
    if name == "queues":
        assert len(units["*"]) == 2  # a key for all queues sees the true cost


@pytest.mark.parametrize("how", ["enqueue", "spawn"])
def test_an_id_of_another_queues_task_costs_the_same_whatever_its_size(how: str) -> None:
    reported = []
    for payload in ("small", LARGE):
        call = service()
        call.queue("mail")
        call.put("/v1/queues/mail", payload, id="other")
        key = keyed(call, WORKER, "ngsi.*")
        if how == "enqueue":
            body: Any = {"tasks": [{"id": "other"}, {"id": "mine"}]}
            answer = key("POST", "/v1/queues/ngsi.a/tasks", body)
        else:
            call.clock.forward(1)
            (held,) = key.take("/v1/queues/ngsi.a")
            report = {"task_id": held["id"], "lease_id": held["lease"]["id"]}
            child = {"queue": "ngsi.a", "id": "other"}
            body = {"reports": [{**report, "status": "SUCCEEDED", "spawn": [child]}]}
            answer = key("POST", "/v1/queues/ngsi.a/reports", body)
        assert answer.json["results"][0]["outcome"] in ("EXISTING", "OK"), answer.body
        reported.append(answer.headers["x-consumed-units"])

    assert reported[0] == reported[1]
    assert not reported[0].startswith("w=0,")


@pytest.mark.parametrize("route", ["tasks", "count"])
def test_looking_for_ids_by_their_beginning_does_not_show_how_many_others_have(route: str) -> None:
    reported = []
    for others in (0, 3):
        call = service()
        call.queue("mail")
        call.put("/v1/queues/ngsi.a", "mine", id="order-1")
        for number in range(others):
            call.put("/v1/queues/mail", number, id=f"order-2{number}")
        key = keyed(call, OPERATOR, "ngsi.*")
        for query in ("id:order-1", "id:order-2", "id:order-"):
            answer = key("GET", f"/v1/queues/ngsi.a/{route}", query={"query": query})
            assert answer.status == 200, answer.body
            reported.append((query, answer.headers["x-consumed-units"]))

    assert reported[:3] == reported[3:]
