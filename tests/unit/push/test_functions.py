"""Lambda functions: what a target's answers come to, and who starts dispatchers."""

import threading

import pytest

from headrace.domain.push_messages import TargetAnswer
from headrace.store.services import call_function
from tests.unit.push.receiver import GivenAnswer, Receiver, receiving

pytestmark = pytest.mark.usefixtures("aws_credentials")

ARN = "arn:aws:lambda:eu-west-1:123456789012:function:resize"


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


def test_a_lambda_that_cannot_be_reached_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", "http://127.0.0.1:9")

    assert call_function(ARN, b"{}", 5).label == "EndpointConnectionError"


def test_a_function_that_is_too_slow_is_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    given, free = GivenAnswer(200, b"{}"), threading.Event()

    def slow(_: object) -> GivenAnswer:
        free.wait(10)
        return given

    with receiving(slow) as api:
        monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", api.url.removesuffix("/hook"))
        answer = call_function(ARN, b"{}", 0.05)
        free.set()
    assert (answer.label, answer.message) == ("Timeout", "no answer within 0.05 s")
