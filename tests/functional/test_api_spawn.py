"""Tasks spawned by a report: made in its own write, exactly once, in whatever queue."""

from typing import Any

import pytest

from tests.functional.conftest import Service

EXACT = '{ "price": 1.10, "big": 123456789012345678901234567890, "u": "\\u00e9é" }'


def held(call: Service, path: str) -> dict[str, Any]:
    call.put(path)
    (task,) = call.take(path)
    return task


@pytest.mark.parametrize("status", ["SUCCEEDED", "MOVED"])
def test_a_report_that_ends_a_tasks_stay_may_spawn_others(call: Service, status: str) -> None:
    path, parts = call.queue("mail"), call.queue("parts")
    call.queue("next")
    task = held(call, path)
    spawn = [
        {"queue": "parts", "payload": {"n": 1}, "tags": {"a": "1"}},
        {"queue": "parts", "payload": {"n": 2}, "delay_in_seconds": 60, "id": "second"},
        {"queue": "mail", "payload": {"n": 3}},
    ]

    moved = {"to_queue": "next"} if status == "MOVED" else {}
    result = call.say(task, status, spawn=spawn, **moved)

    assert result["outcome"] == "OK"
    assert [child["outcome"] for child in result["spawned"]] == ["CREATED"] * 3
    assert all(set(child) == {"outcome", "id"} for child in result["spawned"])
    first, second, third = (call.see(child["id"]) for child in result["spawned"])
    assert (first["queue"], first["payload"], first["tags"]) == ("parts", {"n": 1}, {"a": "1"})
    assert (second["id"], second["status"]) == ("second", "SCHEDULED")
    assert (third["queue"], third["payload"]) == ("mail", {"n": 3})
    assert [child["payload"] for child in call.take(parts, 5)] == [{"n": 1}]


def test_a_spawned_payload_is_stored_as_it_was_sent(call: Service) -> None:
    path, parts = call.queue("mail"), call.queue("parts")
    task = held(call, path)
    body = (
        f'{{"reports":[{{"task_id":"{task["id"]}","lease_id":"{task["lease"]["id"]}",'
        f'"status":"SUCCEEDED","result":{EXACT},"spawn":[{{"queue":"parts","payload":{EXACT}}},'
        f'{{"payload": [{EXACT}] , "queue":"parts"}}]}}]}}'
    )

    answer = call("POST", f"{path}/reports", body)

    assert answer.json["results"][0]["outcome"] == "OK"
    listed = call("GET", f"{parts}/tasks", query={"payload": "true"}).body
    assert f'"payload":{EXACT},' in listed
    assert f'"payload":[{EXACT}],' in listed


def test_two_mebibytes_of_payloads_are_taken(call: Service) -> None:
    path = call.queue("mail")
    call.queue("parts")
    task = held(call, path)
    spawn = [{"queue": "parts", "payload": "x" * 262_142}] * 8

    result = call.say(task, "SUCCEEDED", spawn=spawn)

    assert [child["outcome"] for child in result["spawned"]] == ["CREATED"] * 8
