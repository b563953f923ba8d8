"""What a worker asks of the service while there is nothing to do: the figures of the deploy guide.

A whole worker, its loops taken step by step in the order of their times, against the service in
memory, whose requests are counted.
"""

import random
from collections import Counter
from datetime import datetime
from typing import Final

import httpx2 as httpx
import pytest

from benchmarks import bill
from headrace.client.app.app import App
from headrace.client.worker.worker import Worker
from headrace.testing import MemoryService

_A_MOMENT: Final = 0.001  # by which a thread wakes late


class Idle:
    """A worker of some queues with nothing in them; what it asks is counted by method and path."""

    def __init__(self, queues: list[str]) -> None:
        self.requests: Counter[str] = Counter()
        self.service = MemoryService(seed=7)
        self.service.use_cases.deliveries.poll_after_seconds = 1.0  # as in the cloud
        self.begun: datetime = self.service.clock.now
        for name in queues:
            self.service.client.create_queue(name)
        self.worker = Worker(
            App(),
            client=self.service.connect(transport=httpx.MockTransport(self._counted)),
            queues=queues,
            name="idle",
            monotonic=self._monotonic,
            now=self.service.clock,
            chance=random.Random(7),
        )

    def _counted(self, request: httpx.Request) -> httpx.Response:
        self.requests[f"{request.method} {request.url.path}"] += 1
        return self.service.transport.handle_request(request)

    def _monotonic(self) -> float:
        return (self.service.clock.now - self.begun).total_seconds()

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        steps = [thread.step for thread in self.worker.threads]
        due = dict.fromkeys(range(len(steps)), self._monotonic())
        end = self._monotonic() + seconds
        while (at := min(due.values())) < end:
            self.service.clock.forward(max(_A_MOMENT, at - self._monotonic()))
            for place in [place for place, when in due.items() if when <= at]:
                due[place] = self._monotonic() + (steps[place]() or 0.0)


def test_an_idle_worker_asks_for_all_its_queues_in_one_call() -> None:
    seconds = 180.0
    idle = Idle([f"q{number}" for number in range(10)])
    idle.run(60)  # until it asks as seldom as it ever does
    idle.requests.clear()
    idle.run(seconds)

    requested = idle.requests["POST /v1/dequeue"]
    signs = idle.requests["PUT /v1/workers/idle"]
    assert idle.requests.total() == requested + signs
    assert seconds / requested == pytest.approx(bill.IDLE_POLL_SECONDS, rel=0.15)
    assert seconds / signs == pytest.approx(bill.WORKER_HEARTBEAT_SECONDS, rel=0.15)


def test_the_handlers_of_a_fetch_begin_before_the_next_call() -> None:
    idle = Idle(["mail"])
    fetch = idle.worker._fetching.step  # noqa: SLF001  the thread is not running
    fetch()
    idle.service.client.enqueue("mail", 1)
    assert (fetch() or 0.0) > 0
