"""The web-hook caller, against a real HTTP server."""

import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from examples.webhook.app import app, call
from headrace.testing import MemoryService


@dataclass
class Receiver:
    """Somebody's server: notes what it is sent, answers as it is told, else 200."""

    url: str = ""
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    received: list[tuple[dict[str, str], bytes]] = field(default_factory=list)


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.received.append((dict(self.headers), body))
            status, headers = receiver.answers.pop(0) if receiver.answers else (200, {})
            self.send_response(status)
            for name, value in {**headers, "Content-Length": "0"}.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    monkeypatch.setenv("WEBHOOK_SECRET", "shared")
    yield receiver
    server.shutdown()
    server.server_close()


@pytest.fixture
def service() -> Iterator[MemoryService]:
    with MemoryService() as service, service.serving(app):
        yield service


def test_an_event_arrives_signed(service: MemoryService, receiver: Receiver) -> None:
    made = call.enqueue(url=receiver.url, event={"order": 17})
    service.run(app)
    ((headers, body),) = receiver.received
    assert json.loads(body) == {"order": 17}
    expected = hmac.new(b"shared", body, hashlib.sha256).hexdigest()
    assert headers["X-Signature-256"] == f"sha256={expected}"
    assert service.client.get_task(str(made.id)).result == 200


def test_a_broken_server_is_called_again_under_the_same_idempotency_key(
    service: MemoryService, receiver: Receiver
) -> None:
    receiver.answers += [(500, {}), (503, {})]
    made = call.enqueue(url=receiver.url, event={})
    service.run(app, until_settled=True)
    assert [headers["Idempotency-Key"] for headers, _ in receiver.received] == [made.id] * 3
