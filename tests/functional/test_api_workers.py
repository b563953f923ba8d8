"""The registry of workers over HTTP."""

from typing import Any

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
