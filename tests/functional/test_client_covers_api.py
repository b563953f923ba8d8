"""Every operation of the API has its method in the SDK."""

import re
from datetime import UTC, datetime
from io import BytesIO

import httpx2 as httpx
import pytest

from headrace import Client, Report
from headrace.domain.errors import HeadraceError
from headrace.http.app import TABLE
from headrace.http.openapi import document

NOT_IN_THE_SDK = {
    "GET /v1/openapi.json": "documents the API; `Client.call` gets it",
    "GET /v1/docs": "a page for people",
    "POST /v2/notify": "for NGSI context brokers",
    "GET /management/queue/notifications": "QuantumLeap's words for what lists and counts say",
    "GET /management/queue/notifications/summary": "likewise",
    "GET /management/queue/notifications/count": "likewise",
    "DELETE /management/queue/notifications": "likewise",
}
NOW = datetime(2026, 1, 1, tzinfo=UTC)
REPORT = Report(task_id="t", lease_id="l", status="SUCCEEDED")


class _Noting(httpx.BaseTransport):
    def __init__(self) -> None:
        self.seen: set[str] = set()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.seen.add(f"{request.method} {request.url.path}")
        return httpx.Response(404, content=b"{}")


def _each_method(client: Client) -> None:
    calls = [
        lambda: client.create_queue("Q"),
        lambda: client.get_queue("Q"),
        lambda: list(client.list_queues()),
        lambda: client.replace_queue({"name": "Q"}),
        lambda: client.delete_queue("Q"),
        lambda: client.pause_queue("Q"),
        lambda: client.resume_queue("Q"),
        lambda: client.purge_queue("Q", ["DEAD"]),
        lambda: client.recount_queue("Q"),
        lambda: client.reindex_queue("Q"),
        lambda: client.get_signing_secret("Q"),
        lambda: client.rotate_signing_secret("Q"),
        lambda: client.recount_batch("B"),
        lambda: client.batch_steps("B"),
        lambda: client.cancel_batch("B"),
        lambda: client.get_stats("Q"),
        lambda: client.get_metrics("Q"),
        lambda: client.get_group("Q", "K"),
        lambda: client.put_schedule("Q", "N", every_seconds=1),
        lambda: client.get_schedule("Q", "N"),
        lambda: list(client.list_schedules("Q")),
        lambda: client.delete_schedule("Q", "N"),
        lambda: client.run_schedule("Q", "N"),
        lambda: client.enqueue("Q"),
        lambda: client.upload("Q", BytesIO(b"1")),
        lambda: client.dequeue("Q"),
        lambda: client.dequeue(queues=["Q"]),
        client.open_lease,
        lambda: client.extend_lease("L"),
        lambda: client.close_lease("L"),
        lambda: client.report("Q", [REPORT]),
        lambda: client.get_task("T"),
        lambda: client.delete_task("T"),
        lambda: client.cancel_task("T"),
        lambda: client.explain_task("T"),
        lambda: list(client.list_tasks("Q")),
        lambda: client.count_tasks("Q"),
        lambda: client.delete_tasks("Q", all=True),
        lambda: client.undo("U"),
        lambda: client.restart_tasks("Q", all=True),
        lambda: client.run_tasks("Q", all=True),
        lambda: client.move_tasks("Q", "R", all=True),
        lambda: client.cancel_tasks("Q", all=True),
        lambda: client.begin_action("run", ["Q"], all=True),
        lambda: list(client.list_actions()),
        lambda: client.get_action("A"),
        lambda: client.pause_action("A"),
        lambda: client.resume_action("A"),
        lambda: client.cancel_action("A"),
        lambda: client.create_batch(id="B"),
        lambda: client.get_batch("B"),
        lambda: list(client.list_batches()),
        lambda: client.close_batch("B", 1),
        lambda: client.batch_results("B"),
        lambda: client.delete_batch("B"),
        lambda: client.create_key("k", "viewer", ["*"]),
        lambda: client.rotate_key("K"),
        lambda: client.get_key("K"),
        lambda: list(client.list_keys()),
        lambda: client.delete_key("K"),
        lambda: list(client.list_audit()),
        lambda: list(client.list_workers()),
        lambda: client.put_worker(
            "W", queues=["Q"], concurrency=1, running=[], version="1", started_at=NOW
        ),
        lambda: client.quiet_worker("W"),
        lambda: client.stop_worker("W"),
        client.health,
    ]
    for call in calls:
        with pytest.raises(HeadraceError):
            call()


def test_every_operation_has_a_method() -> None:
    wire = _Noting()
    _each_method(Client("http://queue.test", "hr_key", transport=wire))
    sent = {re.sub(r"/[A-Z]\b", "/{}", seen) for seen in wire.seen}
    operations = {
        f"{method.upper()} {path}"
        for path, methods in document(TABLE.routes)["paths"].items()
        for method in methods
    }
    missing = {
        operation
        for operation in operations - NOT_IN_THE_SDK.keys()
        if re.sub(r"\{\w+\}", "{}", operation) not in sent
    }
    assert missing == set()
