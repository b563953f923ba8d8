"""Dedupe keys over HTTP: one live task under a key, and what a second one may change of it."""

from typing import Any

from tests.functional.conftest import Service

EXACT = '{ "price": 1.10, "big": 123456789012345678901234567890 }'


def enqueue(call: Service, path: str, **entry: Any) -> dict[str, Any]:
    answer = call("POST", f"{path}/tasks", {"tasks": [entry]})
    assert answer.status == 200, answer.body
    result: dict[str, Any] = answer.json["results"][0]
    return result


def test_a_second_task_under_a_key_is_a_duplicate_of_the_first(call: Service) -> None:
    path = call.queue()
    first = enqueue(call, path, payload=1, dedupe_key="room é")

    second = enqueue(call, path, payload=2, dedupe_key="room é")

    assert (first["outcome"], second["outcome"]) == ("CREATED", "DUPLICATE")
    assert second["id"] == second["task"]["id"] == first["id"]
    assert second["task"]["dedupe_key"] == "room é"
    (task,) = call.take(path)
    assert (task["payload"], task["dedupe_key"]) == (1, "room é")
    assert enqueue(call, path, payload=3, dedupe_key="room é")["outcome"] == "DUPLICATE"
    assert call.say(task, "SUCCEEDED")["outcome"] == "OK"
    assert enqueue(call, path, payload=4, dedupe_key="room é")["outcome"] == "CREATED"


def test_a_duplicate_overwrites_what_it_names_and_nothing_else(call: Service) -> None:
    path = call.queue()
    first = enqueue(call, path, payload=1, tags={"a": "1"}, dedupe_key="k", delay_in_seconds=60)
    body = (
        f'{{"tasks":[{{"dedupe_key":"k","payload":{EXACT},"tags":{{"b":"2"}},'
        '"overwrite_on_duplicate":["payload"]}]}'
    )

    (result,) = call("POST", f"{path}/tasks", body).json["results"]

    assert (result["outcome"], result["id"]) == ("OVERWRITTEN", first["id"])
    assert "payload" not in result["task"]
    shown = call("GET", f"/v1/tasks/{first['id']}")
    assert EXACT in shown.body
    assert shown.json["tags"] == {"a": "1"}
    assert shown.json["scheduled_at"] == first["task"]["scheduled_at"]
