"""Schedules over HTTP."""

from dataclasses import replace
from typing import Any

import pytest

import scheduler
from headrace.runtime.wiring import using
from tests.documented import check_documented
from tests.functional.conftest import Answer, Service


@pytest.fixture
def path(call: Service) -> str:
    return f"{call.queue()}/schedules/report"


def put(call: Service, path: str, **body: Any) -> Answer:
    return call("PUT", path, {"cron": "*/5 * * * *", **body})


def shown(answer: Answer) -> dict[str, Any]:
    assert answer.status == 200, answer.body
    check_documented("Schedule", answer.json)
    found: dict[str, Any] = answer.json
    return found


def scheduled(call: Service) -> list[str]:
    answer = call("GET", "/v1/queues/mail/tasks", query={"state": "ENQUEUED"})
    return [task["scheduled_at"][11:19] for task in answer.json["tasks"]]


def run_scheduler(call: Service) -> dict[str, int]:
    with using(call.use):
        return scheduler.handler({}, call.context)


def test_a_schedule_is_made_with_its_defaults_and_shown(call: Service, path: str) -> None:
    answer = put(call, path)

    assert shown(answer) == {
        "name": "report",
        "cron": "*/5 * * * *",
        "every_seconds": None,
        "timezone": "UTC",
        "payload": {},
        "tags": {},
        "dedupe_key": None,
        "expires_in_seconds": None,
        "keepalive_timeout_in_seconds": None,
        "retry_strategy": None,
        "priority": None,
        "missed": "latest",
        "on_expiry": "dead",
        "dedupe_until": "end",
        "paused": False,
        "next_run_at": "2026-11-21T08:05:00.000000Z",
        "last_run_at": None,
        "created_at": "2026-11-21T08:00:00.000000Z",
        "updated_at": "2026-11-21T08:00:00.000000Z",
    }
    assert shown(call("GET", path)) == answer.json


def test_what_get_shows_can_be_sent_back(call: Service, path: str) -> None:
    body = {
        "cron": None,
        "every_seconds": 0.5 + 60,
        "timezone": "Europe/Madrid",
        "payload": [1, "two"],
        "tags": {"a": "b"},
        "dedupe_key": "k",
        "expires_in_seconds": 0,
        "keepalive_timeout_in_seconds": 5,
        "retry_strategy": {"kind": "intervals", "intervals": [1, 2]},
        "missed": "all",
        "on_expiry": "drop",
        "dedupe_until": "start",
        "paused": True,
    }
    first = shown(put(call, path, **body))
    call.clock.forward(10)

    again = shown(call("PUT", path, first))

    assert again == first
    assert first["retry_strategy"]["max_retries"] == 2
    assert first["next_run_at"] is None


def test_the_scheduler_enqueues_what_a_worker_then_gets(call: Service, path: str) -> None:
    put(call, path, payload={"city": "Murcia"}, tags={"a": "b"})
    assert scheduled(call) == []
    call.clock.forward(180)

    assert run_scheduler(call) == {"schedules": 1, "enqueued": 1, "unreadable": 0}
    assert run_scheduler(call) == {"schedules": 1, "enqueued": 0, "unreadable": 0}

    assert scheduled(call) == ["08:05:00"]
    assert call.take("/v1/queues/mail") == []
    call.clock.forward(120)
    (task,) = call.take("/v1/queues/mail")
    assert task["id"].startswith("sch_")
    assert (task["payload"], task["tags"], task["schedule"]) == (
        {"city": "Murcia"},
        {"a": "b"},
        "report",
    )
    assert task["scheduled_at"] == "2026-11-21T08:05:00.000000Z"
    assert shown(call("GET", path))["last_run_at"] == "2026-11-21T08:05:00.000000Z"


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, {"cron", "every_seconds"}),
        ({"cron": "* * * * *", "every_seconds": 5}, {"cron", "every_seconds"}),
        ({"cron": "* * * *"}, {"cron"}),
        ({"cron": "61 * * * *"}, {"cron"}),
        ({"cron": ""}, {"cron"}),
        ({"cron": 5}, {"cron"}),
        ({"cron": "0 0 0 1 1 * 2020"}, {"cron"}),
        ({"cron": "0 0 31W 2 *"}, {"cron"}),
        ({"every_seconds": 0}, {"every_seconds"}),
        ({"every_seconds": 0.99}, {"every_seconds"}),
        ({"every_seconds": "60"}, {"every_seconds"}),
        ({"every_seconds": 60, "timezone": "Mars/Olympus"}, {"timezone"}),
        ({"every_seconds": 60, "timezone": "x" * 65}, {"timezone"}),
        ({"every_seconds": 60, "timezone": None}, {"timezone"}),
        ({"every_seconds": 60, "dedupe_key": ""}, {"dedupe_key"}),
        ({"every_seconds": 60, "tags": {"": "x"}}, {"tags."}),
        (
            {"every_seconds": 60, "keepalive_timeout_in_seconds": 0},
            {"keepalive_timeout_in_seconds"},
        ),
        ({"every_seconds": 60, "expires_in_seconds": 0.5}, {"expires_in_seconds"}),
        ({"every_seconds": 60, "retry_strategy": {"kind": "x"}}, {"retry_strategy.kind"}),
        ({"every_seconds": 60, "missed": "some"}, {"missed"}),
        ({"every_seconds": 60, "missed": None}, {"missed"}),
        ({"every_seconds": 60, "on_expiry": "keep"}, {"on_expiry"}),
        ({"every_seconds": 60, "dedupe_until": "start"}, {"dedupe_until"}),
        ({"every_seconds": 60, "dedupe_key": "k", "dedupe_until": "x"}, {"dedupe_until"}),
        ({"every_seconds": 60, "name": "another"}, {"name"}),
        ({"every_seconds": 60, "id": "x"}, {"id"}),
        ({"every_seconds": 60, "queue": "mail"}, {"queue"}),
    ],
)
def test_a_bad_field_is_named(
    call: Service, path: str, body: dict[str, Any], fields: set[str]
) -> None:
    answer = call("PUT", path, body)

    assert (answer.status, answer.json["code"]) == (400, "invalid_request")
    assert answer.fields == fields
    assert call("GET", path).status == 404


def test_a_schedule_that_is_over_can_still_be_changed_but_for_its_times(
    call: Service, path: str
) -> None:
    once = {"cron": "0 5 8 21 11 * 2026", "timezone": "UTC"}
    made = shown(put(call, path, **once))
    call.clock.forward(600)
    assert shown(call("PUT", path, made))["next_run_at"] is None

    changed = shown(put(call, path, **once, payload=2, paused=True))
    assert (changed["payload"], changed["paused"]) == (2, True)
    assert shown(put(call, path, **once, payload=2))["paused"] is False
    result = call("POST", f"{path}/run").json["results"][0]
    assert call.see(result["id"])["payload"] == 2

    for other in ({"cron": "0 5 8 21 11 ? 2026"}, {"timezone": "Europe/Madrid"}):
        answer = put(call, path, **{**once, **other})
        assert (answer.status, answer.fields) == (400, {"cron"})
    for place in (f"{path}-2", f"{call.queue('other')}/schedules/report"):
        assert put(call, place, **once).status == 400
    assert call("DELETE", path).status == 204
    assert put(call, path, **once).status == 400


def test_a_queue_shows_its_schedules_and_takes_them_with_it(call: Service, path: str) -> None:
    queue = path.removesuffix("/schedules/report")
    put(call, path)
    beat = {"every_seconds": 90, "paused": True, "tags": {"by": "hand"}}
    call("PUT", f"{queue}/schedules/beat", beat)

    seen = call("GET", queue).json

    assert seen["schedules"] == [
        {
            "name": "beat",
            "cron": None,
            "every_seconds": 90,
            "timezone": "UTC",
            "paused": True,
            "next_run_at": None,
            "tags": {"by": "hand"},
        },
        {
            "name": "report",
            "cron": "*/5 * * * *",
            "every_seconds": None,
            "timezone": "UTC",
            "paused": False,
            "next_run_at": "2026-11-21T08:05:00.000000Z",
            "tags": {},
        },
    ]
    assert call("PUT", queue, seen).status == 200
    assert call("DELETE", queue).status == 204
    call.clock.forward(1)
    call.queue()
    assert call("GET", queue).json["schedules"] == []
    assert call("GET", path).status == 404


def test_changes_by_hand_are_in_the_audit(call: Service, path: str) -> None:
    for method, where in (("PUT", path), ("POST", f"{path}/run"), ("DELETE", path)):
        call.clock.forward(1)
        call(method, where, {"every_seconds": 60} if method == "PUT" else None)

    entries = call("GET", "/v1/audit").json["entries"][:3]

    assert [entry["action"] for entry in entries] == [
        "delete_schedule",
        "run_schedule",
        "put_schedule",
    ]
    assert {entry["queue"] for entry in entries} == {"mail"}
    assert entries[0]["filter"] == {"schedule": "report"}


def test_a_viewer_sees_a_schedule_without_its_payload(call: Service, path: str) -> None:
    put(call, path, payload={"secret": 1})
    made = call("POST", "/v1/keys", {"name": "eve", "role": "viewer", "queues": ["*"]}).json
    viewer = replace(call, key=made["secret"])

    seen = viewer("GET", path)

    assert seen.status == 200
    assert "payload" not in seen.json
    assert seen.json["cron"] == "*/5 * * * *"
    assert viewer("POST", f"{path}/run").status == 403
    assert viewer("PUT", path, {"every_seconds": 60}).status == 403
