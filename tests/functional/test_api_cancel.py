"""Cancelling over HTTP: what the answer shows, and who may."""

from headrace.domain.access import Role
from tests.functional.conftest import Service
from tests.functional.roles import keyed


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
