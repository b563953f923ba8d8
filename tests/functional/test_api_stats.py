"""How a queue is doing, over HTTP: the recorder is given the stream when a test says so."""

import pytest

from headrace.domain.task import Status
from tests.functional.conftest import Counted

FIXED = {"kind": "fixed", "base_seconds": 600, "jitter": 0, "max_retries": 1}
EVENTS = ("enqueued", "started", "succeeded", "failed", "dead", "cancelled")


def worked(counted: Counted) -> str:
    """Let a queue have a task in each state, two of them waiting."""
    path = counted.queue("mail", retry_strategy=FIXED)
    counted.put(path, *range(4))
    counted.put(path, 4, delay_in_seconds=3600)
    counted.clock.forward(1)
    tasks = counted.take(path, 3)
    counted.clock.forward(2)
    counted.say(tasks[0], "SUCCEEDED")
    counted.say(tasks[1], "FAILED", retryable=False)
    return path


def test_a_queue_at_a_glance(counted: Counted) -> None:
    path = worked(counted)
    counted.record()
    counted.clock.forward(3)

    stats = counted.stats(path)

    assert stats["counts"] == {
        "scheduled": 1,
        "ready": 1,
        "inflight": 1,
        "succeeded": 1,
        "dead": 1,
        "cancelled": 0,
    }
    assert stats["age_of_oldest_ready_seconds"] == pytest.approx(6.001, abs=1e-4)
    assert stats["age_of_oldest_inflight_seconds"] == 5.0
    assert stats["as_of"] == "2026-11-21T08:00:03.001000Z"
    assert stats["staleness_seconds"] == 3.0


def cancelled(counted: Counted, path: str, *numbers: int) -> None:
    """Enqueue and cancel tasks of these numbers."""
    ids = [f"c{number}" for number in numbers]
    for task_id in ids:
        counted("POST", f"{path}/tasks", {"tasks": [{"payload": 1, "id": task_id}]})
        assert counted("POST", f"/v1/tasks/{task_id}/cancel", {}).status == 200


def test_of_the_dead_those_that_were_cancelled_are_told(counted: Counted) -> None:
    path = worked(counted)
    cancelled(counted, path, 1, 2, 3)
    counted.record()

    shown = [counted.stats(path, **query)["counts"] for query in ({}, {"exact": "true"})]

    assert [(counts["dead"], counts["cancelled"]) for counts in shown] == [(4, 3)] * 2
    glance = counted.use.stats.overview([counted.use.queues.get("mail")]).queues["mail"]
    assert (glance.counts[Status.DEAD], glance.cancelled) == (4, 3)


@pytest.mark.parametrize("change", ["enqueue", "succeed"])
def test_figures_are_stale_when_the_recorder_has_missed_a_change(
    counted: Counted, change: str
) -> None:
    path = counted.queue("mail", keepalive_timeout_in_seconds=60)
    counted.put(path, *range(3))
    held = counted.take(path, 2)
    counted.record()
    counted.clock.forward(20)

    if change == "enqueue":
        counted.put(path, 1)
    else:
        counted.say(held[0], "SUCCEEDED")
    counted.clock.forward(10)

    assert counted.stats(path)["staleness_seconds"] > 29
    counted.record()
    assert counted.stats(path)["staleness_seconds"] < 11


def test_exact_counts_need_no_recorder(counted: Counted) -> None:
    path = counted.queue("mail")
    for _ in range(60):
        counted.put(path, *range(10))
        counted.put(path, *range(10), delay_in_seconds=500)
    counted.clock.forward(1)

    stats = counted.stats(path, exact="true")

    assert stats["counts"]["ready"] == stats["counts"]["scheduled"] == 600
    assert stats["staleness_seconds"] == 0


def test_a_series_has_a_point_for_every_minute_of_the_last_hour(counted: Counted) -> None:
    path = worked(counted)
    counted.record()
    counted.clock.forward(60)

    metrics = counted.metrics(path)

    points = metrics["points"]
    assert len(points) == 60
    assert points[0]["at"] == "2026-11-21T07:02:00.000000Z"
    assert points[-1]["at"] == "2026-11-21T08:01:00.000000Z"
    assert metrics["step_seconds"] == 60
    assert points[-2] == {
        "at": "2026-11-21T08:00:00.000000Z",
        "enqueued": 5,
        "started": 3,
        "succeeded": 1,
        "failed": 1,
        "dead": 1,
        "cancelled": 0,
        "wait_p50": pytest.approx(1.001, rel=0.025),
        "wait_p99": pytest.approx(1.001, rel=0.025),
        "run_p50": pytest.approx(2, rel=0.025),
        "run_p99": pytest.approx(2, rel=0.025),
    }
    assert points[-1]["wait_p50"] is None
    assert [points[-1][name] for name in EVENTS] == [0] * 6
