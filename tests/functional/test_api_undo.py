"""Deleting with an undo over HTTP: what is answered, what comes back, and who may."""

from headrace.domain.access import Role
from tests.functional.conftest import Service
from tests.functional.roles import keyed


def test_a_task_that_is_deleted_for_an_hour_comes_back(call: Service) -> None:
    (task_id,) = call.put(call.queue(), {"to": "ada"})
    before = call.see(task_id)

    deleted = call("DELETE", f"/v1/tasks/{task_id}", query={"undo_in_seconds": "3600"})

    assert deleted.status == 200
    undo = deleted.json["undo"]
    assert undo.keys() == {"id", "until"}
    assert call("GET", f"/v1/tasks/{task_id}").status == 404
    answer = call("POST", f"/v1/undos/{undo['id']}")
    assert answer.status == 200
    assert answer.json == {
        "matched": 1,
        "changed": 1,
        "results": [{"id": task_id, "outcome": "RESTORED", "detail": None}],
        "cursor": None,
    }
    assert call.see(task_id) == before
    again = call("POST", f"/v1/undos/{undo['id']}", {"cursor": None})
    assert (again.status, again.json["changed"]) == (200, 0)


def test_no_answer_knows_the_state_of_what_is_deleted(call: Service) -> None:
    path = call.queue()

    assert call("POST", f"{path}/purge", {"states": ["DELETED"]}).status == 400
    assert call("GET", f"{path}/tasks", query={"state": "DELETED"}).status == 400
    assert call("GET", f"{path}/count").json["by_state"].keys() == {
        "ENQUEUED",
        "INFLIGHT",
        "SUCCEEDED",
        "DEAD",
    }
    assert (
        "DELETED"
        not in call("GET", "/v1/openapi.json").json["components"]["schemas"]["State"]["enum"]
    )


def test_an_undo_is_for_whoever_may_operate_on_its_queue(call: Service) -> None:
    (task_id,) = call.put(call.queue("mail"))
    call.queue("other")
    deleted = call("DELETE", f"/v1/tasks/{task_id}", query={"undo_in_seconds": "60"})
    path = f"/v1/undos/{deleted.json['undo']['id']}"

    assert keyed(call, Role.PRODUCER)("POST", path).status == 403
    foreign = keyed(call, Role.OPERATOR, "other")
    assert foreign("POST", path).status == 403
    assert foreign("POST", "/v1/undos/und_nothing").status == 403
    assert call("POST", "/v1/undos/und_nothing").status == 404
    assert keyed(call, Role.OPERATOR, "mail")("POST", path).json["changed"] == 1


def test_one_undo_serves_several_calls_by_ids(call: Service) -> None:
    path = call.queue()
    ids = [one for start in range(3) for one in call.put(path, *range(start * 3, start * 3 + 3))]
    first = {"ids": ids[:3], "undo_in_seconds": 60}
    undo = call("POST", f"{path}/tasks/delete", first).json["undo"]
    call.clock.forward(10)

    for some in (ids[3:6], ids[6:]):
        more = call("POST", f"{path}/tasks/delete", {"ids": some, "undo_id": undo["id"]}).json
        assert (more["changed"], more["undo"]) == (3, undo)

    back = call("POST", f"/v1/undos/{undo['id']}").json
    assert (back["changed"], {one["id"] for one in back["results"]}) == (9, {*ids})
    assert {call.see(task_id)["state"] for task_id in ids} == {"ENQUEUED"}


def test_an_undo_that_does_not_fit_is_refused_by_name_before_anything_is_done(
    call: Service,
) -> None:
    path, other = call.queue(), call.queue("other")
    one, two = call.put(path, 1, 2)
    body = {"ids": [one], "undo_in_seconds": 60}
    undo = call("POST", f"{path}/tasks/delete", body).json["undo"]["id"]

    def fields(where: str, **body: object) -> set[str]:
        answer = call("POST", f"{where}/tasks/delete", body)
        assert answer.status == 400, answer.body
        return set(answer.fields)

    assert fields(path, ids=[two], undo_id="und_none") == {"undo_id"}
    assert fields(other, ids=[two], undo_id=undo) == {"undo_id"}
    assert fields(path, filter={}, undo_id=undo) == {"undo_id"}
    both = fields(path, ids=[two], undo_id=undo, undo_in_seconds=60)
    assert both == {"undo_id", "undo_in_seconds"}
    call.clock.forward(60)
    assert fields(path, ids=[two], undo_id=undo) == {"undo_id"}
    assert call.see(two)["state"] == "ENQUEUED"
