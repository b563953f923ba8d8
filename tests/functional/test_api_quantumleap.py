"""QuantumLeap's management API: its shapes, and exactly the notifications that are meant."""

import json
from typing import Any

import pytest

from tests.functional.conftest import Answer, Service

PATH = "/management/queue/notifications"
ENTITY = '{"id": "Room:1", "type": "Room", "temperature": {"value": 23.30, "type": "Number"}}'
ENTITIES = f"[{ENTITY}, 1e5]"


def notify(call: Service, body: Any = None, **headers: str) -> None:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    assert call("POST", "/v2/notify", body or f'{{"data": {ENTITIES}}}', sent).status == 200


def look(call: Service, part: str = "", status: str | None = None, **headers: str) -> Answer:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = call("GET", PATH + part, None, sent, {"taskStatus": status} if status else None)
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"] == "application/json"
    return answer


@pytest.fixture
def path(call: Service) -> str:
    """Give the queue with one notification of every kind, in three tenants' paths."""
    path = call.queue("ngsi.notify", retry_strategy={"kind": "fixed", "max_retries": 3})
    notify(call, Fiware_Service="x", Fiware_ServicePath="/ab")
    (done,) = call.take(path)
    call.say(done, "SUCCEEDED")
    notify(call, Fiware_Service="x", Fiware_ServicePath="/abc")
    (dead,) = call.take(path)
    call.say(dead, "FAILED", retryable=False, error={"type": "ValueError", "message": "no id"})
    notify(call, Fiware_Service="x", Fiware_ServicePath="/abcdef", Fiware_Correlator="c-1")
    call.take(path)
    notify(call, Fiware_Service="x", Fiware_ServicePath="/ab")
    notify(call)
    return path


def test_a_notification_is_shown_as_quantumleap_shows_it(call: Service, path: str) -> None:
    (shown,) = look(call, Fiware_Correlator="c-1").json
    (task,) = call("GET", f"{path}/tasks", query={"state": "INFLIGHT"}).json["tasks"]

    assert shown == {
        "runtime": {
            "task_id": task["id"],
            "task_type": "ngsi.notify",
            "status": "pending",
            "retries_left": 3,
            "errors": [],
        },
        "input": {
            "fiware_service": "x",
            "fiware_service_path": "/abcdef",
            "fiware_correlator": "c-1",
            "payload": json.loads(ENTITIES),
        },
    }


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (None, ["pending", "pending", "pending", "failed", "succeeded"]),
        ("failed", ["failed"]),
    ],
)
def test_list_summary_and_count_agree_on_a_status(
    call: Service, path: str, status: str | None, expected: list[str]
) -> None:
    whole = look(call, "", status).json
    summary = look(call, "/summary", status).json
    count = look(call, "/count", status)

    assert [notification["runtime"]["status"] for notification in whole] == expected
    assert summary == [notification["runtime"] for notification in whole]
    assert count.json == len(expected)
    assert count.headers["x-count-exact"] == "true"


@pytest.mark.parametrize(
    ("status", "headers", "left"),
    [
        ("failed", {}, {"pending": 3, "succeeded": 1, "failed": 0}),
        (None, {"Fiware_ServicePath": "/ab"}, {"pending": 2, "succeeded": 0, "failed": 1}),
        ("succeeded", {"Fiware_ServicePath": "/abc"}, {"pending": 3, "succeeded": 1, "failed": 1}),
    ],
    ids=str,
)
def test_a_delete_removes_what_is_named_and_nothing_else(
    call: Service, path: str, status: str | None, headers: dict[str, str], left: dict[str, int]
) -> None:
    other = call.queue("other")
    call.put(other, tags={"fiware-servicepath": "/ab"})
    sent = {name.replace("_", "-"): value for name, value in headers.items()}

    answer = call("DELETE", PATH, None, sent, {"taskStatus": status} if status else None)

    assert (answer.status, answer.body) == (204, "")
    assert {status: look(call, "/count", status).json for status in left} == left
    assert call("GET", f"{other}/count").json["count"] == 1


def test_an_array_over_4_mib_is_cut_and_leads_on(call: Service) -> None:
    path = call.queue("ngsi.notify")
    for turn in range(30):
        tags = {"fiware-service": "x" if turn % 3 else "y"}
        payloads = [{"data": ["x" * 9_000, turn, number]} for number in range(25)]
        call.put(path, *payloads, tags=tags)
        call.clock.forward(1)
    headers = {"Fiware-Service": "x"}
    found: list[Any] = []

    query: dict[str, str] = {"taskStatus": "pending"}
    while query:
        answer = call("GET", PATH, None, headers, query)
        assert answer.status == 200
        assert len(answer.body) <= 4_194_304
        found += [tuple(shown["input"]["payload"][1:]) for shown in answer.json]
        query = next_query(answer)
        assert query or len(found) == 500  # the last page may be an empty one

    assert found == [(turn, number) for turn in range(30) if turn % 3 for number in range(25)]


def next_query(answer: Answer) -> dict[str, str]:
    """Return the parameters to which an answer leads on; none at the end."""
    link = answer.headers.get("link")
    if link is None:
        return {}
    assert link.startswith("<?")
    assert link.endswith('>; rel="next"')
    return dict(pair.split("=", 1) for pair in link[2 : link.index(">")].split("&"))
