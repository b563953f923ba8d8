"""Leases: kept while a handler runs, and what happens when they are lost."""

import httpx2 as httpx
import pytest

from headrace import Context, LeaseLost
from headrace.domain.task import State
from tests.unit.worker.worker_harness import BLOCK, WorkerHarness
from tests.waiting import until

LEASE = 1.0  # seconds: a heartbeat comes after a third of it


def heartbeats(harness: WorkerHarness) -> list[httpx.Request]:
    return [request for request in harness.calls if b"INFLIGHT" in request.content]


def test_leases_of_what_runs_and_of_what_waits_are_kept_by_shared_calls(
    harness: WorkerHarness,
) -> None:
    harness.handle_waiting()
    ids = harness.put(*range(5))
    harness.start(concurrency=1, prefetch=4, lease_seconds=LEASE)
    harness.wait_begun()
    begun = harness.clock.now

    until(lambda: (harness.clock.now - begun).total_seconds() > 1.5 * LEASE)
    until(lambda: len(heartbeats(harness)) > 2)
    harness.service.tick()  # the reaper finds no lease that has ended

    assert {harness.client.get_task(task).state for task in ids} == {State.INFLIGHT}
    assert all(request.content.count(b"task_id") == 5 for request in heartbeats(harness))


def test_progress_travels_with_the_next_heartbeat_as_it_was(harness: WorkerHarness) -> None:
    shown = [1]

    def handler(ctx: Context) -> str:
        ctx.progress(["older"])
        ctx.progress(shown)
        shown.append(2)
        return harness.wait()

    harness.handle(handler)
    (task,) = harness.put(1)
    harness.cut("/reports")
    harness.start(lease_seconds=LEASE)
    harness.wait_begun()
    until(lambda: heartbeats(harness))  # one that gets lost, and is sent again
    harness.restore()

    until(lambda: harness.client.get_task(task).progress == [1])


def test_progress_is_sent_within_a_second_and_once_a_second_however_long_the_lease_is(
    harness: WorkerHarness,
) -> None:
    harness.service.use_cases.deliveries.poll_after_seconds = 1.0  # as in the cloud
    sent: list[float] = []

    def handler(ctx: Context) -> str:
        harness.begun.release()
        while not harness.go_on.wait(BLOCK):
            sent.append(harness.clock.monotonic())
            ctx.progress(len(sent))
        return "done"

    harness.handle(handler)
    (task,) = harness.put(1)
    harness.start(lease_seconds=3600)
    harness.wait_begun()

    begun = harness.clock.monotonic()
    first = until(lambda: harness.client.get_task(task).progress)
    seen = until(lambda: len(heartbeats(harness)) >= 3) and harness.clock.monotonic() - begun
    harness.go_on.set()
    harness.wait_for(task)

    assert sent[first - 1] - begun < 1
    assert seen >= 2


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_lease_that_the_service_no_longer_knows_stops_the_handler(
    harness: WorkerHarness, kind: str
) -> None:
    harness.handle_waiting(kind)
    lost, kept = harness.put(1, 2)
    harness.start(lease_seconds=LEASE)
    harness.wait_begun(2)

    harness.service.lapse([lost])

    until(lambda: harness.caught)
    harness.go_on.set()
    harness.wait_for(kept)
    (error,) = harness.caught
    assert isinstance(error, LeaseLost) or isinstance(error.args[0], LeaseLost)
    assert any(each.startswith("lost: the service says") for each in harness.noting.all)
    assert harness.client.get_task(lost).errors[0].type == "LeaseExpired"


def test_a_lease_ends_by_itself_when_the_service_is_away_for_too_long(
    harness: WorkerHarness,
) -> None:
    harness.handle_waiting()
    harness.put(1)
    harness.start(lease_seconds=LEASE)
    harness.wait_begun()

    harness.cut()

    until(lambda: harness.caught)
    assert isinstance(harness.caught[0], LeaseLost)
    assert "lost: it ended without word from the service" in harness.noting.all


def test_a_service_away_for_less_than_the_lease_harms_nothing(harness: WorkerHarness) -> None:
    harness.handle_waiting()
    (task,) = harness.put(1)
    harness.start(lease_seconds=2 * LEASE)
    harness.wait_begun()
    harness.cut()
    until(lambda: len(heartbeats(harness)) > 1)
    harness.restore()
    answered = len(heartbeats(harness))
    until(lambda: len(heartbeats(harness)) > answered + 1)

    harness.go_on.set()
    harness.wait_for(task)

    assert harness.caught == []
    assert harness.client.get_task(task).errors == []
