"""The queues of a key: every route stays inside them, and tells nothing of others."""

from dataclasses import replace

import pytest

from tests.functional.conftest import KEY, Service
from tests.functional.roles import (
    ADMIN,
    OF_A_QUEUE,
    OF_A_TASK,
    OPERATOR,
    PRODUCER,
    VIEWER,
    WORKER,
    everything,
    keyed,
    send,
    tasks,
)


@pytest.mark.parametrize("route", OF_A_QUEUE)
def test_a_queue_outside_is_refused_whether_it_exists_or_not(filled: Service, route: str) -> None:
    service = keyed(filled, ADMIN, "ngsi.*")
    before = everything(filled)
    details = set()

    for queue in ("mail", "nobody", "ngsi", "ng%73i", "xngsi.notify", "a b"):
        answer = send(service, route, queue=queue)
        assert (answer.status, answer.json["code"]) == (403, "forbidden"), queue
        details.add(answer.json["detail"].rpartition(" queue ")[0])

    assert details == {"this key is not for"}
    assert everything(filled) == before


@pytest.mark.parametrize("route", OF_A_TASK)
def test_a_task_outside_and_a_task_that_is_not_there_are_refused_alike(
    filled: Service, route: str
) -> None:
    service = keyed(filled, ADMIN, "ngsi.*")
    outside = tasks(filled, "mail")[0]["id"]
    before = everything(filled)

    answers = [send(service, route, id=task_id) for task_id in (outside, "nobody", "not an id")]

    assert {answer.status for answer in answers} == {403}
    assert len({answer.json["detail"].split(" task ")[0] for answer in answers}) == 1
    assert everything(filled) == before
    inside = tasks(filled, "ngsi.notify")[0]["id"]
    assert send(service, route, id=inside).status in {200, 204}
    assert send(replace(filled, key=KEY), route, id="nobody").status == 404


def test_only_the_own_queues_are_listed_and_pages_tell_nothing_of_others(call: Service) -> None:
    for name in ("a", "ngsi.1", "ngsi.2", "o", "ngsi.3", "z"):
        call.queue(name)
    service = keyed(call, VIEWER, "ngsi.*")

    first = service("GET", "/v1/queues", query={"limit": "2"}).json
    query = {"limit": "1", "cursor": first["cursor"]}
    last = service("GET", "/v1/queues", query=query).json

    assert [queue["name"] for queue in first["queues"]] == ["ngsi.1", "ngsi.2"]
    assert [queue["name"] for queue in last["queues"]] == ["ngsi.3"]
    assert last["cursor"] is None
    assert service("GET", "/v1/queues", query={"prefix": "a"}).json["queues"] == []


def test_a_repeated_move_does_not_show_a_task_that_has_left_the_queues_of_the_key(
    call: Service,
) -> None:
    for queue in ("ngsi.a", "ngsi.b", "mail"):
        call.queue(queue)
    worker = keyed(call, WORKER, "ngsi.*")
    call.put("/v1/queues/ngsi.a", 1)
    (task,) = worker.take("/v1/queues/ngsi.a")
    move = {"to_queue": "ngsi.b", "spawn": [{"queue": "ngsi.b"}]}
    assert worker.say(task, "MOVED", **move)["state"] == "ENQUEUED"
    assert worker.say(task, "MOVED", **move)["state"] == "ENQUEUED"
    body = {"ids": [task["id"]], "to_queue": "mail"}
    assert call("POST", "/v1/queues/ngsi.b/tasks/move", body).json["changed"] == 1

    again = worker.say(task, "MOVED", **move)

    assert (again["outcome"], again["state"], again["scheduled_at"]) == ("OK", None, None)


def test_an_id_that_is_in_a_queue_outside_exists_and_its_queue_is_not_named(
    filled: Service,
) -> None:
    filled.put("/v1/queues/mail", id="secret-1")
    body = {"tasks": [{"id": "secret-1"}]}

    inside = keyed(filled, PRODUCER, "ngsi.*")("POST", "/v1/queues/ngsi.notify/tasks", body)
    both = keyed(filled, PRODUCER, "ngsi.*", "mail")("POST", "/v1/queues/ngsi.notify/tasks", body)

    (result,) = inside.json["results"]
    assert (result["outcome"], result["task"], result["queue"]) == ("EXISTING", None, None)
    assert "mail" not in inside.body
    assert both.json["results"][0]["queue"] == "mail"


def test_a_trail_shows_only_the_queues_of_the_key(call: Service) -> None:
    for name in ("mail", "ngsi.a", "ngsi.b"):
        call.queue(name)
    call.put("/v1/queues/mail", "letter", id="letter")
    for source, target in (("mail", "ngsi.a"), ("ngsi.a", "ngsi.b")):
        call.clock.forward(1)
        body = {"ids": ["letter"], "to_queue": target}
        assert call("POST", f"/v1/queues/{source}/tasks/move", body).json["changed"] == 1
    ways = {}
    for key, name in ((call, "all"), (keyed(call, ADMIN, "ngsi.*"), "own")):
        again = {"tasks": [{"id": "letter"}]}
        shown = [
            key("GET", "/v1/tasks/letter").json,
            *key("GET", "/v1/queues/ngsi.b/tasks").json["tasks"],
            key("POST", "/v1/queues/ngsi.b/tasks", again).json["results"][0]["task"],
            *key.take("/v1/queues/ngsi.b", keepalive_timeout_in_seconds=1),
        ]
        call.clock.forward(60)
        call.use.reaping.run()
        call.clock.forward(60)
        assert len(shown) == 4
        ways[name] = [[hop["queue"] for hop in task["trail"]] for task in shown]

    assert ways == {"all": [["mail", "ngsi.a"]] * 4, "own": [[None, "ngsi.a"]] * 4}


def test_where_tasks_went_is_audited_as_far_as_it_is_the_keys_own(call: Service) -> None:
    for name in ("mail", "ngsi.a", "ngsi.b"):
        call.queue(name)
    for target in ("mail", "ngsi.b"):
        call.clock.forward(1)
        call("POST", "/v1/queues/ngsi.a/tasks/move", {"filter": {}, "to_queue": target})
    call.clock.forward(1)
    call("POST", "/v1/queues/ngsi.a/tasks/move", {"ids": ["x"], "to_queue": "mail"})
    service = keyed(call, OPERATOR, "ngsi.*")

    def targets(of: Service) -> list[str | None]:
        entries = of("GET", "/v1/audit", query={"action": "move"}).json["entries"]
        return [entry["filter"]["to_queue"] for entry in entries]

    assert targets(call) == ["mail", "ngsi.b", "mail"]
    assert targets(service) == [None, "ngsi.b", None]
