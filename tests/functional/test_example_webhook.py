"""The web-hook caller, against a real HTTP server."""

import hashlib
import hmac
import json
from collections.abc import Iterator

import pytest

from examples.webhook.app import app, call
from headrace.testing import MemoryService
from tests.unit.push.receiver import GivenAnswer, Receiver, receiving

CLOSE = {"Connection": "close"}  # or the client of the example keeps a connection open


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("WEBHOOK_SECRET", "shared")
    with receiving(lambda _: GivenAnswer(200, headers=CLOSE)) as one:
        yield one


@pytest.fixture
def service() -> Iterator[MemoryService]:
    with MemoryService() as service, service.serving(app):
        yield service


def test_an_event_arrives_signed(service: MemoryService, receiver: Receiver) -> None:
    made = call.enqueue(url=receiver.url, event={"order": 17})
    service.run(app)
    (got,) = receiver.received
    assert json.loads(got.body) == {"order": 17}
    expected = hmac.new(b"shared", got.body, hashlib.sha256).hexdigest()
    assert got.headers["x-signature-256"] == f"sha256={expected}"
    assert service.client.get_task(str(made.id)).result == 200


def test_a_broken_server_is_called_again_under_the_same_idempotency_key(
    service: MemoryService, receiver: Receiver
) -> None:
    statuses = iter([500, 503])
    receiver.answer = lambda _: GivenAnswer(next(statuses, 200), headers=CLOSE)
    made = call.enqueue(url=receiver.url, event={})
    service.run(app, until_settled=True)
    assert [got.headers["idempotency-key"] for got in receiver.received] == [made.id] * 3
