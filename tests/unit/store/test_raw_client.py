"""The short way to DynamoDB: what goes out is what boto3 would send, and trouble is boto3's."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config

from headrace.store.dynamo.raw_client import RawClient

ANSWER = {"Items": [{"n": {"N": "1" * 38}}], "Count": 1}


@dataclass
class FakeDynamoDB:
    """DynamoDB's end of the wire: notes what it is asked, answers as it is told, else 200."""

    url: str = ""
    answers: list[tuple[int, bytes]] = field(default_factory=list)
    requested: list[tuple[dict[str, str], bytes]] = field(default_factory=list)


@pytest.fixture
def table() -> Iterator[FakeDynamoDB]:
    table = FakeDynamoDB()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            table.requested.append((dict(self.headers), body))
            status, answer = (
                table.answers.pop(0) if table.answers else (200, json.dumps(ANSWER).encode())
            )
            if not status:
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def do_GET(self) -> None:
            self.send_response(400)  # DynamoDB answers like this, and says when
            self.send_header("Content-Length", "0")
            self.end_headers()

        def date_time_string(self, _: float | None = None) -> str:
            return "Tue, 01 Jan 2030 10:00:00 GMT"

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    table.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield table
    server.shutdown()
    server.server_close()


def raw(table: FakeDynamoDB) -> RawClient:
    session = boto3.Session("AKIDEXAMPLE", "secret", "session-token", region_name="eu-west-1")
    retries = Config(retries={"total_max_attempts": 1})
    client = session.client("dynamodb", endpoint_url=table.url, config=retries)
    return RawClient(client, session.get_credentials())


QUERY = {
    "TableName": "tasks",
    "KeyConditionExpression": "#q = :q",
    "ExpressionAttributeNames": {"#q": "queue#state"},
    "ExpressionAttributeValues": {":q": {"S": "mäil#ENQUEUED#0"}},
    "Limit": 5,
}


def test_a_call_goes_out_signed_as_boto3_would_sign_it(table: FakeDynamoDB) -> None:
    assert raw(table).query(**QUERY) == ANSWER
    ((headers, body),) = table.requested
    assert json.loads(body) == QUERY
    assert headers["X-Amz-Target"] == "DynamoDB_20120810.Query"
    assert headers["X-Amz-Security-Token"] == "session-token"
    kept = ("Content-Type", "X-Amz-Target", "X-Amz-Date", "X-Amz-Security-Token")
    request = AWSRequest(
        "POST", table.url + "/", headers={name: headers[name] for name in kept}, data=body
    )
    request.context["timestamp"] = headers["X-Amz-Date"]
    keys = boto3.Session("AKIDEXAMPLE", "secret", "session-token").get_credentials()
    signer = SigV4Auth(keys, "dynamodb", "eu-west-1")
    scope = signer.string_to_sign(request, signer.canonical_request(request))
    assert headers["Authorization"].endswith(signer.signature(scope, request))


@pytest.mark.parametrize("trouble", [(0, b""), (500, b"{}"), (400, b"{}")])
@pytest.mark.parametrize("call", ["query", "batch_execute_statement"])
def test_after_trouble_boto3_asks_again(
    table: FakeDynamoDB, trouble: tuple[int, bytes], call: str
) -> None:
    table.answers.append(trouble)
    statements = {"Statements": [{"Statement": "DELETE FROM tasks WHERE task_id=?"}]}
    arguments = QUERY if call == "query" else statements
    assert "ResponseMetadata" in getattr(raw(table), call)(**arguments)
    (_, first), (headers, second) = table.requested
    assert json.loads(first) == json.loads(second)
    assert "Boto3" in headers["User-Agent"]


def test_a_proxy_is_left_to_boto3(table: FakeDynamoDB, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", table.url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    session = boto3.Session("AKIDEXAMPLE", "secret", region_name="eu-west-1")
    client = session.client("dynamodb", endpoint_url="http://dynamodb.test:8000")
    RawClient(client, session.get_credentials()).query(**QUERY)
    assert "Boto3" in table.requested[0][0]["User-Agent"]
