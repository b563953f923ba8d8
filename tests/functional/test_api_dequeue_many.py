"""`POST /v1/dequeue`: one call for several queues."""

from typing import Any

import pytest

from tests.functional.conftest import Answer, Service
from tests.functional.roles import WORKER, keyed


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


def test_a_queue_outside_the_key_is_refused_and_nothing_is_leased(filled: Service) -> None:
    worker = keyed(filled, WORKER, "mail")

    answer = ask(worker, "mail", "news", "nowhere", batch_size=25)

    assert (answer.status, answer.fields) == (403, {"queues[1]"})
    assert len(ask(worker, "mail", batch_size=25).json["tasks"]) == 2
