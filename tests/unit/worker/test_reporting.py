"""Reports: kept while the service is away, and a bad one costs its own task only."""

import threading
from typing import Any

import httpx2 as httpx
import pytest

from headrace import Context
from headrace.domain.task import State
from tests.unit.worker.worker_harness import SOON, WorkerHarness
from tests.waiting import until


def lost(harness: WorkerHarness) -> list[str]:
    return [each for each in harness.noting.all if each.startswith("lost")]


def is_report(request: httpx.Request) -> bool:
    return request.url.path.endswith("/reports")


def test_a_result_is_kept_and_reported_again_while_the_service_is_away(
    harness: WorkerHarness,
) -> None:
    harness.handle_waiting()
    (task,) = harness.put(1)
    worker = harness.start(lease_seconds=1)
    harness.wait_begun()
    harness.cut()
    harness.go_on.set()
    until(lambda: any(each.startswith("ended") for each in harness.noting.all))
    tried = len(harness.calls)
    until(lambda: len(harness.calls) > tried + 2)
    worker.stop()

    harness.restore()
    harness.ends()

    assert harness.ending(task) == State.SUCCEEDED
    assert lost(harness) == []


@pytest.mark.parametrize("burst", [True, False])
def test_a_report_whose_answer_was_lost_is_repeated_and_counts_once(
    harness: WorkerHarness, *, burst: bool
) -> None:
    harness.handle(lambda payload: payload)
    (task,) = harness.put(1)
    with harness.service.faults.lose_answers(times=2, of="report"):
        harness.start(burst=burst)
        harness.wait_for(task)
        harness.stop()

    assert sum(map(is_report, harness.calls)) == 3
    assert (lost(harness), harness.client.get_task(task).attempts) == ([], 1)


def test_a_result_is_dropped_when_its_lease_has_been_over_for_a_minute(
    harness: WorkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.handle(lambda payload: payload)
    harness.put(1)
    harness.fault = lambda request: httpx.ConnectError("away") if is_report(request) else None
    harness.start()
    until(lambda: "Reports are not taken, and kept" in caplog.text)

    harness.clock.forward(91)

    (why,) = until(lambda: lost(harness))
    assert "over before its report was taken" in why


@pytest.mark.parametrize("is_fetching", [False, True])
def test_a_second_stop_ends_a_worker_with_results_that_are_not_taken(
    harness: WorkerHarness, *, is_fetching: bool
) -> None:
    """Also where the second stop comes while the worker waits for its last dequeue."""
    fetches, answers = threading.Event(), threading.Event()

    def fault(request: httpx.Request) -> httpx.ConnectError | None:
        if request.url.path.endswith("/dequeue") and harness.noting.all:
            fetches.set()
            answers.wait(SOON if is_fetching else 0)
        return httpx.ConnectError("away") if is_report(request) else None

    harness.handle_waiting()
    harness.put(1, 2)
    harness.fault = fault
    worker = harness.start(shutdown_timeout=60)
    harness.wait_begun(2)
    assert fetches.wait(SOON)
    harness.go_on.set()
    until(lambda: sum(each.startswith("ended") for each in harness.noting.all) == 2)
    harness.clock.stop()  # no time limit ends the worker now

    worker.stop()
    harness.stop()

    assert worker.unreported_tasks == 2
    answers.set()


def test_a_result_whose_task_or_queue_is_gone_is_noted_and_holds_up_nothing(
    harness: WorkerHarness,
) -> None:
    harness.client.create_queue("gone")
    for queue in ("mail", "gone"):
        harness.handle(lambda payload: harness.wait(), queue=queue)
    deleted, kept = harness.put(1, 2)
    harness.put(3, queue="gone")
    harness.start(queues=["mail", "gone"])
    harness.wait_begun(3)
    harness.client.delete_task(deleted)
    harness.client.delete_queue("gone")

    harness.go_on.set()
    harness.wait_for(kept)
    until(lambda: "lost: its queue is gone" in harness.noting.all)

    until(lambda: f"cancelled: {deleted}" in harness.noting.all)


def test_reports_that_are_too_large_only_together_are_sent_one_by_one(
    harness: WorkerHarness,
) -> None:
    body = {"code": "payload_too_large", "status": 413, "detail": "the body is too large"}
    harness.fault = lambda request: (
        httpx.Response(413, json=body)
        if is_report(request) and request.content.count(b"task_id") > 1
        else None
    )
    harness.handle(lambda payload: payload)
    ids = harness.put(*range(20))

    harness.burst()

    assert {harness.ending(task) for task in ids} == {State.SUCCEEDED}


@pytest.mark.parametrize("way", ["spawn", "move"])
def test_what_the_key_may_not_do_costs_its_own_task_only(harness: WorkerHarness, way: str) -> None:
    harness.client.create_queue("billing")
    key = harness.client.create_key("mailer", "worker", ["mail"]).secret

    def handler(ctx: Context, payload: Any) -> None:
        if payload == "forbidden":
            getattr(ctx, way)("billing")

    harness.handle(handler)
    first, refused, last = harness.put("first", "forbidden", "last")

    harness.burst(key=key)

    assert [harness.ending(task) for task in (first, last)] == [State.SUCCEEDED] * 2
    assert "billing" in harness.client.get_task(refused).errors[0].message
    assert harness.client.count_tasks("billing").count == 0


def test_a_queue_whose_reports_are_not_taken_holds_up_no_other(harness: WorkerHarness) -> None:
    harness.client.create_queue("sms")
    for queue in ("mail", "sms"):
        harness.handle(lambda payload: payload, queue=queue)
    harness.cut("/queues/mail/reports")
    (held,) = harness.put(1)
    (other,) = harness.put(2, queue="sms")

    harness.start(queues=["mail", "sms"])
    harness.wait_for(other)

    assert harness.client.get_task(held).state is State.INFLIGHT
    harness.restore()
    harness.wait_for(held)
