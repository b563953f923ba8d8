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


def test_one_call_may_have_the_same_key_twice(call: Service) -> None:
    path = call.queue()
    entries = [{"payload": 1, "dedupe_key": "k"}, {"payload": 2}, {"payload": 3, "dedupe_key": "k"}]

    results = call("POST", f"{path}/tasks", {"tasks": entries}).json["results"]

    assert [result["outcome"] for result in results] == ["CREATED", "CREATED", "DUPLICATE"]
    assert results[2]["id"] == results[0]["id"]


def test_a_key_belongs_to_its_queue(call: Service) -> None:
    outcomes = [
        enqueue(call, call.queue(name), dedupe_key="k")["outcome"] for name in ("mail", "post")
    ]

    assert outcomes == ["CREATED", "CREATED"]


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


def test_all_four_things_can_be_overwritten(call: Service) -> None:
    path = call.queue()
    enqueue(call, path, payload=1, tags={"a": "1"}, dedupe_key="k", delay_in_seconds=60)

    result = enqueue(
        call,
        path,
        payload=2,
        tags={"b": "2"},
        scheduled_at="2026-11-21T09:00:00Z",
        expires_at="2026-11-21T10:00:00Z",
        dedupe_key="k",
        overwrite_on_duplicate=["payload", "tags", "scheduled_at", "expires_at"],
    )

    task = call.see(result["id"])
    assert (result["outcome"], task["payload"], task["tags"]) == ("OVERWRITTEN", 2, {"b": "2"})
    assert task["scheduled_at"] == "2026-11-21T09:00:00.000000Z"
    assert task["expires_at"] == "2026-11-21T10:00:00.000000Z"
    assert call.take(path) == []


def test_a_task_that_is_worked_on_is_not_overwritten(call: Service) -> None:
    path = call.queue()
    enqueue(call, path, payload=1, dedupe_key="k")
    call.take(path)

    result = enqueue(
        call, path, payload=2, dedupe_key="k", overwrite_on_duplicate=["payload", "tags"]
    )

    assert result["outcome"] == "DUPLICATE"
    assert call.see(result["id"])["payload"] == 1


def test_an_overwrite_that_would_contradict_what_is_stored_is_invalid(call: Service) -> None:
    path = call.queue()
    enqueue(call, path, dedupe_key="k", delay_in_seconds=7200)

    result = enqueue(
        call,
        path,
        dedupe_key="k",
        expires_at="2026-11-21T09:00:00Z",
        overwrite_on_duplicate=["expires_at"],
    )

    assert result["outcome"] == "INVALID"
    assert "expires_at" in result["detail"]


def test_naming_nothing_to_overwrite_needs_no_key(call: Service) -> None:
    path = call.queue()

    nothings: tuple[Any, ...] = (None, [])
    for nothing in nothings:
        assert enqueue(call, path, overwrite_on_duplicate=nothing)["outcome"] == "CREATED"
