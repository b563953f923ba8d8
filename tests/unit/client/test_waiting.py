"""When a task that has not ended is looked at again, and what its end comes to."""

from typing import Any

import pytest

from headrace import Client
from headrace.domain.errors import InvalidRequest
from tests.unit.client.network import Network, reply
from tests.unit.client.test_calls import TASK


def look(poll_after: float, **task: Any) -> Any:
    headers = {"X-Poll-After": str(poll_after)}
    return reply(200, {**TASK, **task}, headers=headers)


def waiting(*looks: Any) -> tuple[Client, Network]:
    wire = Network([*looks])
    return Client("http://queue.test", "k", transport=wire, sleep=wire.sleep), wire


DONE = {"state": "SUCCEEDED", "status": "SUCCEEDED", "result": 5}


def test_a_service_that_waits_for_nothing_is_let_wait() -> None:
    client, wire = waiting(look(0.02), look(0.02, **DONE))

    assert client.wait("t1").result == 5

    assert float(wire.requests[1].url.params["wait_seconds"]) >= 2


def test_one_that_is_paid_for_while_it_waits_is_asked_again_ever_later() -> None:
    client, wire = waiting(*[look(1.0)] * 7, look(1.0, **DONE))

    client.wait("t1")

    assert wire.waits == [1, 1.5, 2.25, 3.375, 5, 5, 5]


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_timeout_that_is_none_is_refused(timeout: float) -> None:
    with pytest.raises(InvalidRequest, match="timeout"):
        waiting(look(1.0))[0].wait("t1", timeout=timeout)
