"""Lambda functions: what a target's answers come to, and who starts dispatchers."""

import json
from dataclasses import replace
from typing import Any

import pytest

from headrace.domain.plan import TaskSpec
from headrace.domain.push import Target
from headrace.domain.push_answers import TargetAnswer
from headrace.domain.queue import QueueSettings
from headrace.entries import recorder
from headrace.local.gateway import InvocationContext
from headrace.local.tables import Function
from headrace.runtime.settings import Settings
from headrace.runtime.wiring import build, using
from headrace.store.memory import MemoryStore
from headrace.store.services import call_function
from headrace.testing.stores import SHARD, Streamed
from tests.manual_clock import ManualClock
from tests.streamed import stream_records
from tests.unit.push.receiver import GivenAnswer, Receiver, receiving

ARN = "arn:aws:lambda:eu-west-1:123456789012:function:resize"
CONTEXT: Any = InvocationContext(Function("Recorder", "recorder.handler", 60, 512), lambda: False)


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


def called(monkeypatch: pytest.MonkeyPatch, given: GivenAnswer) -> tuple[TargetAnswer, Receiver]:
    """Call a function where Lambda's API answers what is *given*."""
    with receiving(lambda _: given) as api:
        monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", api.url.removesuffix("/hook"))
        return call_function(ARN, b'{"id": "tsk_1"}', 5), api


def test_what_a_function_returns_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, api = called(monkeypatch, GivenAnswer(200, b'{"sent": 1}'))
    assert answer == TargetAnswer(200, b'{"sent": 1}')
    (request,) = api.received
    assert request.body == b'{"id": "tsk_1"}'
    assert request.path.startswith("/2015-03-31/functions/arn%3Aaws%3Alambda%3Aeu-west-1")
    assert "eu-west-1/lambda" in request.headers["authorization"]  # where the function is


def test_what_a_function_raises_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    error = b'{"errorType": "KeyError"}'
    headers = {"X-Amz-Function-Error": "Unhandled"}
    answer, _ = called(monkeypatch, GivenAnswer(200, error, headers))
    assert (answer.status, answer.error, answer.message) == (None, "FunctionError", error.decode())
    assert not answer.busy


@pytest.mark.parametrize(
    ("status", "code", "busy"),
    [
        (429, "TooManyRequestsException", True),
        (403, "AccessDeniedException", False),
        (404, "ResourceNotFoundException", False),
        (500, "ServiceException", False),
    ],
)
def test_a_function_that_is_throttled_is_busy_and_one_that_is_refused_fails(
    monkeypatch: pytest.MonkeyPatch, status: int, code: str, *, busy: bool
) -> None:
    answer, api = called(monkeypatch, GivenAnswer(status, b"{}", {"X-Amzn-ErrorType": code}))
    assert answer.busy is busy
    assert answer.label == ("429" if busy else code)
    assert len(api.received) == 1  # whether it is tried again the queue says


@pytest.mark.parametrize("status", [202, 403])
def test_the_recorder_starts_the_dispatcher_of_queues_in_which_tasks_arrived(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    stream = Streamed(MemoryStore(), clock := ManualClock())
    settings = replace(Settings(admin_key="k"), dispatcher="the-dispatcher")
    use = build(settings, stream.store, now=clock)
    use.queues.create("plain", QueueSettings())
    target = Target(url="https://a.example/", max_concurrency=150)
    use.queues.create("hooks", QueueSettings(target=target))
    for queue in ("plain", "hooks"):
        use.tasks.enqueue(queue, [TaskSpec("1"), TaskSpec("2")])
    event = {"shardId": SHARD, "Records": stream_records(stream.taken())}

    with receiving(lambda _: GivenAnswer(status)) as api, using(use):
        monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", api.url.removesuffix("/hook"))
        answer = recorder.handler(event, CONTEXT)

    assert answer["batchItemFailures"] == []  # where nobody was started the timer does it
    assert {one.headers["x-amz-invocation-type"] for one in api.received} == {"Event"}
    assert {one.path for one in api.received} == {
        "/2015-03-31/functions/the-dispatcher/invocations"
    }
    started = [json.loads(one.body) for one in api.received]
    wanted = [{"queue": "hooks", "seat": 0}, {"queue": "hooks", "seat": 1}]
    assert [one for one in wanted if one not in started] == []
