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


def test_repeating_the_report_makes_nothing_twice(call: Service) -> None:
    path, parts = call.queue("mail"), call.queue("parts")
    task = held(call, path)
    spawn = [{"queue": "parts", "payload": n} for n in range(24)]

    first, second = (call.say(task, "SUCCEEDED", spawn=spawn) for _ in range(2))

    assert (first["outcome"], second["outcome"]) == ("OK", "OK")
    ids = [child["id"] for child in first["spawned"]]
    assert [child["id"] for child in second["spawned"]] == ids
    assert {child["outcome"] for child in second["spawned"]} == {"EXISTING"}
    assert call("GET", f"{parts}/count").json["count"] == 24


def test_an_id_that_exists_and_a_key_that_is_held_count_as_done(call: Service) -> None:
    path, parts = call.queue("mail"), call.queue("parts")
    call.put(parts, id="there")
    call.put(call.queue("other"), id="elsewhere")
    (holder,) = call.put(parts, dedupe_key="k")
    task = held(call, path)

    result = call.say(
        task,
        "SUCCEEDED",
        spawn=[
            {"queue": "parts", "id": "there"},
            {"queue": "parts", "id": "elsewhere"},
            {"queue": "parts", "dedupe_key": "k"},
        ],
    )

    assert result["outcome"] == "OK"
    assert result["spawned"] == [
        {"outcome": "EXISTING", "id": "there"},
        {"outcome": "EXISTING", "id": "elsewhere"},
        {"outcome": "DUPLICATE", "id": holder},
    ]


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        ({"queue": "nowhere"}, "spawn[1].queue"),
        ({"queue": "parts", "expires_at": "2026-11-21T07:00:00Z"}, "spawn[1].expires_at"),
    ],
)
def test_all_or_nothing(call: Service, bad: dict[str, Any], named: str) -> None:
    path, parts = call.queue("mail"), call.queue("parts")
    task = held(call, path)

    result = call.say(task, "SUCCEEDED", spawn=[{"queue": "parts", "payload": 1}, bad])

    assert (result["outcome"], result["spawned"]) == ("INVALID", [])
    assert named in result["detail"]
    assert call.see(task["id"])["state"] == "INFLIGHT"
    assert call("GET", f"{parts}/count").json["count"] == 0
    assert call.say(task, "SUCCEEDED")["outcome"] == "OK"


def test_a_stale_lease_spawns_nothing(call: Service) -> None:
    path, parts = call.queue("mail"), call.queue("parts")
    task = held(call, path)
    call.clock.forward(31)
    call("POST", f"{path}/dequeue")

    result = call.say(task, "SUCCEEDED", spawn=[{"queue": "parts"}])

    assert result["outcome"] in {"STALE_LEASE", "NOT_INFLIGHT"}
    assert result["spawned"] == []
    assert call("GET", f"{parts}/count").json["count"] == 0


def test_an_empty_spawn_says_nothing_whatever_the_status(call: Service) -> None:
    path = call.queue()
    task = held(call, path)

    nothings: tuple[Any, ...] = (None, [])
    for spawn in nothings:
        result = call.say(task, "INFLIGHT", spawn=spawn)
        assert (result["outcome"], result["spawned"]) == ("OK", [])
    spawned = [{"queue": "mail", "overwrite_on_duplicate": nothing} for nothing in nothings]
    assert call.say(task, "SUCCEEDED", spawn=spawned)["outcome"] == "OK"


def test_two_mebibytes_of_payloads_are_taken(call: Service) -> None:
    path = call.queue("mail")
    call.queue("parts")
    task = held(call, path)
    spawn = [{"queue": "parts", "payload": "x" * 262_142}] * 8

    result = call.say(task, "SUCCEEDED", spawn=spawn)

    assert [child["outcome"] for child in result["spawned"]] == ["CREATED"] * 8
