"""A worker that holds all its tasks under one lease."""

from headrace.domain.task import State
from tests.unit.worker.worker_harness import WorkerHarness
from tests.waiting import until


def test_a_worker_holds_all_tasks_under_one_lease_and_closes_it(harness: WorkerHarness) -> None:
    harness.handle_waiting()
    ids = harness.put(*range(5))
    harness.start(group_lease=True, keepalive=1, concurrency=5)
    harness.wait_begun(5)
    extended = until(lambda: [call for call in harness.calls if "/extend" in call.url.path])
    assert {harness.client.get_task(task).state for task in ids} == {State.INFLIGHT}

    harness.go_on.set()
    harness.wait_for(*ids)
    harness.stop()

    lease = extended[0].url.path.split("/")[-2].encode()
    reports = [call for call in harness.calls if call.url.path.endswith("/reports")]
    assert all(lease in report.content for report in reports)
    assert not any(b"INFLIGHT" in report.content for report in reports)
    last = [call.method for call in harness.calls if call.url.path.endswith(lease.decode())]
    assert last == ["DELETE"]


def test_a_cancelled_task_under_a_group_lease_is_stopped_and_no_other(
    harness: WorkerHarness,
) -> None:
    harness.handle_waiting()
    cancelled, other = harness.put(1, 2)
    harness.start(group_lease=True, keepalive=1)
    harness.wait_begun(2)

    harness.client.cancel_task(cancelled)
    until(lambda: f"cancelled: {cancelled}" in harness.noting.all)
    harness.go_on.set()

    harness.wait_for(other)
    assert len(harness.caught) == 1
