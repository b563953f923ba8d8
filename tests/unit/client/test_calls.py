"""What the client sends, and how it reads what comes back."""

import hashlib
import json
import math
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from headrace import Client, NewTask
from headrace.client.calls import Consumed
from headrace.client.codec import Unreadable
from headrace.client.payloads import fetched
from headrace.domain.errors import HeadraceError, InvalidRequest
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


# -- waiting for the end of a task -----------------------------------------------------------------


def look(poll_after: float, **task: Any) -> Any:
    headers = {"X-Poll-After": str(poll_after)}
    return reply(200, {**TASK, **task}, headers=headers)


def waiting(*looks: Any) -> tuple[Client, Network]:
    wire = Network([*looks])
    return Client("http://queue.test", "k", transport=wire, sleep=wire.sleep), wire


DONE = {"state": "SUCCEEDED", "status": "SUCCEEDED", "result": 5}


def test_a_long_poll_is_used_where_waiting_is_free() -> None:
    client, wire = waiting(look(0.02), look(0.02, **DONE))

    assert client.wait("t1").result == 5

    assert float(wire.requests[1].url.params["wait_seconds"]) >= 2


def test_one_that_is_paid_for_while_it_waits_is_asked_again_ever_later() -> None:
    client, wire = waiting(*[look(1.0)] * 7, look(1.0, **DONE))

    client.wait("t1")

    assert wire.waits == [1, 1.5, 2.25, 3.375, 5, 5, 5]


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_negative_timeout_and_nan_are_refused(timeout: float) -> None:
    with pytest.raises(InvalidRequest, match="timeout"):
        waiting(look(1.0))[0].wait("t1", timeout=timeout)


# -- file: addresses in answers --------------------------------------------------------------------


def serving(answer: Callable[[], object]) -> Client:
    """Return a client of a service that gives *answer* to everything."""
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=answer()))
    return Client("http://127.0.0.1:9", "a-key", transport=transport, retries=0)


@pytest.mark.parametrize("scheme", ["file", " file"])
def test_a_payload_url_of_a_local_file_is_refused(tmp_path: Path, scheme: str) -> None:
    (tmp_path / "secret").write_text("x")
    url = f"{scheme}://{tmp_path}/secret"
    digest = hashlib.sha256(b"x").hexdigest()
    lease = {"id": "l", "expires_at": AT}
    task = {**TASK, "lease": lease, "payload_url": url, "payload_sha256": digest}
    answer = {"tasks": [task], "poll_after_seconds": 1, "now": AT}

    with serving(lambda: answer) as client, pytest.raises(HeadraceError, match="payload_url"):
        client.dequeue("mail")


def test_an_upload_to_a_local_file_is_refused_before_the_first_write(tmp_path: Path) -> None:
    content, there = tmp_path / "content", tmp_path / "there"
    content.write_text("x")
    granted = {
        "payload_ref": "r",
        "url": there.as_uri(),
        "headers": {},
        "expires_at": "2030-01-01T00:00:00Z",
    }

    with serving(lambda: granted) as client, pytest.raises(HeadraceError, match="file of this"):
        client.upload("mail", content)
    assert not there.exists()


def test_payload_files_beside_a_file_are_readable_by_their_owner_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_PAYLOAD_OFFLOAD_BYTES", "32768")
    before = os.umask(0o000)
    try:
        with Client(f"file:{tmp_path}/tasks.db") as client:
            client.create_queue("mail")
            content = tmp_path / "content"
            content.write_bytes(b"x" * 50_000)
            client.enqueue_file("mail", content)
            client.enqueue("mail", "y" * 50_000)
            uploaded, large = client.dequeue("mail", batch_size=2).tasks
            got = fetched(uploaded, tmp_path / "got")
    finally:
        os.umask(before)

    assert got.read_bytes() == content.read_bytes()
    assert json.loads(bytes(large.payload_json)) == "y" * 50_000
    kept = [path for path in (tmp_path / "tasks.db-payloads").rglob("*") if path.is_file()]
    assert len(kept) == 2
    assert {path.stat().st_mode & 0o777 for path in kept} == {0o600}
