"""Cancels in the test kit: a handler hears of one as it would from a worker, in simulated time."""

from collections.abc import Iterator
from typing import Any

import pytest

from headrace import App, Context
from headrace.testing import MemoryService


@pytest.fixture
def service() -> Iterator[MemoryService]:
    with MemoryService(seed=1) as service:
        yield service


def test_a_handler_sees_a_cancel_when_a_third_of_its_lease_is_over(service: MemoryService) -> None:
    app, seen = App(), list[tuple[bool, bool]]()

    @app.handler(queue="mail")
    def work(ctx: Context, payload: Any) -> None:
        service.client.cancel_task(ctx.id)
        seen.append((ctx.cancelled, ctx.lost))
        service.clock.forward(10)  # of 30
        seen.append((ctx.cancelled, ctx.lost))
        ctx.check()

    service.client.create_queue("mail")
    service.client.enqueue("mail", 1)
    ran = service.run(app, until_settled=True)

    assert seen == [(False, False), (True, True)]
    assert (ran.cancelled, ran.lost, ran.failed, ran.succeeded) == (1, 0, 0, 0)
    assert "cancelled" in repr(ran)
