"""The demo's HTTP client: what calls cost, how refusals read, what may be tried again."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from examples.ngsi.http_client import QueueClient, Refused, Tally, Unavailable


class Service(ThreadingHTTPServer):
    """Answers every call alike, and keeps what it was sent."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 200
        self.answer: object = {}
        self.text = b""
        self.bodies: list[bytes] = []
        self.authorization = ""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Service

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.authorization = self.headers["Authorization"]
        data = self.server.text or json.dumps(self.server.answer).encode()
        self.send_response(self.server.status)
        self.send_header("X-Consumed-Units", "w=3.5, r=0.5")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_arguments: object) -> None:
        """Stay silent."""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def client(service: Service) -> Iterator[QueueClient]:
    made = QueueClient(f"http://127.0.0.1:{service.server_port}", "key-of-the-test")
    yield made
    made.close()


def test_the_units_of_all_calls_add_up(service: Service, client: QueueClient) -> None:
    service.answer = {"tasks": [], "poll_after_seconds": 1}

    client.dequeue("q", 25, "w")
    client.dequeue("q", 25, "w")

    assert client.tally == Tally(calls=2, write_units=7.0, read_units=1.0)
    assert service.authorization == "Bearer key-of-the-test"


def test_a_refusal_says_what_the_service_said(service: Service, client: QueueClient) -> None:
    service.status = 400
    errors = [{"field": "batch_size", "message": "at most 25"}]
    service.answer = {"detail": "The body is not valid.", "errors": errors}

    with pytest.raises(Refused, match=r"The body is not valid\. batch_size: at most 25") as refused:
        client.dequeue("q", 26, "w")

    assert refused.value.status == 400


def test_a_refusal_that_is_no_problem_document_is_shown_as_it_is(
    service: Service, client: QueueClient
) -> None:
    service.status, service.answer = 500, "broken"

    with pytest.raises(Refused, match="broken"):
        client.dequeue("q", 1, "w")


def test_a_service_that_is_busy_or_gone_may_be_asked_again(
    service: Service, client: QueueClient
) -> None:
    service.status = 503
    with pytest.raises(Unavailable, match="503"):
        client.dequeue("q", 1, "w")

    with pytest.raises(Unavailable):
        QueueClient("http://127.0.0.1:1", "key").dequeue("q", 1, "w")


def test_an_integer_of_absurd_length_does_not_cost_the_batch_it_came_in(
    service: Service, client: QueueClient
) -> None:
    service.text = b'{"tasks": [{"payload": [%s, 12345678901234567890]}]}' % (b"9" * 5000)

    answer = client.dequeue("q", 25, "w")

    assert answer["tasks"][0]["payload"] == [float("inf"), 12345678901234567890]


def test_reports_too_large_for_one_body_go_out_in_several(
    service: Service, client: QueueClient
) -> None:
    service.answer = {"results": [{"outcome": "OK"}]}
    reports = [{"task_id": f"tsk_{n}", "payload": "x" * 200_000} for n in range(25)]

    client.report("q", reports)

    sent = [json.loads(body)["reports"] for body in service.bodies]
    assert [report for batch in sent for report in batch] == reports
    assert len(sent) == 2
    assert max(map(len, service.bodies)) < 4 * 1024 * 1024
