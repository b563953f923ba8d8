"""Waiting for the end of a task over HTTP: what is asked, what is answered, and who may."""

from collections.abc import Callable
from dataclasses import replace

from headrace.domain.access import Role
from tests.functional.conftest import Service
from tests.functional.roles import keyed

WAIT = {"wait_seconds": "20"}


def meanwhile(call: Service, step: Callable[[], object]) -> None:
    """Let the first pause of whoever waits be *step*, and every pause time."""
    steps = [step]

    def sleep(seconds: float) -> None:
        call.clock.forward(seconds)
        if steps:
            steps.pop()()

    call.use.sleep, call.use.waiting.task_ends = sleep, None


def test_the_answer_comes_with_the_end(call: Service) -> None:
    path = call.queue()
    (task_id,) = call.put(path, {"to": "ada"})
    meanwhile(call, lambda: call.say(call.take(path)[0], "SUCCEEDED", result={"sent": 1}))

    answer = call("GET", f"/v1/tasks/{task_id}", query=WAIT)

    assert answer.status == 200
    shown = answer.json
    assert (shown["state"], shown["result"]) == ("SUCCEEDED", {"sent": 1})
    assert shown["payload"] == {"to": "ada"}


def test_a_request_waits_no_longer_than_the_deployment_allows(call: Service) -> None:
    path = call.queue()
    (task_id,) = call.put(path, delay_in_seconds=60)
    meanwhile(call, lambda: None)
    call.use.settings = replace(call.use.settings, long_poll_seconds=2)
    before = call.clock()

    assert call("GET", f"/v1/tasks/{task_id}", query=WAIT).status == 200

    assert (call.clock() - before).total_seconds() <= 3


def test_a_key_sees_no_task_that_leaves_its_queues_meanwhile(call: Service) -> None:
    call.queue("other")
    path = call.queue("mail")
    (task_id,) = call.put(path)
    producer = keyed(call, Role.PRODUCER, "mail")
    meanwhile(call, lambda: call.say(call.take(path)[0], "MOVED", to_queue="other"))

    assert producer("GET", f"/v1/tasks/{task_id}", query=WAIT).status == 403
    assert producer("GET", "/v1/tasks/nobody", query=WAIT).status == 403


def test_a_key_that_is_revoked_meanwhile_waits_no_longer(call: Service) -> None:
    (task_id,) = call.put(call.queue())
    viewer = keyed(call, Role.VIEWER)
    (key,) = call("GET", "/v1/keys").json["keys"]
    meanwhile(call, lambda: call("DELETE", f"/v1/keys/{key['id']}"))

    assert viewer("GET", f"/v1/tasks/{task_id}", query=WAIT).status == 401
