"""Actions on many tasks over HTTP: begun, watched, paused, resumed, cancelled, by whom they may."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from headrace.domain.access import Role
from tests.functional.conftest import Answer, Service
from tests.functional.roles import keyed

SHOWN = {
    "id", "action", "queues", "filter", "to_queue", "status", "matched", "done", "changed", "left",
    "undos", "reason", "actor", "actor_id", "started_at", "ended_at", "trouble",
}  # fmt: skip


def begin(call: Service, action: str = "restart", *queues: str, **body: Any) -> Answer:
    whole = {"action": action, "queues": queues or ["mail"], "filter": {}, **body}
    return call("POST", "/v1/actions", whole)


def begun(call: Service, action: str = "restart", *queues: str, **body: Any) -> Any:
    answer = begin(call, action, *queues, **body)
    assert answer.status == 202, answer.body
    assert set(answer.json) == SHOWN
    return answer.json


def dead(call: Service, path: str, number: int) -> list[str]:
    """Let tasks die."""
    ids = call.put(path, *range(number))
    for task in call.take(path, number):
        call.say(task, "FAILED", retryable=False, error={"type": "Timeout", "message": "slow"})
    return ids


def states(call: Service, path: str) -> list[str]:
    return sorted(task["status"] for task in call("GET", f"{path}/tasks").json["tasks"])


def test_an_action_is_begun_and_done_without_whoever_began_it(call: Service) -> None:
    path = call.queue()
    dead(call, path, 3)
    call.put(path, "waits")

    run = begun(call, filter={"error": "timeout"}, reason=" provider is back ")

    assert (run["status"], run["matched"], run["changed"]) == ("LOOKING", None, 0)
    assert states(call, path) == ["DEAD", "DEAD", "DEAD", "READY"], "it has only begun"
    call.use.action_work.run()
    done = call("GET", f"/v1/actions/{run['id']}").json
    numbers = (done["status"], done["matched"], done["done"], done["changed"], done["left"])
    assert numbers == ("DONE", 3, 3, 3, {})
    assert done["ended_at"] is not None
    assert done["filter"] == {"state": "DEAD,SUCCEEDED", "error": "timeout"}
    assert (done["reason"], done["actor"]) == ("provider is back", "bootstrap")
    assert states(call, path) == ["READY"] * 4
    (entry,) = call("GET", "/v1/audit", query={"action": "restart"}).json["entries"]
    assert (entry["run"], entry["changed"], entry["reason"]) == (run["id"], 3, "provider is back")


def test_a_restricted_key_has_actions_on_its_own_queues_only(call: Service) -> None:
    for name in ("mail", "sms"):
        call.queue(name)
    both, own = begun(call, "run", "mail", "sms")["id"], begun(call, "run", "mail")["id"]
    moved = begun(call, "move", "mail", to_queue="sms")["id"]
    operator = keyed(call, Role.OPERATOR, "mail")

    assert begun(operator, "run")["actor"] == "the operator"
    assert begin(operator, "run", "mail", "sms").status == 403
    assert begin(operator, "move", to_queue="sms").status == 403
    assert operator("POST", f"/v1/actions/{own}/pause").status == 200
    for there in (both, moved, "act_nothing"):
        refused = operator("GET", f"/v1/actions/{there}")
        assert (refused.status, there in refused.json["detail"]) == (403, True)
        for turn in ("pause", "resume", "cancel"):
            assert operator("POST", f"/v1/actions/{there}/{turn}").status == 403
    listed = operator("GET", "/v1/actions").json["actions"]
    assert {one["actor"] for one in listed} == {"the operator", "bootstrap"}
    assert own in {one["id"] for one in listed}
    assert not {both, moved} & {one["id"] for one in listed}
    assert operator("GET", "/v1/actions", query={"queue": "sms"}).status == 403


def key_of(call: Service, name: str) -> str:
    keys = call("GET", "/v1/keys").json["keys"]
    return next(str(key["id"]) for key in keys if key["name"] == name)


def test_an_action_stops_when_the_key_that_began_it_is_revoked(call: Service) -> None:
    path = call.queue()
    dead(call, path, 6)
    operator = keyed(call, Role.OPERATOR, "mail")
    run = begun(operator, "delete", filter={"state": "DEAD"})
    work = call.use.action_work
    work.part = 2
    parts = iter([1, 1, 0])
    work.run(time_left=lambda: next(parts, 0))
    assert len(states(call, path)) == 4
    assert call("DELETE", f"/v1/keys/{key_of(call, 'the operator')}").status == 204

    work.run()

    stopped = call("GET", f"/v1/actions/{run['id']}").json
    assert stopped["status"] == "PAUSED"
    assert "the operator" in stopped["trouble"]
    assert "revoked" in stopped["trouble"]
    assert len(states(call, path)) == 4


def test_an_action_of_an_expired_key_stops_and_whoever_resumes_it_takes_it_over(
    call: Service,
) -> None:
    path = call.queue()
    dead(call, path, 3)
    ends = (call.clock() + timedelta(seconds=60)).isoformat()
    body = {"name": "brief", "role": "operator", "queues": ["mail"], "expires_at": ends}
    made = call("POST", "/v1/keys", body).json
    run = begun(replace(call, key=made["secret"]), "delete", filter={"state": "DEAD"})
    call.clock.forward(61)
    call.use.action_work.run()
    assert call("GET", f"/v1/actions/{run['id']}").json["status"] == "PAUSED"
    assert call("GET", f"/v1/keys/{made['id']}").json["actions"] == [run["id"]]
    operator = keyed(call, Role.OPERATOR, "mail")
    other = keyed(call, Role.OPERATOR, "sms")
    assert other("POST", f"/v1/actions/{run['id']}/resume").status == 403

    resumed = operator("POST", f"/v1/actions/{run['id']}/resume").json
    call.use.action_work.run()

    assert (resumed["actor"], resumed["trouble"]) == ("the operator", "")
    done = call("GET", f"/v1/actions/{run['id']}").json
    assert (done["status"], done["changed"], done["actor"]) == ("DONE", 3, "the operator")
    assert call("GET", f"/v1/keys/{made['id']}").json["actions"] == []
    begun_by, resumed_by = (
        call("GET", "/v1/audit", query={"action": action}).json["entries"]
        for action in ("delete", "resume_action")
    )
    assert [entry["actor"] for entry in begun_by] == ["brief"]
    assert [entry["actor"] for entry in resumed_by] == ["the operator"]
