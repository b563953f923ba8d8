"""Cancelling over HTTP: what the answer shows, and who may."""

from tests.functional.conftest import Service


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
