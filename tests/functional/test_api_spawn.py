"""Tasks spawned by a report: made in its own write, exactly once, in whatever queue."""

from typing import Any

import pytest

from tests.functional.conftest import Service


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
