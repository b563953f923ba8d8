"""Faults on request: they really happen to the service, and the seed repeats them."""

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.client.client import Client
from headrace.client.queue_fields import RetryFields
from headrace.client.sending import Report
from headrace.domain.errors import Unavailable
from headrace.testing import MemoryService
from headrace.wire.tasks import LeasedTask, Reported

AT_ONCE: RetryFields = {"kind": "fixed", "base_seconds": 0, "max_retries": 5, "jitter": 0}


@pytest.fixture
def service() -> Iterator[MemoryService]:
    with MemoryService(seed=1) as service:
        service.client.create_queue("mail", retry_strategy=AT_ONCE)
        yield service


def impatient(service: MemoryService) -> Client:
    """Return a client that tries once."""
    return Client(service.url, service.key, retries=0, transport=service.transport)


def take(service: MemoryService) -> LeasedTask:
    (task,) = service.client.dequeue("mail").tasks
    return task


def say(service: MemoryService, task: LeasedTask, status: Any = "SUCCEEDED") -> Reported:
    report = Report(task_id=task.id, lease_id=task.lease.id, status=status)
    return service.client.report("mail", [report])[0]


def test_what_was_asked_for_took_effect_though_the_answer_was_lost(service: MemoryService) -> None:
    service.faults.lose_answers(of="enqueue")

    with pytest.raises(Unavailable, match="the answer was lost"):
        impatient(service).enqueue("mail", id="order-1")

    assert service.client.get_task("order-1").attempts == 0
    assert impatient(service).enqueue("mail", id="order-1").outcome == "EXISTING"


def test_a_request_that_was_lost_changed_nothing(service: MemoryService) -> None:
    service.faults.lose_requests()

    with pytest.raises(Unavailable, match="the request was lost"):
        impatient(service).enqueue("mail", id="order-1")

    assert service.client.count_tasks("mail").count == 0


def test_a_report_that_comes_too_late_means_another_delivery(service: MemoryService) -> None:
    service.client.enqueue("mail")
    fault = service.faults.duplicate_delivery(rate=1)

    first = take(service)
    assert say(service, first, "INFLIGHT").outcome == "OK"  # a heartbeat is no end
    late = say(service, first)
    second = take(service)
    text = say(service, second)

    assert late.outcome in ("NOT_INFLIGHT", "STALE_LEASE")
    assert (second.id, second.attempts, text.outcome) == (first.id, 2, "OK")
    assert second.errors[0].kind == "lease_expired"
    assert fault.struck == 1


def story(seed: int) -> list[object]:
    with MemoryService(seed=seed) as service:
        service.client.create_queue("mail", retry_strategy={"kind": "fixed", "base_seconds": 9})
        service.faults.duplicate_delivery(rate=0.3)
        service.faults.lose_answers(rate=0.3)
        reported: list[object] = []
        for number in range(40):
            service.client.enqueue("mail", number, id=f"task-{number:02}")
            tasks = service.client.dequeue("mail", batch_size=2).tasks
            reported += [
                (task.payload, task.attempts, say(service, task).outcome) for task in tasks
            ]
            service.clock.forward(5)
        return [*reported, service.clock.now]


def test_the_same_seed_tells_the_same_story() -> None:
    assert story(7) == story(7)
    assert story(7) != story(8)
