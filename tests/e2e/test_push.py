"""What the deployed stack sends by itself: a webhook on end, to a receiver on this machine."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from threading import Thread
from typing import Any

import pytest

from headrace import Client
from headrace.webhooks import verify
from tests.e2e.conftest import soon, succeed, take

pytestmark = pytest.mark.gate


@contextmanager
def receiver() -> Iterator[tuple[str, "Queue[tuple[dict[str, str], bytes]]"]]:
    """Receive requests; give the address, and what came."""
    came: Queue[tuple[dict[str, str], bytes]] = Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            came.put((dict(self.headers.items()), body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/ends", came
        server.shutdown()


def test_the_end_of_a_task_is_pushed_signed_and_once(client: Client) -> None:
    with receiver() as (url, came):
        client.create_queue("e2e.told", target={"url": url})
        client.create_queue("e2e.tells", on_end={"queue": "e2e.told"})
        made = client.enqueue("e2e.tells", {"rows": 3})
        succeed(client, take(client, "e2e.tells"), result=3)
        headers, body = came.get(timeout=150)  # the timer sends what the recorder has not woken

        verify(body, headers, client.get_signing_secret("e2e.told").secret or "")
        told = json.loads(body)
        assert (told["type"], told["data"]["id"]) == ("task.succeeded", made.id)
        assert told["data"]["result"] == 3

        def done() -> bool:
            return client.count_tasks("e2e.told", state="SUCCEEDED").count == 1

        assert soon(done, seconds=60, what="the answer taken as a report")
        assert came.empty()
