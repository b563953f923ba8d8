"""Calls that are sent again after a lost answer: the service knows them by their key."""

import json
from collections.abc import Callable
from typing import Any

import httpx2 as httpx
import pytest

from headrace import Client, Report
from headrace.client.sending import SpawnedTask
from headrace.domain.errors import Conflict
from tests.faults import FaultyService
from tests.unit.client.network import Network, problem

LOST = httpx.ReadTimeout("no answer")
KEY, ATTEMPT = "Idempotency-Key", "X-Attempt"

CALLS: dict[str, Callable[[Client], object]] = {
    "pause_queue": lambda client: client.pause_queue("mail", 60),
    "delete_tasks": lambda client: client.delete_tasks("mail", ids=["t1"]),
    "enqueue": lambda client: client.enqueue("mail", 1),
    "dequeue": lambda client: client.dequeue("mail"),
    "call": lambda client: client.call("post", "/v1/queues/mail/pause"),
}
"""Calls that change something, except reports and leases, which are safe by themselves."""


def client_on(*replies: object) -> tuple[Client, Network]:
    wire = Network(list(replies))  # type: ignore[arg-type]  # as the tests say
    return Client("http://queue.test", "hr_secret", transport=wire, sleep=wire.sleep), wire


@pytest.mark.parametrize("name", CALLS)
def test_each_try_of_a_call_carries_one_key_and_each_call_its_own(name: str) -> None:
    refused = problem(403, "forbidden")
    keys = []
    for _ in range(2):
        client, wire = client_on(LOST, problem(503, "unavailable"), problem(500, "x"), refused)
        with pytest.raises(Exception, match="no"):
            CALLS[name](client)
        keys += [{request.headers[KEY] for request in wire.requests}]
        assert len(wire.requests) == 4

    assert [len(key) for key in keys] == [1, 1]
    assert keys[0] != keys[1]


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.report("mail", []) or client.extend_lease("lsg_1"),
        lambda client: client.get_queue("mail"),
        lambda client: client.restart_tasks("mail", all=True, dry_run=True),
        lambda client: client.open_lease(),
    ],
)
def test_what_a_repeat_does_no_harm_to_carries_none(call: Callable[[Client], object]) -> None:
    client, wire = client_on(LOST, problem(403, "forbidden"))
    with pytest.raises(Exception, match="no"):
        call(client)
    assert len(wire.requests) == 2
    assert not any(KEY in request.headers for request in wire.requests)


def test_an_overwrite_whose_answer_was_lost_takes_effect_once() -> None:
    with FaultyService() as service:
        client = service.client
        client.create_queue("mail")
        client.enqueue("mail", "v0", id="holder", dedupe_key="ada")

        def overtake(_: float) -> None:
            client.enqueue("mail", "v2", dedupe_key="ada", overwrite_on_duplicate=["payload"])

        slow = Client(service.url, service.key, transport=service.transport, sleep=overtake)
        with service.faults.lose_answers(of="enqueue", times=1) as fault:
            done = slow.enqueue("mail", "v1", dedupe_key="ada", overwrite_on_duplicate=["payload"])

        assert (fault.struck, done.outcome, done.id) == (1, "OVERWRITTEN", "holder")
        assert client.get_task("holder").payload == "v2"


def test_a_key_whose_secret_was_lost_is_named() -> None:
    with FaultyService() as service:
        with service.faults.lose_answers(times=1), pytest.raises(Conflict) as refused:
            service.client.create_key("ada", "worker", ["*"])

        (made,) = service.client.list_keys()
        assert made.id in refused.value.detail
        assert "delete it and make another" in refused.value.detail


class NeverTheSame:
    """A codec whose texts differ each time, as encrypted ones do."""

    private = True

    def __init__(self) -> None:
        self._times = 0

    def encode(self, value: object) -> bytes:
        self._times += 1
        return json.dumps([self._times, value]).encode()

    def decode(self, text: bytes) -> Any:
        return json.loads(text)[1]


def test_a_report_that_is_sent_again_says_the_same() -> None:
    with FaultyService() as service:
        service.client.create_queue("mail")
        client = service.connect(codec=NeverTheSame())
        client.enqueue("mail", 1)
        (task,) = client.dequeue("mail").tasks
        child = SpawnedTask(queue="mail", payload="child")
        report = Report.on(task, "SUCCEEDED", result="done", spawn=[child])

        first, again = (client.report("mail", [report])[0] for _ in "ab")

        assert (first.outcome, again.outcome) == ("OK", "OK")
        assert [one.outcome for one in (*first.spawned, *again.spawned)] == ["CREATED", "EXISTING"]
        assert first.spawned[0].id == again.spawned[0].id
