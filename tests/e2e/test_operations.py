"""Every operation of the API, each once, against the service at HEADRACE_STAGE_URL."""

import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

import httpx2 as httpx
import pytest

from headrace import Client, NewTask, Report
from headrace.client.calls import ApiCall, RawAnswer
from headrace.domain.errors import (
    Conflict,
    Finished,
    Forbidden,
    InvalidRequest,
    LeaseLost,
    NotFound,
)
from headrace.runtime.function import ALWAYS
from headrace.wire.tasks import LeasedTask, Task
from tests.e2e.conftest import soon

pytestmark = pytest.mark.gate

NAME = f"e2e-{secrets.token_hex(4)}"
OTHER = f"{NAME}-2"
LARGE = "ñ水" * 40_000  # 200,000 bytes; the answer with five of them is more than 1 MB
DAY = 86_400
NGSI = "/management/queue/notifications"
UNITS = re.compile(r"w=[0-9.]+, r=[0-9.]+")


class Recording(httpx.BaseTransport):
    """Sends requests, and keeps method and path of each with the answer's headers."""

    def __init__(self) -> None:
        self._inner = httpx.HTTPTransport()
        self.answers: list[tuple[str, str, int, httpx.Headers]] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._inner.handle_request(request)
        seen = (request.method, request.url.path, answer.status_code, answer.headers)
        self.answers.append(seen)
        return answer

    def close(self) -> None:
        self._inner.close()


@pytest.fixture(scope="module")
def wire() -> Recording:
    return Recording()


@pytest.fixture(scope="module")
def api(wire: Recording) -> Iterator[Client]:
    url, key = os.environ["HEADRACE_STAGE_URL"], os.environ["HEADRACE_KEY"]
    with Client(url, key, transport=wire) as client:
        yield client
        client.delete_queue(NAME)


def text(answer: RawAnswer) -> str:
    return answer.body.decode()


def take(api: Client, queue: str, number: int, **options: Any) -> dict[str, LeasedTask]:
    """Lease that *number* of tasks, however late the index shows them."""
    held: dict[str, LeasedTask] = {}

    def look() -> bool:
        found = api.dequeue(queue, batch_size=number, wait_seconds=2, worker=NAME, **options)
        held.update({task.id: task for task in found.tasks})
        return len(held) == number

    soon(look, seconds=30, what=f"{number} leased tasks of {queue}")
    return held


def test_queues(api: Client) -> None:
    settings: Any = {"retry_strategy": {"kind": "fixed", "base_seconds": 0}}
    api.create_queue(NAME, **settings, priority={"aging_in_seconds": 300})
    api.create_queue(OTHER, **settings)
    assert [one.name for one in api.list_queues(NAME)] == [NAME, OTHER]

    shown = api.get_queue(OTHER)
    assert api.edit_queue(OTHER, description="changed").version == shown.version + 1
    with pytest.raises(Conflict):
        api.reindex_queue(OTHER)  # it has no index
    secret = api.get_signing_secret(OTHER)
    assert api.rotate_signing_secret(OTHER).previous == secret.secret
    assert api.pause_queue(OTHER, 60).pause is not None
    assert api.resume_queue(OTHER).pause is None
    with pytest.raises(NotFound):
        api.get_group(NAME, "none")


def test_keys(api: Client) -> None:
    made = api.create_key(NAME, "viewer", [NAME])
    rotated = api.rotate_key(made.id)
    assert made.id in [key.id for key in api.list_keys()]
    assert api.get_key(made.id).name == NAME
    with Client(os.environ["HEADRACE_STAGE_URL"], rotated.secret) as viewer:
        assert viewer.get_queue(NAME).name == NAME
        with pytest.raises(Forbidden):
            viewer.get_queue(OTHER)
        with pytest.raises(Forbidden):
            viewer.enqueue(NAME)
    api.delete_key(made.id)
    assert next(iter(api.list_audit())).action


def test_the_life_of_tasks(api: Client) -> None:
    ids = [f"{NAME}-{number}" for number in range(4)]
    first = [NewTask(payload={"n": 1}, id=id) for id in ids]
    assert [one.outcome for one in api.enqueue_many(NAME, first)] == ["CREATED"] * 4
    assert [one.outcome for one in api.enqueue_many(NAME, first)] == ["EXISTING"] * 4
    held = take(api, NAME, 4)
    done, dead, moved, back = (held[id] for id in ids)

    [beat] = api.report(NAME, [Report.on(done, "INFLIGHT", progress={"step": 1})])
    reported = api.report(
        NAME,
        [
            Report.on(done, "SUCCEEDED", result=42),
            Report.on(dead, "FAILED", retryable=False),
            Report.on(moved, "MOVED", to_queue=OTHER, delay_in_seconds=DAY),
            Report.on(back, "RELEASED", delay_in_seconds=DAY),
        ],
    )

    assert [one.outcome for one in (beat, *reported)] == ["OK"] * 5
    found = [api.get_task(id).status for id in ids]
    assert found == ["SUCCEEDED", "DEAD", "SCHEDULED", "SCHEDULED"]
    assert [one.code for one in api.explain_task(back.id)] == ["scheduled"]


def test_an_operators_actions(api: Client) -> None:
    _, dead, moved, back = (f"{NAME}-{number}" for number in range(4))
    assert api.restart_tasks(NAME, ids=[dead]).changed == 1
    assert api.run_tasks(NAME, ids=[back]).changed == 1
    assert api.move_tasks(NAME, OTHER, ids=[back]).changed == 1
    assert api.cancel_tasks(OTHER, ids=[back]).changed == 1
    assert api.cancel_task(moved).dead_reason == "cancelled"

    lease = api.open_lease(NAME)
    assert [*take(api, NAME, 1, lease_id=lease.id)] == [dead]
    assert api.extend_lease(lease.id).id == lease.id
    api.close_lease(lease.id)
    with pytest.raises(LeaseLost):
        api.extend_lease(lease.id)

    kept = api.delete_task(moved, undo_in_seconds=60)
    assert kept is not None
    assert api.undo(kept.id).changed == 1


def test_actions_that_the_service_carries_out(api: Client) -> None:
    action = api.begin_action("run", [OTHER], worker="missing")
    for change in (api.pause_action, api.resume_action, api.cancel_action):
        with suppress(Finished):  # it finds no task, and may have ended
            change(action.id)
    assert api.get_action(action.id).changed == 0
    assert action.id in [one.id for one in api.list_actions(queue=OTHER)]


def test_lists_and_counts_of_large_payloads(api: Client) -> None:
    many = [NewTask(payload=LARGE, delay_in_seconds=DAY, tags={"size": "large"}) for _ in range(5)]
    api.enqueue_many(OTHER, many)

    def listed() -> list[Task] | None:
        found = list(api.list_tasks(OTHER, tags={"size": "large"}, payload=True))
        return found if len(found) == 5 else None

    assert {task.payload for task in soon(listed, seconds=30, what="5 tasks")} == {LARGE}
    assert api.count_tasks(OTHER, tags={"size": "large"}).count == 5
    assert api.delete_tasks(OTHER, tags={"size": "large"}).changed == 5
    assert api.purge_queue(OTHER, ["DEAD"]).deleted == 2
    with suppress(InvalidRequest):  # where payloads are not kept outside the table
        assert api.upload(OTHER, BytesIO(b"1"))


def test_batches(api: Client) -> None:
    assert api.create_batch(id=NAME).total is None
    assert [one.id for one in api.list_batches(prefix=NAME)] == [NAME]
    assert api.batch_results(NAME).results == []
    assert api.batch_steps(NAME).steps == []
    assert api.close_batch(NAME, 0).finished_at is not None
    assert api.get_batch(NAME).total == 0
    assert api.cancel_batch(NAME).cancelled == 0
    assert api.recount_batch(NAME).refusal is None
    api.delete_batch(NAME)


def test_schedules_and_workers(api: Client) -> None:
    api.put_schedule(OTHER, NAME, every_seconds=DAY, payload={"tick": True})
    assert api.get_schedule(OTHER, NAME).every_seconds == DAY
    assert [one.name for one in api.list_schedules(OTHER)] == [NAME]
    assert api.run_schedule(OTHER, NAME).outcome == "CREATED"
    api.dequeue(queues=[NAME, OTHER])
    api.delete_schedule(OTHER, NAME)

    now = datetime.now(UTC)
    api.put_worker(NAME, queues=[NAME], concurrency=1, running=[], version="1", started_at=now)
    assert NAME in [one.name for one in api.list_workers()]
    api.quiet_worker(NAME)
    api.stop_worker(NAME)


def test_counters(api: Client) -> None:
    def same() -> bool:
        found = api.recount_queue(NAME)
        return found.counts == found.was

    soon(same, seconds=60, what="counters as counted")
    assert api.get_stats(NAME).counts.succeeded == 1
    assert sum(point.succeeded or 0 for point in api.get_metrics(NAME).points) == 1


def test_ngsi(api: Client) -> None:
    with suppress(Conflict):
        api.create_queue("ngsi.notify")
    note = json.dumps({"subscriptionId": NAME, "data": [{"id": NAME, "type": "Room"}]}).encode()
    api.send(ApiCall("POST", "/v2/notify", text, body=lambda _: note))
    assert soon(lambda: api.call("GET", NGSI), seconds=30, what="a notification")
    assert api.call("GET", f"{NGSI}/summary")
    assert api.call("GET", f"{NGSI}/count")
    api.send(ApiCall("DELETE", NGSI, text))


def test_every_operation_was_called_and_every_answer_has_its_headers(
    api: Client, wire: Recording
) -> None:
    document = api.call("GET", "/v1/openapi.json")
    api.health()
    assert "html" in api.send(ApiCall("GET", "/v1/docs", text))
    api.delete_queue(OTHER)
    templates = {
        f"{method.upper()} {path}": re.compile(re.sub(r"\{\w+\}", "[^/]+", path) + "$")
        for path, methods in document["paths"].items()
        for method in methods
    }
    called = {(method, path) for method, path, _, _ in wire.answers}

    missing = [
        operation
        for operation, template in templates.items()
        if not any(
            operation.startswith(f"{method} ") and template.search(path) for method, path in called
        )
    ]
    assert missing == []
    for _, path, _, headers in wire.answers:
        assert headers["X-Request-Id"], path
        assert UNITS.fullmatch(headers["X-Consumed-Units"]), path
        assert {name: headers[name] for name in ALWAYS} == ALWAYS, path
