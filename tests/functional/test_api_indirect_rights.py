"""Work on behalf of a caller goes no further than the rights of that caller.

The table in docs/explanation/security.md names a test for each path.
"""

from typing import Any

import pytest

from headrace.domain.access import Role
from tests.functional.conftest import Answer, Service
from tests.functional.roles import keyed, tasks


@pytest.fixture
def filled(call: Service) -> Service:
    """Give a service with two tenants: acme's queues begin with acme, and others."""
    for name in ("acme.in", "acme.out", "other"):
        call.queue(name)
    return call


def forbidden(answer: Answer) -> None:
    assert (answer.status, answer.json["code"]) == (403, "forbidden"), answer.body


def leased(call: Service, queue: str = "acme.in") -> dict[str, Any]:
    path = f"/v1/queues/{queue}"
    call.put(path, 1)
    (task,) = call.take(path)
    return task


def report(call: Service, task: dict[str, Any], status: str, **fields: Any) -> Answer:
    entry = {"task_id": task["id"], "lease_id": task["lease"]["id"], "status": status, **fields}
    return call("POST", f"/v1/queues/{task['queue']}/reports", {"reports": [entry]})


@pytest.mark.parametrize(
    ("status", "fields"),
    [
        ("SUCCEEDED", {"spawn": [{"queue": "other"}]}),
        ("SUCCEEDED", {"spawn": [{"queue": "acme.out"}] * 24 + [{"queue": "other"}]}),
        ("MOVED", {"to_queue": "other"}),
        ("MOVED", {"to_queue": "acme.out", "spawn": [{"queue": "other"}]}),
    ],
)
def test_a_report_makes_and_moves_nothing_outside_the_queues_of_its_key(
    filled: Service, status: str, fields: dict[str, Any]
) -> None:
    task = leased(filled)

    forbidden(report(keyed(filled, Role.WORKER, "acme.*"), task, status, **fields))

    assert tasks(filled, "other") == []
    assert filled.say(task, "INFLIGHT")["outcome"] == "OK"


def test_a_schedule_is_put_only_by_a_key_for_its_queue(filled: Service) -> None:
    operator = keyed(filled, Role.OPERATOR, "acme.*")

    for method, path in (("PUT", ""), ("DELETE", ""), ("POST", "/run")):
        body = {"every_seconds": 60} if method == "PUT" else None
        forbidden(operator(method, f"/v1/queues/other/schedules/s{path}", body))


def test_a_schedule_goes_on_with_the_rights_of_the_key_that_put_it(filled: Service) -> None:
    key = {"name": "op", "role": "operator", "queues": ["acme.*"]}
    made = filled("POST", "/v1/keys", key).json
    operator = Service(filled.clock, filled.use, made["secret"])
    operator("PUT", "/v1/queues/acme.in/schedules/s", {"every_seconds": 60})
    filled("DELETE", f"/v1/keys/{made['id']}")
    filled.clock.forward(600)
    filled.use.ticking.run()

    assert len(tasks(filled, "acme.in")) > 3
    assert filled("DELETE", "/v1/queues/acme.in/schedules/s").status == 204


@pytest.mark.parametrize("event", ["ended", "succeeded", "failed"])
def test_a_batch_calls_back_only_into_queues_of_its_makers_key(filled: Service, event: str) -> None:
    producer = keyed(filled, Role.PRODUCER, "acme.*")

    forbidden(producer("POST", "/v1/batches", {"on": {event: {"queue": "other"}}}))


@pytest.mark.parametrize(
    ("setting", "fields"),
    [("on_end", {}), ("alerts", {"oldest_ready_seconds": 60})],
)
def test_events_and_alerts_go_only_to_queues_of_the_key_that_sets_them(
    filled: Service, setting: str, fields: dict[str, Any]
) -> None:
    admin = keyed(filled, Role.ADMIN, "acme.*")
    shown = admin("GET", "/v1/queues/acme.in").json

    forbidden(admin("PUT", "/v1/queues/acme.in", {**shown, setting: {"queue": "other", **fields}}))


@pytest.mark.parametrize(
    ("setting", "stored", "more", "less"),
    [
        ("on_end", {"states": ["DEAD"]}, {"states": ["SUCCEEDED", "DEAD"]}, {"states": ["DEAD"]}),
        ("alerts", {"dead_per_minute": 10}, {"dead_per_minute": 9}, {"dead_per_minute": 11}),
    ],
)
def test_a_key_sends_no_more_events_or_alerts_to_a_queue_that_it_may_not_see(
    filled: Service, setting: str, stored: Any, more: Any, less: Any
) -> None:
    path = "/v1/queues/acme.in"
    shown = filled("GET", path).json
    assert filled("PUT", path, {**shown, setting: {"queue": "other", **stored}}).status == 200
    admin = keyed(filled, Role.ADMIN, "acme.*")
    shown = admin("GET", path).json
    del shown["version"]
    before = filled("GET", path).json

    assert shown[setting]["queue"] is None
    forbidden(admin("PUT", path, {**shown, setting: {"queue": None, **more}}))
    assert filled("GET", path).json == before
    assert admin("PUT", path, {**shown, setting: {"queue": None, **less}}).status == 200
    kept = filled("GET", path).json[setting]
    assert kept["queue"] == "other"
    assert kept.items() >= less.items()
    assert admin("PUT", path, {**shown, setting: None}).status == 200


@pytest.mark.parametrize(
    "body",
    [
        {"action": "delete", "queues": ["acme.in", "other"], "filter": {}},
        {"action": "move", "queues": ["acme.in"], "to_queue": "other", "filter": {}},
        {"action": "move", "queues": ["other"], "to_queue": "acme.in", "filter": {}},
    ],
)
def test_an_action_takes_a_key_for_every_queue_that_it_touches(
    filled: Service, body: dict[str, Any]
) -> None:
    forbidden(keyed(filled, Role.OPERATOR, "acme.*")("POST", "/v1/actions", body))


def test_an_operators_move_and_restart_stay_in_the_queues_of_the_key(filled: Service) -> None:
    operator = keyed(filled, Role.OPERATOR, "acme.*")
    body = {"filter": {}, "to_queue": "other"}

    forbidden(operator("POST", "/v1/queues/acme.in/tasks/move", body))
    forbidden(operator("POST", "/v1/queues/other/tasks/restart", {"filter": {}}))


def test_an_undo_takes_the_rights_of_the_key_that_undoes(filled: Service) -> None:
    (task_id,) = filled.put("/v1/queues/other", 1)
    deleted = filled("DELETE", f"/v1/tasks/{task_id}", query={"undo_in_seconds": "60"})
    undo = f"/v1/undos/{deleted.json['undo']['id']}"

    forbidden(keyed(filled, Role.OPERATOR, "acme.*")("POST", undo))
    forbidden(keyed(filled, Role.WORKER)("POST", undo))

    assert keyed(filled, Role.OPERATOR, "other")("POST", undo).json["changed"] == 1


@pytest.mark.parametrize("maker", ["admin", "other"])
def test_only_a_key_that_may_see_a_batch_joins_it(filled: Service, maker: str) -> None:
    by = filled if maker == "admin" else keyed(filled, Role.PRODUCER, "other")
    assert by("POST", "/v1/batches", {"id": "b"}).status == 201
    producer = keyed(filled, Role.PRODUCER, "acme.*")

    forbidden(producer("GET", "/v1/batches/b"))
    answer = producer("POST", "/v1/queues/acme.in/tasks", {"tasks": [{"batches": ["b"]}]})

    (result,) = answer.json["results"]
    assert result["outcome"] == "INVALID"
    assert tasks(filled, "acme.in") == []
    queue = "other" if maker == "other" else "acme.in"
    entry = {"tasks": [{"batches": ["b"]}]}
    (joined,) = by("POST", f"/v1/queues/{queue}/tasks", entry).json["results"]
    assert joined["outcome"] == "CREATED"


def test_a_report_spawns_into_no_batch_that_its_key_may_not_see(filled: Service) -> None:
    filled("POST", "/v1/batches", {"id": "b"})
    task = leased(filled)
    worker = keyed(filled, Role.WORKER, "acme.*")

    answer = report(worker, task, "SUCCEEDED", spawn=[{"queue": "acme.in", "batches": ["b"]}])

    assert answer.json["results"][0]["outcome"] == "INVALID"


def test_a_lease_takes_a_key_for_every_queue_that_it_was_used_with(filled: Service) -> None:
    acme, other = (keyed(filled, Role.WORKER, queue) for queue in ("acme.*", "other"))
    lease_id = filled("POST", "/v1/leases", {}).json["lease"]["id"]
    path = f"/v1/leases/{lease_id}"
    assert acme("POST", f"{path}/extend").status == 200
    assert other("POST", f"{path}/extend").status == 200, "nothing is under it"
    filled.put("/v1/queues/acme.in", 1)
    filled.put("/v1/queues/other", 2)
    assert len(acme.take("/v1/queues/acme.in", lease_id=lease_id)) == 1

    forbidden(other("POST", f"{path}/extend"))
    forbidden(other("DELETE", path))
    dequeue = {"batch_size": 1, "lease_id": lease_id}
    forbidden(other("POST", "/v1/queues/other/dequeue", dequeue))
    forbidden(other("POST", "/v1/dequeue", {"queues": ["other"], **dequeue}))

    assert len(filled.take("/v1/queues/other")) == 1
    assert acme("POST", f"{path}/extend").status == 200
    assert acme("DELETE", path).status == 204


def test_a_lease_name_of_one_tenant_is_not_taken_by_another(filled: Service) -> None:
    acme, other = (keyed(filled, Role.WORKER, queue) for queue in ("acme.*", "other"))
    named = {"name": "nightly"}

    assert other("POST", "/v1/leases", named).status == 201
    assert acme("POST", "/v1/leases", named).status == 201
    assert acme("POST", "/v1/leases", named).json["code"] == "lease_lost"
    assert keyed(filled, Role.WORKER, "acme.*")("POST", "/v1/leases", named).status == 409
