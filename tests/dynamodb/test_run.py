"""`headrace run` on DynamoDB, seen from outside over HTTP: all of its background jobs work."""

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from headrace.local.tables import DynamoDBClient, TableNames
from infra.launch import Launched, launched
from tests.conftest import drop_tables
from tests.waiting import until

pytestmark = pytest.mark.gate

SECONDS = 30.0


@pytest.fixture
def run(dynamodb_url: str, dynamodb: DynamoDBClient, tmp_path: Path) -> Iterator[Callable[[], Any]]:
    """Give what starts a service on the same tables, as often as a test wants."""
    environment = {"HEADRACE_DYNAMODB_URL": dynamodb_url, "HEADRACE_PUSH_HOSTS": "127.0.0.1"}
    yield lambda: launched(data_dir=tmp_path, environment=environment)
    drop_tables(dynamodb, TableNames())


def call(service: Launched, method: str, path: str, body: object = None) -> Any:
    connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=30)
    headers = {
        "Authorization": f"Bearer {service.admin_key}",
        "Content-Type": "application/json",
    }
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    assert answer.status < 300, text
    return json.loads(text) if text else None


def succeed_one(service: Launched, queue: str) -> None:
    """Lease one task of *queue* and report that it succeeded."""
    (task,) = call(service, "POST", f"/v1/queues/{queue}/dequeue", {})["tasks"]
    report = {"task_id": task["id"], "lease_id": task["lease"]["id"], "status": "SUCCEEDED"}
    call(service, "POST", f"/v1/queues/{queue}/reports", {"reports": [report]})


def enqueued(service: Launched, queue: str) -> int:
    """Return how many enqueues the recorder has counted in the last hour."""
    points = call(service, "GET", f"/v1/queues/{queue}/metrics")["points"]
    return sum(point["enqueued"] for point in points)


def test_writes_are_counted_once_by_the_service_and_by_the_next_one(
    run: Callable[[], Any],
) -> None:
    with run() as service:
        call(service, "POST", "/v1/queues", {"name": "mail"})
        call(service, "POST", "/v1/queues/mail/tasks", {"tasks": [{"payload": 1}] * 20})
        until(lambda: enqueued(service, "mail") == 20, SECONDS)
        service.kill()

    with run() as service:
        call(service, "POST", "/v1/queues/mail/tasks", {"tasks": [{"payload": 1}] * 5})
        until(lambda: enqueued(service, "mail") == 25, SECONDS)
        succeed_one(service, "mail")
        stats = until(
            lambda: call(service, "GET", "/v1/queues/mail/stats")["counts"]["succeeded"], SECONDS
        )

    assert stats == 1


def test_a_schedule_ticks_on_and_a_lapsed_lease_is_reclaimed(run: Callable[[], Any]) -> None:
    failing = {"retry_strategy": {"kind": "fixed", "max_retries": 0}}
    with run() as service:
        call(service, "POST", "/v1/queues", {"name": "mail", **failing})
        call(service, "POST", "/v1/queues/mail/tasks", {"tasks": [{"payload": 1, "id": "lapses"}]})
        (task,) = call(
            service, "POST", "/v1/queues/mail/dequeue", {"keepalive_timeout_in_seconds": 1}
        )["tasks"]
        call(service, "POST", "/v1/queues", {"name": "ticks"})
        call(service, "PUT", "/v1/queues/ticks/schedules/each", {"every_seconds": 1, "payload": 1})
        ahead = call(service, "GET", "/v1/queues/ticks/count")["count"]
        until(lambda: task["lease_expires_at"] < now(), SECONDS)

    with run() as service:  # its reaper and scheduler begin with a first pass
        until(lambda: call(service, "GET", "/v1/tasks/lapses")["state"] == "DEAD", SECONDS)
        until(lambda: call(service, "GET", "/v1/queues/ticks/count")["count"] > ahead, SECONDS)


def test_a_task_is_pushed_to_the_target_of_its_queue(run: Callable[[], Any]) -> None:
    with target() as (url, received), run() as service:
        call(service, "POST", "/v1/queues", {"name": "hooks", "target": {"url": url}})
        call(service, "POST", "/v1/queues/hooks/tasks", {"tasks": [{"payload": {"to": "ada"}}]})

        until(lambda: received, SECONDS)


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())


@contextmanager
def target() -> Iterator[tuple[str, list[bytes]]]:
    """Give a server that takes requests, and their bodies."""
    received: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", received
        server.shutdown()
