"""The life of a task over HTTP."""

from types import SimpleNamespace

import pytest

from headrace.store.call_scope import ANSWER_SECONDS, CALL_SECONDS
from tests.functional.conftest import Service

EXACT = '{ "price": 1.10, "big": 123456789012345678901234567890, "e": 1E5, "u": "\\u00e9é" }'


def test_a_payload_comes_back_as_it_was_sent_wherever_it_is_shown(call: Service) -> None:
    path = call.queue()
    body = f'{{"tasks":[{{"id":"a","payload":{EXACT}}}]}}'

    enqueued = call("POST", f"{path}/tasks", body)
    call.clock.forward(1)
    handed_out = call("POST", f"{path}/dequeue")

    assert "payload" not in enqueued.json["results"][0]["task"]
    assert EXACT in handed_out.body
    assert EXACT in call("GET", "/v1/tasks/a").body
    assert EXACT in call("GET", f"{path}/tasks", query={"payload": "true"}).body
    assert "price" not in call("GET", "/v1/tasks/a", query={"payload": "false"}).body
    assert "price" not in call("GET", f"{path}/tasks").body


def test_result_and_progress_come_back_as_they_were_sent(call: Service) -> None:
    path = call.queue()
    call.put(path)
    (task,) = call.take(path)
    held = f'"task_id":"{task["id"]}","lease_id":"{task["lease"]["id"]}"'

    call(
        "POST", f"{path}/reports", f'{{"reports":[{{{held},"status":"INFLIGHT","progress":1.0}}]}}'
    )
    assert '"progress":1.0,' in call("GET", f"/v1/tasks/{task['id']}").body

    body = f'{{"reports":[{{{held},"status":"SUCCEEDED","result":{EXACT}}}]}}'
    call("POST", f"{path}/reports", body)
    assert f'"result":{EXACT},' in call("GET", f"/v1/tasks/{task['id']}").body


def test_a_long_poll_ends_before_the_function_times_out(call: Service) -> None:
    path = call.queue()
    call.polls(call.clock.forward)
    call.context = SimpleNamespace(get_remaining_time_in_millis=lambda: 15_000)
    began = call.clock()

    assert call.take(path, wait_seconds=20) == []

    waited = (call.clock() - began).total_seconds()
    assert waited == pytest.approx(15 - ANSWER_SECONDS - CALL_SECONDS, abs=0.5)


def test_deleting_a_task(call: Service) -> None:
    path = call.queue()
    call.put(path)
    (task,) = call.take(path)
    where = f"/v1/tasks/{task['id']}"

    refused = call("DELETE", where, query={"if_not_inflight": "true"})
    assert (refused.status, refused.json["code"]) == (409, "inflight")

    assert call("DELETE", where).status == 204
    assert call("DELETE", where).status == 404
    assert call.say(task, "SUCCEEDED")["outcome"] == "NOT_FOUND"


# -- cancel ----------------------------------------------------------------------------------------


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
