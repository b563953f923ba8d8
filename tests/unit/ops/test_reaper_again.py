"""The reaper runs itself several times at the same time, in Lambda by invocations."""

import json

import pytest

from headrace.domain.errors import Unavailable
from headrace.store.services import invoke
from tests.unit.push.receiver import GivenAnswer, receiving


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


@pytest.mark.parametrize("status", [202, 403])
def test_a_function_is_invoked_without_waiting_or_is_unavailable(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    headers = {"X-Amzn-ErrorType": "AccessDeniedException"}
    with receiving(lambda _: GivenAnswer(status, headers=headers)) as api:
        monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", api.url.removesuffix("/hook"))
        if status == 202:
            invoke("the-reaper", {"part": 1})
        else:
            with pytest.raises(Unavailable, match="AccessDeniedException"):
                invoke("the-reaper", {"part": 1})

    (request,) = api.received
    assert request.path == "/2015-03-31/functions/the-reaper/invocations"
    assert request.headers["x-amz-invocation-type"] == "Event"
    assert json.loads(request.body) == {"part": 1}
