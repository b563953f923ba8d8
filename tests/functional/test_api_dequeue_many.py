"""`POST /v1/dequeue`: one call for several queues."""

from typing import Any

import pytest

from tests.functional.conftest import Answer, Service
from tests.functional.roles import ADMIN, PRODUCER, WORKER, keyed


def ask(call: Service, *queues: str, **body: Any) -> Answer:
    call.clock.forward(0.001)
    return call("POST", "/v1/dequeue", {"queues": queues, **body})


@pytest.fixture
def filled(call: Service) -> Service:
    """Give two queues, what stands in the second having fallen due first."""
    for name in ("mail", "news"):
        call.queue(name)
    for name in ("news", "mail"):
        call.put(f"/v1/queues/{name}", f"{name} 1", f"{name} 2")
        call.clock.forward(0.001)
    return call


def test_each_task_says_its_queue_and_is_reported_on_there(filled: Service) -> None:
    answer = ask(filled, "mail", "news", batch_size=3, worker="ada:1")

    assert answer.status == 200
    assert set(answer.json) == {"tasks", "now", "poll_after_seconds"}
    tasks = answer.json["tasks"]
    assert [(task["queue"], task["payload"]) for task in tasks] == [
        ("mail", "mail 1"),
        ("mail", "mail 2"),
        ("news", "news 1"),
    ]
    assert {filled.say(task, "SUCCEEDED")["outcome"] for task in tasks} == {"OK"}


def test_by_due_the_oldest_come_first(filled: Service) -> None:
    tasks = ask(filled, "mail", "news", batch_size=3, order="due").json["tasks"]

    assert [task["payload"] for task in tasks] == ["news 1", "news 2", "mail 1"]


def test_a_missing_queue_is_named_and_nothing_is_leased(filled: Service) -> None:
    answer = ask(filled, "mail", "nowhere", batch_size=25)

    assert (answer.status, answer.json["code"]) == (404, "not_found")
    assert answer.fields == {"queues[1]"}
    assert len(ask(filled, "mail", "news", batch_size=25).json["tasks"]) == 4


def test_a_queue_outside_the_key_is_refused_and_nothing_is_leased(filled: Service) -> None:
    worker = keyed(filled, WORKER, "mail")

    answer = ask(worker, "mail", "news", "nowhere", batch_size=25)

    assert (answer.status, answer.fields) == (403, {"queues[1]"})
    assert len(ask(worker, "mail", batch_size=25).json["tasks"]) == 2


def test_it_takes_a_worker(filled: Service) -> None:
    assert ask(keyed(filled, PRODUCER), "mail").status == 403
    assert ask(keyed(filled, ADMIN), "mail").status == 200


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, {"queues"}),
        ({"queues": []}, {"queues"}),
        ({"queues": [f"q{number}" for number in range(33)]}, {"queues"}),
        ({"queues": ["mail", "news", "mail"]}, {"queues[2]"}),
        ({"queues": ["mail", "mail", "mail"]}, {"queues[1]", "queues[2]"}),
        ({"queues": ["mail", "no queue"]}, {"queues[1]"}),
        ({"queues": "mail"}, {"queues"}),
        ({"queues": ["mail"], "order": "random"}, {"order"}),
        ({"queues": ["mail"], "batch_size": 26}, {"batch_size"}),
        ({"queues": ["mail"], "queue": "mail"}, {"queue"}),
    ],
)
def test_what_makes_no_sense_is_named(filled: Service, body: Any, fields: set[str]) -> None:
    answer = filled("POST", "/v1/dequeue", body)

    assert (answer.status, answer.fields) == (400, fields)


def test_thirty_two_queues_are_taken(call: Service) -> None:
    names = [f"q{number}" for number in range(32)]
    for name in names:
        call.queue(name)
    call.put("/v1/queues/q31")

    (task,) = ask(call, *names).json["tasks"]

    assert task["queue"] == "q31"


def test_it_is_repeated_under_its_key(filled: Service) -> None:
    def sent(**body: Any) -> Answer:
        whole = {"queues": ["mail", "news"], "batch_size": 3, **body}
        return filled("POST", "/v1/dequeue", whole, {"Idempotency-Key": "k"})

    filled.clock.forward(0.001)
    first, again, other = sent(), sent(), sent(order="due")

    assert again.headers["idempotent-replay"] == "true"
    assert "idempotent-replay" not in first.headers
    assert [task["lease"] for task in again.json["tasks"]] == [
        task["lease"] for task in first.json["tasks"]
    ]
    assert (other.status, other.json["code"]) == (409, "idempotency_conflict")


def test_a_lease_that_has_ended_is_said(filled: Service) -> None:
    lease = filled("POST", "/v1/leases").json["lease"]["id"]
    tasks = ask(filled, "mail", "news", batch_size=25, lease_id=lease).json["tasks"]
    assert {task["lease"]["id"] for task in tasks} == {lease}
    filled("DELETE", f"/v1/leases/{lease}")

    answer = ask(filled, "mail", lease_id=lease)

    assert (answer.status, answer.json["code"]) == (409, "lease_lost")
