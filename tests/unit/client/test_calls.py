"""What the client sends, and how it reads what comes back."""

import json
import math
from datetime import UTC, datetime
from typing import Any

import httpx2 as httpx
import pytest

from headrace import Client, NewTask
from headrace.client.calls import Consumed
from headrace.client.codec import Unreadable
from headrace.domain.errors import InvalidRequest
from headrace.testing import MemoryService
from tests.unit.client.network import AT, Network, Reply, enqueued, reply

TASK: dict[str, Any] = {
    "id": "t1",
    "queue": "mail",
    "state": "ENQUEUED",
    "status": "READY",
    "payload": {"to": "ada"},
    "tags": {},
    "dedupe_key": None,
    "created_at": AT,
    "scheduled_at": AT,
    "expires_at": None,
    "attempts": 0,
    "max_retries": 5,
    "keepalive_timeout_in_seconds": None,
    "lease_expires_at": None,
    "worker": None,
    "progress": None,
    "started_at": None,
    "finished_at": None,
    "result": None,
    "dead_reason": None,
    "errors": [],
    "trail": [],
    "retained_until": None,
    "schedule": None,
}


def client_on(*replies: Reply) -> tuple[Client, Network]:
    wire = Network(list(replies))
    return Client("http://queue.test", "hr_secret", transport=wire, sleep=wire.sleep), wire


def test_a_call_never_carries_more_than_the_service_takes() -> None:
    client, wire = client_on(enqueued)
    client.enqueue_many("mail", (NewTask(payload="x" * 250_000) for _ in range(25)))
    assert len(wire.requests) == 2
    assert all(len(request.content) <= 4 * 1024 * 1024 for request in wire.requests)


def test_a_bad_task_is_named_by_its_place_among_all() -> None:
    client, _ = client_on(enqueued)
    tasks = [NewTask(payload=n) for n in range(40)] + [NewTask(payload=math.nan)]
    with pytest.raises(InvalidRequest, match=r"tasks\[40\].payload cannot be written as JSON"):
        client.enqueue_many("mail", tasks)


def test_one_unreadable_payload_leaves_the_others_readable() -> None:
    leased = {**TASK, "lease": {"id": "l", "expires_at": AT}}
    text = json.dumps({"tasks": [leased, leased], "now": AT, "poll_after_seconds": 1})
    text = text.replace('{"to": "ada"}', "9" * 5000, 1)
    client, _ = client_on(httpx.Response(200, content=text.encode()))
    bad, good = client.dequeue("mail", batch_size=2).tasks
    assert good.payload == {"to": "ada"}
    with pytest.raises(Unreadable):
        _ = bad.payload


def test_a_field_that_only_a_newer_service_knows_is_ignored() -> None:
    client, _ = client_on(reply(200, {**TASK, "colour": "red"}))
    assert client.get_task("t1").id == "t1"


def test_a_list_asks_for_a_page_only_when_it_is_needed() -> None:
    client, wire = client_on(
        reply(200, {"tasks": [TASK, TASK], "cursor": "more"}),
        reply(200, {"tasks": [], "cursor": "yet more"}),
        reply(200, {"tasks": [TASK], "cursor": None}),
    )
    tasks = client.list_tasks("mail", state=["DEAD", "READY"], tags={"a.b": "c d"}, payload=True)
    assert not wire.requests
    next(tasks)
    assert len(wire.requests) == 1
    assert len(list(tasks)) == 2
    assert dict(wire.requests[1].url.params) == {
        "state": "DEAD,READY",
        "tag.a.b": "c d",
        "payload": "true",
        "cursor": "more",
    }


def test_a_bulk_action_goes_on_to_the_end_of_the_filtered_set() -> None:
    client, wire = client_on(
        reply(200, {"matched": 250, "changed": 249, "results": [], "cursor": "c"}),
        reply(200, {"matched": 3, "changed": 3, "results": [], "cursor": None}),
    )
    since = datetime(2026, 1, 1, tzinfo=UTC)
    done = client.move_tasks("mail", "later", state="dead", scheduled_after=since)
    assert (done.matched, done.changed) == (253, 252)
    assert wire.body(1) == {
        "filter": {"state": "DEAD", "scheduled_after": "2026-01-01T00:00:00.000000Z"},
        "cursor": "c",
        "dry_run": False,
        "to_queue": "later",
    }


def test_names_are_escaped_in_paths() -> None:
    client, wire = client_on(reply(200, {"command": "quiet"}))
    command = client.put_worker(
        "höst/1:4711?#",
        queues=["mail"],
        concurrency=1,
        running=[],
        version="1",
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    assert command == "quiet"
    assert wire.requests[0].url.raw_path == b"/v1/workers/h%C3%B6st%2F1%3A4711%3F%23"


def test_what_the_calls_cost_is_added_up() -> None:
    first, second = reply(200, TASK), reply(200, TASK)
    first.headers["X-Consumed-Units"] = "w=0, r=0.5"
    second.headers["X-Consumed-Units"] = "w=16, r=2"
    client, _ = client_on(first, second)
    client.get_task("t1")
    client.get_task("t1")
    assert client.consumed == Consumed(calls=2, write_units=16, read_units=2.5)


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ({"queue": "mail", "queues": ["news"]}, {"queue", "queues"}),
        ({"queues": "mail"}, {"queues"}),
    ],
)
def test_a_dequeue_names_one_queue_or_a_list(given: dict[str, Any], fields: set[str]) -> None:
    with MemoryService() as service, pytest.raises(InvalidRequest) as refused:
        service.client.dequeue(**given)

    assert {error.field for error in refused.value.errors} == fields
