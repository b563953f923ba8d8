"""Cancelling over HTTP: what the answer shows, and who may."""

from headrace.domain.access import Role
from tests.functional.conftest import Service
from tests.functional.roles import keyed


def test_a_cancelled_task_is_shown_dead_and_again(call: Service) -> None:
    (task_id,) = call.put(call.queue(), {"to": "ada"})

    answer = call("POST", f"/v1/tasks/{task_id}/cancel")

    assert answer.status == 200, answer.body
    shown = answer.json
    assert (shown["state"], shown["dead_reason"], shown["errors"]) == ("DEAD", "cancelled", [])
    assert shown["payload"] == {"to": "ada"}
    again = call("POST", f"/v1/tasks/{task_id}/cancel")
    assert (again.status, again.json) == (200, shown)
    assert call("GET", f"/v1/tasks/{task_id}").json == shown


def test_the_next_heartbeat_of_its_worker_says_so(call: Service) -> None:
    path = call.queue()
    call.put(path, 1)
    call.clock.forward(1)
    (task,) = call.take(path)

    call("POST", f"{path}/tasks/cancel", {"ids": [task["id"]]})

    report = {"task_id": task["id"], "lease_id": task["lease"]["id"], "status": "INFLIGHT"}
    (result,) = call("POST", f"{path}/reports", {"reports": [report]}).json["results"]
    assert (result["outcome"], result["state"]) == ("NOT_INFLIGHT", "DEAD")
    assert result["dead_reason"] == "cancelled"


def test_a_producer_cancels_in_its_own_queues_only(call: Service) -> None:
    (own,) = call.put(call.queue("mail"), 1)
    (foreign,) = call.put(call.queue("other"), 2)
    producer = keyed(call, Role.PRODUCER, "mail")

    assert producer("POST", f"/v1/tasks/{own}/cancel").status == 200
    assert producer("POST", f"/v1/tasks/{foreign}/cancel").status == 403
    assert producer("POST", "/v1/queues/other/tasks/cancel", {"filter": {}}).status == 403
    assert call("GET", f"/v1/tasks/{foreign}").json["state"] == "ENQUEUED"
