"""Timeouts nest: a request to the table, a call, its function, API Gateway; and no try is in vain.

Time is in the test's hand: each try of the table here takes as much of it as one that nobody
answers.  What a real one takes, that says nothing, is measured once, and slowly.
"""

import json
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aws_lambda_powertools.utilities.typing import LambdaContext
from botocore.exceptions import ConnectionClosedError

import api
from headrace.domain.errors import Unavailable
from headrace.domain.limits import WAIT_SECONDS
from headrace.http.events import proxy_event
from headrace.runtime.wiring import Settings, build, dynamo_store, using, utc_now
from headrace.store.call_scope import ANSWER_SECONDS, CALL_SECONDS, in_time, time_to_wait
from headrace.store.dynamo.connect import connected
from headrace.store.services import ATTEMPTS
from infra.template import Template
from tests.unit.push.receiver import GivenAnswer, ReceivedPush, receiving

API_GATEWAY_SECONDS = 29
KEY = "a-key-for-the-tests"
THROTTLED = b'{"__type": "com.amazonaws.dynamodb.v20120810#ThrottlingException", "message": "x"}'


@dataclass
class SlowDynamoDB:
    """DynamoDB's end of the wire, and the time.  With status 0 it hangs up without a word."""

    status: int = 0
    url: str = ""
    now: float = 1000.0
    requested: list[float] = field(default_factory=list)

    def clock(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "none")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")


@pytest.fixture
def table() -> Iterator[SlowDynamoDB]:
    table = SlowDynamoDB()

    def answer(_: ReceivedPush) -> GivenAnswer:
        table.requested.append(table.now)
        table.now += CALL_SECONDS
        if not table.status:
            raise ConnectionAbortedError
        return GivenAnswer(table.status, THROTTLED)

    with receiving(answer) as receiver:
        table.url = receiver.url.removesuffix("/hook")
        yield table


def remaining(seconds: float) -> LambdaContext:
    """Return Lambda's context of a call that has so much time."""
    millis = int(seconds * 1000)
    return cast("LambdaContext", SimpleNamespace(get_remaining_time_in_millis=lambda: millis))


@pytest.mark.parametrize("function", ["ApiFunction", "ConsoleFunction"])
def test_timeouts_nest(template: Template, function: str) -> None:
    whole = template["Resources"][function]["Properties"]["Timeout"]
    call = whole - ANSWER_SECONDS

    assert 0 < CALL_SECONDS < call < whole < API_GATEWAY_SECONDS
    with in_time(remaining(whole)):
        assert time_to_wait() >= WAIT_SECONDS  # and one look more, at its end


def test_the_authorizer_may_ask_twice_and_still_answer(template: Template) -> None:
    whole = template["Resources"]["AuthorizerFunction"]["Properties"]["Timeout"]

    assert 2 * CALL_SECONDS + ANSWER_SECONDS < whole < API_GATEWAY_SECONDS


KEYED: dict[str, Any] = {"TableName": "t", "Key": {"pk": {"S": "a"}}}
ASK: dict[str, tuple[int, Any]] = {  # how often it asks at most
    "raw": (1 + ATTEMPTS, lambda url: connected(url).get_item(**KEYED)),
    "botocore": (ATTEMPTS, lambda url: connected(url).delete_item(**KEYED)),
}


@pytest.mark.parametrize("way", ASK)
@pytest.mark.parametrize("seconds", [4.9, 17.0])
def test_no_try_begins_that_could_end_too_late(
    table: SlowDynamoDB, way: str, seconds: float
) -> None:
    most, ask = ASK[way]
    end = table.now + seconds

    left = remaining(seconds + ANSWER_SECONDS)
    with in_time(left, table.clock), pytest.raises((Unavailable, ConnectionClosedError)):
        ask(table.url)

    assert len(table.requested) <= min(most, seconds // CALL_SECONDS)
    assert bool(table.requested) is (seconds >= CALL_SECONDS)
    assert all(at + CALL_SECONDS <= end for at in table.requested)
    assert len(table.requested) == most or seconds < 300


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/queues/mail/dequeue", b'{"wait_seconds": 20}', 0),
        ("POST", "/v1/queues/mail/tasks", b'{"tasks": [{}]}', 500),
    ],
)
def test_a_table_that_does_not_answer_is_a_503_that_says_when_to_try_again(
    table: SlowDynamoDB,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    path: str,
    body: bytes,
    status: int,
) -> None:
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda _: None))
    table.status = status
    settings = Settings(admin_key=KEY, dynamodb_url=table.url)
    use = build(settings, dynamo_store(settings), now=utc_now)
    headers = {"Authorization": f"Bearer {KEY}"}
    event = proxy_event(method, path, request_id="r", headers=headers, body=body)

    with using(use):
        answer = api.handler(event, remaining(28))

    assert answer["statusCode"] == 503
    assert answer["multiValueHeaders"]["Retry-After"] == ["1"]
    problem = json.loads(answer["body"])
    assert (problem["code"], problem["request_id"]) == ("unavailable", "r")


@pytest.mark.slow
def test_a_table_that_says_nothing_is_given_up_before_the_call_is_over() -> None:
    listener = socket.create_server(("127.0.0.1", 0))  # takes connections, and says nothing
    settings = Settings(admin_key=KEY, dynamodb_url=f"http://127.0.0.1:{listener.getsockname()[1]}")
    use = build(settings, dynamo_store(settings), now=utc_now)
    headers = {"Authorization": f"Bearer {KEY}"}
    event = proxy_event("POST", "/v1/queues/mail/dequeue", request_id="r", headers=headers)
    begin = time.monotonic()

    with listener, using(use):
        answer = api.handler(event, remaining(2 * CALL_SECONDS + ANSWER_SECONDS + 1))

    assert answer["statusCode"] == 503
    assert time.monotonic() - begin < 2 * CALL_SECONDS + ANSWER_SECONDS + 1
