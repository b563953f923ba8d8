"""Which queues a worker asks, and what it does when the answer is lost or a refusal."""

import random

from headrace.domain.task import State
from tests.unit.worker.worker_harness import WorkerHarness
from tests.waiting import until


def test_the_weights_decide_which_queue_comes_first(harness: WorkerHarness) -> None:
    order: list[str] = []
    for queue in ("often", "seldom"):
        harness.client.create_queue(queue)
        harness.handle(lambda payload: order.append(payload), queue=queue)  # noqa: PLW0108
        harness.put(*[queue] * 60, queue=queue)

    harness.burst(
        queues={"often": 3, "seldom": 1}, concurrency=1, prefetch=0, chance=random.Random(7)
    )

    assert 26 <= order[:48].count("often") <= 46  # 36 on average


def test_strict_takes_queues_in_the_order_given(harness: WorkerHarness) -> None:
    order: list[str] = []
    for queue in ("bulk", "urgent"):
        harness.client.create_queue(queue)
        harness.handle(lambda payload: order.append(payload), queue=queue)  # noqa: PLW0108
        harness.put(*[queue] * 3, queue=queue)

    harness.burst(queues=["urgent", "bulk"], strict=True, concurrency=1, prefetch=0)

    assert order == ["urgent"] * 3 + ["bulk"] * 3


def test_a_dequeue_whose_answer_was_lost_leases_no_task_twice(harness: WorkerHarness) -> None:
    harness.handle(lambda payload: payload)
    ids = harness.put(*range(10))

    with harness.service.faults.lose_answers(times=2, of="dequeue"):
        harness.start(concurrency=3)
        harness.wait_for(*ids)

    assert {harness.client.get_task(task).attempts for task in ids} == {1}


def test_a_queue_that_is_refused_does_not_keep_the_others(harness: WorkerHarness) -> None:
    harness.client.create_queue("news")
    for queue in ("mail", "news"):
        harness.handle(lambda payload: payload, queue=queue)
    harness.start(queues=["mail", "news"])
    harness.wait_for(*harness.put(1))
    harness.client.delete_queue("mail")

    harness.wait_for(*harness.put(2, queue="news"))

    assert harness.raised == []


def test_a_worker_with_reports_that_are_not_taken_takes_no_more_tasks(
    harness: WorkerHarness,
) -> None:
    harness.handle(lambda payload: payload)
    (first,) = harness.put(1)
    harness.cut("/reports")
    harness.start()
    until(lambda: "ended: SUCCEEDED" in harness.noting.all)
    until(lambda: sum(call.url.path.endswith("/reports") for call in harness.calls) > 2)
    (second,) = harness.put(2)
    reported = len(harness.calls)
    until(lambda: len(harness.calls) > reported)

    assert harness.client.get_task(second).state is State.ENQUEUED
    harness.restore()
    harness.wait_for(first, second)
