"""Queues over HTTP."""

from headrace.domain.access import Role
from tests.functional.conftest import Service
from tests.functional.roles import keyed

FULL = {
    "name": "ngsi.notify",
    "description": "notifications",
    "keepalive_timeout_in_seconds": 60,
    "expires_in_seconds": 0,
    "retry_strategy": {"kind": "intervals", "intervals": [1, 2.5, 60], "jitter": 0},
    "dequeuing_settings": {
        "max_inflight_tasks": 10,
        "rate_limiting": {"max_tokens": 1000, "interval": 1, "interval_unit": "MINUTES"},
        "dequeuing_paused": True,
    },
    "dead_letter_queue_config": {
        "enable": False,
        "retention_period_in_seconds": 60,
        "max_size": 5,
    },
    "history_retention_in_seconds": 0,
    "shards": 4,
}


def test_a_queue_is_created_with_defaults_and_shown(call: Service) -> None:
    created = call("POST", "/v1/queues", {"name": "mail"})

    assert created.status == 201
    assert created.json["version"] == 1
    assert created.json["retry_strategy"]["max_retries"] == 5
    assert created.json["created_at"] == "2026-11-21T08:00:00.000000Z"
    shown = call("GET", "/v1/queues/mail").json
    assert set(shown.pop("stats")["counts"].values()) == {0}
    assert shown == {**created.json, "schedules": [], "schedules_cursor": None}


def test_what_is_shown_can_be_sent_back(call: Service) -> None:
    shown = call("POST", "/v1/queues", FULL).json

    answer = call("PUT", "/v1/queues/ngsi.notify", {**shown, "stats": {"a": 1}, "schedules": []})

    assert answer.status == 200
    assert answer.json == {**shown, "version": 2}


def test_who_paused_a_queue_and_why_is_shown_while_it_is(call: Service) -> None:
    path = call.queue()
    body = {"resume_in_seconds": 60, "reason": "provider is down"}

    paused = call("POST", f"{path}/pause", body).json

    at = {"at": paused["updated_at"], "until": "2026-11-21T08:01:00.000000Z"}
    assert paused["pause"] == {"by": "bootstrap", "reason": "provider is down", **at}
    shown = call("GET", path).json
    assert call("PUT", path, {**shown, "shards": 2}).json["pause"] == paused["pause"]
    viewer = keyed(call, Role.VIEWER)
    assert "pause" not in viewer("GET", path).json
    (entry,) = call("GET", "/v1/audit", query={"action": "pause"}).json["entries"]
    assert entry["reason"] == "provider is down"

    call.clock.forward(61)
    assert "pause" not in call("GET", path).json
