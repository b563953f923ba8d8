"""The reaper runs itself several times at once: in Lambda by invocations, elsewhere in threads."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from headrace.domain.errors import Unavailable
from headrace.store.services import invoke

EVENT = {"part": 1}


@contextmanager
def lambda_api(monkeypatch: pytest.MonkeyPatch, status: int) -> Iterator[list[tuple[str, Any]]]:
    """Stand in for Lambda's API, and note what is invoked."""
    invoked: list[tuple[str, Any]] = []

    class Api(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            invoked.append((f"{self.path} {self.headers['X-Amz-Invocation-Type']}", body))
            self.send_response(status)
            self.send_header("X-Amzn-ErrorType", "AccessDeniedException")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield invoked
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


def test_a_function_is_invoked_and_nobody_waits_for_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with lambda_api(monkeypatch, 202) as invoked:
        invoke("the-reaper", EVENT)

    assert invoked == [("/2015-03-31/functions/the-reaper/invocations Event", EVENT)]


def test_a_function_that_may_not_be_invoked_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    with lambda_api(monkeypatch, 403), pytest.raises(Unavailable, match="AccessDeniedException"):
        invoke("the-reaper", EVENT)
    monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", "http://127.0.0.1:1")
    with pytest.raises(Unavailable, match="EndpointConnectionError"):
        invoke("the-reaper", EVENT)
