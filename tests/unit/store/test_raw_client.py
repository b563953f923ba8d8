"""The short way to DynamoDB: what goes out is what boto3 would send, and trouble is boto3's."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import boto3
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config

from headrace.store.dynamo.raw_client import RawClient
from tests.unit.push.receiver import GivenAnswer, ReceivedPush, receiving

ANSWER = {"Items": [{"n": {"N": "1" * 38}}], "Count": 1}


@dataclass
class FakeDynamoDB:
    """DynamoDB's end of the wire: notes what it is asked, answers as it is told, else 200."""

    url: str = ""
    answers: list[tuple[int, bytes]] = field(default_factory=list)
    requested: list[tuple[Mapping[str, str], bytes]] = field(default_factory=list)


@pytest.fixture
def table() -> Iterator[FakeDynamoDB]:
    table = FakeDynamoDB()

    def answer(request: ReceivedPush) -> GivenAnswer:
        table.requested.append((request.headers, request.body))
        status, body = table.answers.pop(0) if table.answers else (200, json.dumps(ANSWER).encode())
        if not status:
            raise ConnectionAbortedError
        return GivenAnswer(status, body)

    with receiving(answer) as receiver:
        table.url = receiver.url.removesuffix("/hook")
        yield table


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
    assert headers["x-amz-target"] == "DynamoDB_20120810.Query"
    assert headers["x-amz-security-token"] == "session-token"
    kept = ("Content-Type", "X-Amz-Target", "X-Amz-Date", "X-Amz-Security-Token")
    request = AWSRequest(
        "POST", table.url + "/", headers={name: headers[name.lower()] for name in kept}, data=body
    )
    request.context["timestamp"] = headers["x-amz-date"]
    keys = boto3.Session("AKIDEXAMPLE", "secret", "session-token").get_credentials()
    signer = SigV4Auth(keys, "dynamodb", "eu-west-1")
    scope = signer.string_to_sign(request, signer.canonical_request(request))
    assert headers["authorization"].endswith(signer.signature(scope, request))


@pytest.mark.parametrize("trouble", [(0, b""), (500, b"{}"), (400, b"{}")])
@pytest.mark.parametrize("call", ["query", "batch_execute_statement"])
def test_boto3_retries_after_an_error(
    table: FakeDynamoDB, trouble: tuple[int, bytes], call: str
) -> None:
    table.answers.append(trouble)
    statements = {"Statements": [{"Statement": "DELETE FROM tasks WHERE task_id=?"}]}
    arguments = QUERY if call == "query" else statements
    assert "ResponseMetadata" in getattr(raw(table), call)(**arguments)
    (_, first), (headers, second) = table.requested
    assert json.loads(first) == json.loads(second)
    assert "Boto3" in headers["user-agent"]


def test_a_proxy_is_left_to_boto3(table: FakeDynamoDB, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", table.url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    session = boto3.Session("AKIDEXAMPLE", "secret", region_name="eu-west-1")
    client = session.client("dynamodb", endpoint_url="http://dynamodb.test:8000")
    RawClient(client, session.get_credentials()).query(**QUERY)
    assert "Boto3" in table.requested[0][0]["user-agent"]
