"""Names that are reserved for the service: refused wherever a client may write them."""

from typing import Any

import pytest

from headrace import App
from headrace.client.codec import PLAIN
from headrace.domain.limits import RELAY_TASK
from headrace.testing import MemoryService
from tests.functional.conftest import Answer, Service

RESERVED = [{"task": RELAY_TASK, "args": {}}, {"a": "é", "task": "headrace.anything"}]
ESCAPED = [
    r'{"\u0074ask": "headrace\u002erelay"}',
    '{"task": "mine", "task": "headrace.relay"}',
    r'{"task": "headrace.relay", "half": "\ud800"}',
    '{"n": ' + "9" * 5_000 + ', "task": "headrace.relay"}',
]


@pytest.fixture
def mail(call: Service) -> str:
    call.queue("other")
    return call.queue("mail")


def refused(answer: Answer, field: str) -> None:
    assert (answer.status, answer.json["code"]) == (400, "invalid_request"), answer.body
    assert answer.fields == {field}
    assert "headrace." in answer.json["errors"][0]["message"]


@pytest.mark.parametrize("payload", RESERVED)
def test_an_enqueue_is_refused_as_a_whole(call: Service, mail: str, payload: Any) -> None:
    answer = call("POST", f"{mail}/tasks", {"tasks": [{"payload": 1}, {"payload": payload}]})

    refused(answer, "tasks[1].payload.task")
    assert call.take(mail, 2) == []


@pytest.mark.parametrize("text", ESCAPED)
def test_a_reserved_name_is_found_however_it_is_written(
    call: Service, mail: str, text: str
) -> None:
    answer = call("POST", f"{mail}/tasks", '{"tasks": [{"payload": ' + text + "}]}")

    refused(answer, "tasks[0].payload.task")


def test_every_payload_that_a_client_writes_is_checked(call: Service, mail: str) -> None:
    call.put(mail, 1, dedupe_key="k")
    (task,) = call.take(mail)
    reserved = {"payload": RESERVED[0]}
    overwrite = {**reserved, "dedupe_key": "k", "overwrite_on_duplicate": ["payload"]}
    refused(call("POST", f"{mail}/tasks", {"tasks": [overwrite]}), "tasks[0].payload.task")
    spawn = [{"queue": "mail", **reserved}]
    refused(report(call, task, "SUCCEEDED", spawn=spawn), "reports[0].spawn[0].payload.task")
    moved = report(call, task, "MOVED", to_queue="other", **reserved)
    refused(moved, "reports[0].payload.task")
    put = call("PUT", f"{mail}/schedules/s", {"every_seconds": 60, **reserved})
    refused(put, "payload.task")
    for event in ("ended", "succeeded", "failed"):
        batch = call("POST", "/v1/batches", {"on": {event: {"queue": "mail", **reserved}}})
        refused(batch, f"on.{event}.payload.task")
    call.queue("ngsi.notify")
    refused(call("POST", "/v2/notify", RESERVED[0]), "task")
    assert call.say(task, "INFLIGHT")["outcome"] == "OK"


def report(call: Service, task: dict[str, Any], status: str, **fields: Any) -> Answer:
    entry = {"task_id": task["id"], "lease_id": task["lease"]["id"], "status": status, **fields}
    return call("POST", f"/v1/queues/{task['queue']}/reports", {"reports": [entry]})


@pytest.mark.parametrize(
    "result",
    [{"headrace.members_of": "bat_1"}, r'{"headrace\u002ex": 1}'],
)
def test_a_result_with_a_reserved_member_is_invalid(call: Service, mail: str, result: Any) -> None:
    call.put(mail, 1, 2)
    one, other = call.take(mail, 2)
    entries = [
        {"task_id": task["id"], "lease_id": task["lease"]["id"], "status": "SUCCEEDED"}
        for task in (one, other)
    ]
    text = PLAIN.encode(entries[1]).decode()
    given = result if isinstance(result, str) else PLAIN.encode(result).decode()
    first = PLAIN.encode(entries[0]).decode()[:-1] + f',"result":{given}' + "}"

    answer = call("POST", f"{mail}/reports", f'{{"reports": [{first}, {text}]}}')

    assert answer.status == 200
    invalid, fine = answer.json["results"]
    assert (invalid["outcome"], fine["outcome"]) == ("INVALID", "OK")
    assert invalid["detail"].startswith("result ")
    assert "headrace." in invalid["detail"]
    assert call.say(one, "SUCCEEDED", result={"deep": {"headrace.x": 1}})["outcome"] == "OK"


class Rot13:
    """A codec whose texts tell a client that knows it from one that does not."""

    private = True

    def encode(self, value: object) -> bytes:
        return PLAIN.encode({"secret": PLAIN.encode(value).hex()})

    def decode(self, text: bytes) -> Any:
        found = PLAIN.decode(text)
        assert isinstance(found, dict)
        return PLAIN.decode(bytes.fromhex(str(found["secret"])))


def test_an_encoded_payload_is_never_a_relay() -> None:
    app = App(queue="work", codec=Rot13())

    @app.task
    def known() -> None: ...

    with MemoryService() as made, made.serving(app):
        app.ensure_queues()
        task = app.client.enqueue("work", {"task": RELAY_TASK, "args": {}})

        made.run(app)

        dead = app.client.get_task(str(task.id))
        assert dead.attempts == 1
        assert dead.errors[-1].type == "UnknownTask"


def test_a_relay_stands_for_the_batch_whose_callback_it_is(call: Service, mail: str) -> None:
    call("POST", "/v1/batches", {"id": "outer"})
    on = {"ended": {"queue": "mail", "relay": True, "batches": ["outer"]}}
    made = call("POST", "/v1/batches", {"id": "inner", "total": 1, "on": on})
    assert made.status == 201, made.body
    again = call("POST", "/v1/batches", {"id": "inner", "total": 1, "on": on})
    assert again.status == 200
    both = {"ended": {"queue": "mail", "relay": True, "payload": 1}}
    assert call("POST", "/v1/batches", {"on": both}).fields == {"on.ended.relay"}
