"""Group leases through the SDK, against the real service in memory."""

from collections.abc import Iterator

import pytest

from headrace import Report
from headrace.testing import MemoryService


@pytest.fixture
def service() -> Iterator[MemoryService]:
    with MemoryService(seed=1) as service:
        service.client.create_queue("mail")
        for number in range(3):
            service.client.enqueue("mail", number)
        yield service


def test_one_lease_over_many_tasks(service: MemoryService) -> None:
    client = service.client
    lease = client.open_lease("batch-1", keepalive_timeout_in_seconds=30)
    tasks = client.dequeue("mail", batch_size=3, lease_id=lease.id).tasks
    service.clock.forward(20)

    extended = client.extend_lease(lease.id)

    assert extended.id == lease.id
    assert extended.expires_at > lease.expires_at
    assert {client.get_task(task.id).lease_expires_at for task in tasks} == {extended.expires_at}
    done = Report(task_id=tasks[0].id, lease_id=lease.id, status="SUCCEEDED")
    assert [message.outcome for message in client.report("mail", [done])] == ["OK"]
    client.close_lease(lease.id)
    states = [client.get_task(task.id).state for task in tasks]
    assert states == ["SUCCEEDED", "ENQUEUED", "ENQUEUED"]
