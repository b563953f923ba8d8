"""What the client does when the service refuses, is away, or loses an answer."""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from headrace import Client
from headrace.client.settings import ClientSettings
from headrace.domain import errors
from headrace.domain.errors import (
    Forbidden,
    HeadraceError,
    InvalidRequest,
    NotFound,
    RateLimited,
    Unavailable,
)
from tests.unit.client.network import Network, Reply, problem, reply

HEALTHY = {"status": "ok", "version": "1", "now": "2026-11-21T08:00:00.000000Z"}
LOST = httpx.ReadTimeout("no answer")
REFUSED = httpx.ConnectError("connection refused")


def client_on(*replies: Reply, retries: int = 6) -> tuple[Client, Network]:
    wire = Network(list(replies))
    client = Client(
        "http://queue.test", "hr_secret", transport=wire, sleep=wire.sleep, retries=retries
    )
    return client, wire


@pytest.mark.parametrize(
    "failure",
    [LOST, REFUSED, problem(429, "rate_limited"), problem(503, "unavailable")],
)
def test_what_may_pass_is_tried_again(failure: Reply) -> None:
    client, wire = client_on(failure, failure, reply(200, HEALTHY))
    assert client.health().status == "ok"
    assert len(wire.waits) == 2


def test_waits_are_random_and_may_grow_each_time() -> None:
    client, wire = client_on(REFUSED, retries=8)
    with pytest.raises(
        Unavailable, match=r"GET http://queue\.test/v1/health got no answer: connection refused"
    ) as caught:
        client.health()
    assert len(wire.requests) == 9
    assert (caught.value.__cause__, caught.value.__suppress_context__) == (None, True)
    assert len(set(wire.waits)) == 8
    assert all(0 <= wait <= min(10.0, 0.2 * 2**n) for n, wait in enumerate(wire.waits))


def test_the_wait_that_the_service_names_is_kept() -> None:
    busy = problem(503, "unavailable")
    busy.headers["Retry-After"] = "3"
    client, wire = client_on(busy, reply(200, HEALTHY))
    client.health()
    assert 3 <= wire.waits[0] <= 4


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.delete_task("t1"),
        lambda client: client.call("DELETE", "/v1/queues/mail"),
    ],
)
def test_what_must_not_happen_twice_is_not_sent_again_after_a_lost_answer(call: object) -> None:
    assert callable(call)
    client, wire = client_on(LOST)
    with pytest.raises(Unavailable):
        call(client)
    assert len(wire.requests) == 1
    client, wire = client_on(REFUSED, problem(429, "rate_limited"), problem(403, "forbidden"))
    with pytest.raises(Forbidden):
        call(client)
    assert len(wire.requests) == 3


EACH = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, HeadraceError) and kind is not HeadraceError
]


@pytest.mark.parametrize("kind", EACH)
def test_each_refusal_is_the_servers_own_error(kind: type[HeadraceError]) -> None:
    body = {"errors": [{"field": "tasks[3].id", "message": "is bad"}], "detail": "why"}
    client, _ = client_on(problem(kind.status, kind.code, **body), retries=0)
    with pytest.raises(kind) as refused:
        client.get_task("t1")
    assert type(refused.value) is kind
    assert refused.value.detail == "why"
    if kind is not Unavailable:
        assert refused.value.errors == (errors.FieldError("tasks[3].id", "is bad"),)


def test_what_the_gateway_answers_by_itself_is_known_by_its_status() -> None:
    client, _ = client_on(reply(403, {"message": "Missing Authentication Token"}))
    with pytest.raises(Forbidden, match="Missing Authentication Token"):
        client.get_task("t1")
    client, _ = client_on(reply(429, {"message": "Too Many Requests"}), retries=1)
    with pytest.raises(RateLimited):
        client.get_task("t1")
    client, _ = client_on(httpx.Response(404, content=b"<html>"))
    with pytest.raises(NotFound, match=r"GET /v1/tasks/t1 was answered with 404, by .* is the URL"):
        client.get_task("t1")


def test_the_key_is_in_no_text_a_program_may_log() -> None:
    client, _ = client_on(REFUSED, retries=0)
    with pytest.raises(Unavailable) as failed:
        client.health()
    texts = [repr(client), str(failed.value), repr(ClientSettings("http://x", "hr_secret"))]
    assert not any("hr_secret" in text for text in texts)


@pytest.mark.parametrize(
    "call",
    [lambda client: client.delete_key("K"), lambda client: client.health()],
)
def test_a_redirect_is_no_success_and_takes_the_key_nowhere(call: object) -> None:
    assert callable(call)
    client, wire = client_on(reply(301, headers={"Location": "https://other.test/"}))
    with pytest.raises(HeadraceError, match=r"is redirected to https://other\.test/"):
        call(client)
    assert [request.url.host for request in wire.requests] == ["queue.test"]


@pytest.mark.parametrize("name", ["", ".."])
def test_a_name_that_would_make_another_path_is_refused(name: str) -> None:
    client, wire = client_on(reply(204))
    with pytest.raises(InvalidRequest, match="a name cannot be"):
        client.delete_schedule("mail", name)
    assert not wire.requests


def test_what_no_connection_takes_is_refused() -> None:
    client, _ = client_on(reply(204))
    with pytest.raises(InvalidRequest, match="must not have control characters"):
        client.call("GET", "/v1/queues\r\nX-A: a")
    with pytest.raises(InvalidRequest, match="timeout must be more than 0 seconds and finite"):
        ClientSettings.of("https://queue.test", "k", timeout=float("inf"), env={})


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("http://queue.example.com", True),
        ("https://queue.example.com", False),
        ("http://127.0.0.1:8080", False),
        ("http://10.0.0.7", True),
    ],
)
def test_a_key_in_clear_to_another_machine_is_warned_of(
    url: str,
    warned: bool,  # noqa: FBT001 (a parameter of the test)
    caplog: pytest.LogCaptureFixture,
) -> None:
    ClientSettings.of(url, "k", env={})
    assert ("in clear" in caplog.text) is warned


FORKING = """
import os, sys
from headrace import Client
client = Client(sys.argv[1], "hr_key")
print(client.call("GET", "/parent"), flush=True)
for child in range(2):
    if not os.fork():
        answers = {client.call("GET", f"/child{child}")["path"] for _ in range(200)}
        # One write: print() sends the end of the line by itself, and the other's may come between.
        os.write(1, b"%r\\n" % (answers == {f"/child{child}"}))
        os._exit(0)
for _ in range(2):
    os.wait()
print(client.call("GET", "/parent"))
"""


def test_a_fork_does_not_hear_what_is_meant_for_its_parent() -> None:
    class Echo(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # an answer is one packet, or each waits for an acknowledgement

        def do_GET(self) -> None:
            body = json.dumps({"path": self.path}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    functions = Path(__file__).parents[3] / "functions"
    done = subprocess.run(
        [sys.executable, "-c", FORKING, url],
        env={**os.environ, "PYTHONPATH": str(functions)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    server.shutdown()
    server.server_close()
    parent = "{'path': '/parent'}"
    assert done.stdout.splitlines() == [parent, "True", "True", parent]
