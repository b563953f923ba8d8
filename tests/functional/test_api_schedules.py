"""Schedules over HTTP."""

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
