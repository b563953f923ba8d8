"""Deleting with an undo over HTTP: what is answered, what comes back, and who may."""

from tests.functional.conftest import Service


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
    assert [one["outcome"] for one in answer.json["results"]] == ["RESTORED"]
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
