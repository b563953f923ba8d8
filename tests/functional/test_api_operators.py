"""The audit: who changed what by hand."""

from typing import Any

from headrace.domain.access import Role
from headrace.ops.operators.keys import BOOTSTRAP
from tests.functional.conftest import REQUEST_ID, Service
from tests.functional.roles import keyed


def entries(call: Service, **query: str) -> list[dict[str, Any]]:
    answer = call("GET", "/v1/audit", query=query)
    assert answer.status == 200, answer.body
    found: list[dict[str, Any]] = answer.json["entries"]
    return found


def test_every_action_by_hand_leaves_an_entry(call: Service) -> None:
    path = call.queue()
    call.clock.forward(1)
    call.queue("other")
    ids = call.put(path, 1, 2, 3)
    everything: dict[str, Any] = {"filter": {}}
    where = {"state": "READY", "scheduled_after": "2026-11-21T07:00:00Z", "tags": {"a": "1"}}
    for method, rest, body in (
        ("PUT", "", {"description": "mail"}),
        ("POST", "/pause", None),
        ("POST", "/resume", None),
        ("POST", "/tasks/run", {"filter": where}),
        ("POST", "/tasks/restart", {"ids": ids[:2]}),
        ("POST", "/tasks/move", {**everything, "to_queue": "other", "limit": 1}),
        ("POST", "/tasks/delete", {**everything, "dry_run": True}),
        ("POST", "/tasks/delete", {"ids": [ids[1]]}),
        ("POST", "/purge", {"states": ["ENQUEUED"]}),
        ("DELETE", "", None),
    ):
        call.clock.forward(1)
        assert call(method, f"{path}{rest}", body).status in (200, 204)
    call.clock.forward(1)
    assert call("DELETE", f"/v1/tasks/{ids[0]}").status == 204

    found = entries(call)

    assert [(entry["action"], entry["queue"]) for entry in found] == [
        ("delete", "other"),
        ("delete_queue", "mail"),
        ("purge", "mail"),
        ("delete", "mail"),
        ("move", "mail"),
        ("restart", "mail"),
        ("run", "mail"),
        ("resume", "mail"),
        ("pause", "mail"),
        ("update_queue", "mail"),
        ("create_queue", "other"),
        ("create_queue", "mail"),
    ]
    assert {entry["actor"] for entry in found} == {BOOTSTRAP.name}
    assert {entry["request_id"] for entry in found} == {REQUEST_ID}
    by_action = {entry["action"]: entry for entry in found}
    assert (by_action["restart"]["ids"], by_action["restart"]["filter"]) == (ids[:2], None)
    assert by_action["run"]["filter"]["tags"] == {"a": "1"}
    assert by_action["move"]["filter"] == {"to_queue": "other"}
    assert (by_action["move"]["matched"], by_action["move"]["changed"]) == (1, 1)


def test_the_audit_has_what_changed_settings_were_and_are(call: Service) -> None:
    path = call.queue(retry_strategy={"max_retries": 3})
    assert call("PUT", path, {"retry_strategy": {"max_retries": 5}, "shards": 2}).status == 200
    call.clock.forward(1)
    assert call("PUT", path, {"retry_strategy": {"max_retries": 5}, "shards": 2}).status == 200

    same, changed = entries(call, action="update_queue")
    assert changed["before"] == {"retry_strategy.max_retries": 3, "shards": 1}
    assert changed["after"] == {"retry_strategy.max_retries": 5, "shards": 2}
    assert not {"before", "after", "reason"} & {*same}


def test_the_audit_of_settings_has_no_secrets_and_no_queues_of_others(call: Service) -> None:
    for name in ("ends", "ngsi.a"):
        call.queue(name)

    def target(**headers: str) -> dict[str, Any]:
        return {"target": {"url": "https://example.com/hook", "headers": headers}}

    path = "/v1/queues/ngsi.a"
    assert call("PUT", path, target(Authorization="Bearer 1", Gone="Bearer 2")).status == 200
    call.clock.forward(1)
    assert call("PUT", path, target(Authorization="Bearer 3")).status == 200
    call.clock.forward(1)
    assert call("PUT", path, {"on_end": {"queue": "ends"}}).status == 200

    told, again, first = entries(call, action="update_queue")
    assert "Bearer" not in str([told, again, first])
    assert again["before"] == dict.fromkeys(
        ("target.headers.Authorization", "target.headers.Gone"), "********"
    )
    assert again["after"] == {
        "target.headers.Authorization": "******** (another)",
        "target.headers.Gone": None,
    }
    assert told["after"]["on_end.queue"] == "ends"
    [other, *_] = entries(keyed(call, Role.OPERATOR, "ngsi.*"), action="update_queue")
    assert other["after"] == {**told["after"], "on_end.queue": None}
