"""Leases: prolonged at a third, and what happens when they are lost."""

from datetime import timedelta
from typing import Any

import pytest

from headrace.client.app.execution import TaskRoute
from headrace.client.worker.heartbeats import Heartbeats
from headrace.client.worker.inflight import InflightTask, InflightTasks, Interruption
from headrace.domain.errors import Unavailable
from tests.unit.worker.worker_harness import (
    START,
    FakeService,
    Losses,
    Monotonic,
    Noted,
    dice,
    heard,
    held,
)


class HeartbeatHarness:
    def __init__(self, keepalive: float | None = None) -> None:
        self.monotonic = Monotonic()
        self.service = FakeService(self.monotonic)
        self.inflight = InflightTasks()
        self.lost = Losses()
        self.cancelled: list[str] = []
        self.heartbeats = Heartbeats(
            self.service,
            heard(self.monotonic),
            keepalive=keepalive,
            chance=dice(),
        )

    def hold(
        self, *numbers: int, queue: str = "mail", route: TaskRoute | None = None
    ) -> list[InflightTask]:
        tasks = [held(number, now=self.monotonic(), queue=queue, route=route) for number in numbers]
        self.service.lease(*tasks)
        for task in tasks:
            self.inflight.add(task)
        return tasks

    def run(self, number: int, **limits: Any) -> tuple[InflightTask, Noted]:
        (task,) = self.hold(number, route=TaskRoute("sync", "mail.send", **limits))
        attempt = Noted()
        assert task.begin(attempt, self.monotonic())
        return task, attempt

    def after(self, seconds: float) -> None:
        self.monotonic.forward(seconds)
        for task, why, cancelled in self.heartbeats.beat(self.inflight.all()):
            if cancelled:
                task.cancel(self.monotonic())
                self.cancelled.append(task.task.id)
            else:
                self.lost(task, why)
        for task in self.inflight.past_limits(self.monotonic()):
            self.lost(task, "it ended without word from the service")


@pytest.fixture
def harness() -> HeartbeatHarness:
    return HeartbeatHarness()


def test_a_lease_is_prolonged_when_a_third_of_it_is_over(harness: HeartbeatHarness) -> None:
    task, _ = harness.run(1)

    harness.after(9.9)
    assert harness.service.calls == []
    harness.after(0.2)

    assert [report.status for _, (report,) in harness.service.calls] == ["INFLIGHT"]
    assert task.lease_ends == pytest.approx(1040.1)
    assert task.lease_expires_at == START + timedelta(seconds=40.1)
    harness.after(9.9)
    assert len(harness.service.calls) == 1


def test_a_task_that_still_waits_for_its_turn_keeps_its_lease_too(
    harness: HeartbeatHarness,
) -> None:
    (task,) = harness.hold(1)

    for _ in range(10):
        harness.after(10.1)

    assert harness.lost.all == []
    assert task.lease_ends > harness.monotonic()


def test_heartbeats_of_one_queue_share_calls_of_twenty_five(harness: HeartbeatHarness) -> None:
    harness.hold(*range(30))
    harness.hold(*range(30, 35), queue="sms")

    harness.after(10.1)

    assert sorted((queue, len(reports)) for queue, reports in harness.service.calls) == [
        ("mail", 5),
        ("mail", 25),
        ("sms", 5),
    ]


def test_one_that_is_nearly_due_goes_with_one_that_is(harness: HeartbeatHarness) -> None:
    harness.hold(1)
    harness.monotonic.forward(2)
    harness.hold(2)

    harness.after(8.1)

    assert [len(reports) for _, reports in harness.service.calls] == [2]


def test_progress_travels_with_the_next_heartbeat_once(harness: HeartbeatHarness) -> None:
    task, _ = harness.run(1)
    task.progress("half")
    task.progress("nearly done")

    harness.after(10.1)
    harness.after(10.1)

    sent: list[Any] = [report.progress for _, (report,) in harness.service.calls]
    assert sent == ["nearly done", None]


def test_progress_that_was_not_taken_is_sent_again_unless_there_is_newer(
    harness: HeartbeatHarness,
) -> None:
    task, _ = harness.run(1)
    task.progress("half")
    harness.service.fault = Unavailable("away")
    harness.after(10.1)
    harness.service.fault = None

    harness.after(1)

    assert harness.service.calls[-1][1][0].progress == "half"


def test_progress_that_cannot_be_sent_costs_no_lease(harness: HeartbeatHarness) -> None:
    bad, _ = harness.run(1)
    harness.run(2)
    bad.progress("x" * 5000)

    harness.after(10.1)

    assert harness.lost.all == []
    assert bad.lease_ends == pytest.approx(1040.1)


def test_a_heartbeat_without_an_answer_leaves_time_for_another(harness: HeartbeatHarness) -> None:
    harness.run(1)

    harness.after(10.1)

    assert harness.service.within == pytest.approx(19.9 / 2)


def test_the_length_asked_for_travels_along() -> None:
    harness = HeartbeatHarness(keepalive=12.0)
    harness.run(1)

    harness.after(10.1)

    assert harness.service.calls[0][1][0].keepalive_timeout_in_seconds == 12.0


def test_a_lease_that_the_service_no_longer_knows_stops_the_handler(
    harness: HeartbeatHarness,
) -> None:
    task, attempt = harness.run(1)
    harness.run(2)
    del harness.service.leases["lease-1"]

    harness.after(10.1)
    harness.after(10.1)

    assert harness.lost.all == [("task-1", "the service says STALE_LEASE")]
    assert attempt.interruptions == [Interruption.LEASE_LOST]
    assert task.lost
    assert [report.task_id for _, (report,) in harness.service.calls[1:]] == ["task-2"]


@pytest.mark.parametrize("keeps_dead", [True, False])
def test_the_next_heartbeat_of_a_cancelled_task_says_so(
    harness: HeartbeatHarness, *, keeps_dead: bool
) -> None:
    task, attempt = harness.run(1)
    _, other = harness.run(2)
    harness.service.keeps_dead = keeps_dead
    harness.service.cancel("task-1")

    harness.after(10.1)
    harness.after(10.1)

    assert (harness.cancelled, harness.lost.all) == (["task-1"], [])
    assert attempt.interruptions == [Interruption.CANCELLED]
    assert task.cancelled
    assert task.lost
    assert other.interruptions == []
    assert [report.task_id for _, (report,) in harness.service.calls[1:]] == ["task-2"]


def test_a_task_that_is_gone_after_its_lease_may_have_ended_in_any_way(
    harness: HeartbeatHarness,
) -> None:
    task, attempt = harness.run(1)
    harness.service.keeps_dead = False
    harness.service.cancel("task-1")

    harness.after(30.1)

    assert (harness.cancelled, task.cancelled) == ([], False)
    assert attempt.interruptions == [Interruption.LEASE_LOST]


def test_what_was_cancelled_and_goes_on_is_killed_once_when_its_time_is_over(
    harness: HeartbeatHarness,
) -> None:
    _, attempt = harness.run(1)
    harness.service.cancel("task-1")
    harness.after(10.1)

    harness.after(4.8)
    assert attempt.killed == 0
    harness.after(0.3)
    harness.after(10)

    assert attempt.killed == 1
    assert attempt.interruptions == [Interruption.CANCELLED]


@pytest.mark.parametrize("how", ["cancelled", "lost"])
def test_a_handler_that_goes_on_without_its_lease_has_its_hard_limit_still(
    harness: HeartbeatHarness, how: str
) -> None:
    _, attempt = harness.run(1, soft_timeout=11.0, hard_timeout=12.0)
    if how == "cancelled":
        harness.service.cancel("task-1")
    else:
        harness.service.leases.clear()

    for _ in range(4):
        harness.after(3.4)

    assert attempt.interruptions[1:] == [Interruption.HARD_LIMIT]


def test_what_was_cancelled_and_ends_is_not_killed(harness: HeartbeatHarness) -> None:
    task, attempt = harness.run(1)
    harness.service.cancel("task-1")
    harness.after(10.1)

    task.end()
    harness.after(10)

    assert attempt.killed == 0


def test_a_lease_ends_by_itself_when_the_service_is_away_for_too_long(
    harness: HeartbeatHarness,
) -> None:
    _, attempt = harness.run(1)
    harness.service.fault = Unavailable("away")

    harness.after(29.9)
    assert attempt.interruptions == []
    harness.after(0.2)

    assert attempt.interruptions == [Interruption.LEASE_LOST]
    assert harness.lost.all == [("task-1", "it ended without word from the service")]


def test_a_service_away_for_less_than_the_lease_harms_nothing(harness: HeartbeatHarness) -> None:
    _, attempt = harness.run(1)
    harness.service.fault = Unavailable("away")
    harness.after(10.1)
    harness.after(10)
    harness.service.fault = None

    harness.after(1)
    harness.after(15)

    assert attempt.interruptions == []
    assert harness.lost.all == []


def test_a_queue_whose_heartbeats_are_not_taken_costs_no_other_its_leases(
    harness: HeartbeatHarness,
) -> None:
    class Choosy(FakeService):
        def report(self, queue: str, reports: Any, *, within: float) -> Any:
            if queue == "mail":
                raise Unavailable("away")
            return super().report(queue, reports, within=within)

    harness.service = Choosy(harness.monotonic)
    harness.heartbeats = Heartbeats(
        harness.service,
        heard(harness.monotonic),
        keepalive=None,
        chance=dice(),
    )
    harness.hold(1, queue="mail")
    (fine,) = harness.hold(2, queue="sms")

    harness.after(10.1)

    assert fine.lease_ends == pytest.approx(1040.1)


def test_progress_that_cannot_be_written_costs_no_lease_but_itself(
    harness: HeartbeatHarness,
) -> None:
    class Faulty(FakeService):
        def report(self, queue: str, reports: Any, *, within: float) -> Any:
            if any(report.progress is not None for report in reports):
                raise RuntimeError("the codec has lost its key")
            return super().report(queue, reports, within=within)

    harness.service = Faulty(harness.monotonic)
    harness.heartbeats = Heartbeats(
        harness.service,
        heard(harness.monotonic),
        keepalive=None,
        chance=dice(),
    )
    (task,) = harness.hold(1)
    task.progress("half")
    harness.after(10.1)

    harness.after(1)

    assert task.lease_ends == pytest.approx(1041.1)


def test_the_soft_limit_comes_once_and_the_hard_one_each_second(harness: HeartbeatHarness) -> None:
    _, attempt = harness.run(1, soft_timeout=2.0, hard_timeout=5.0)

    for _ in range(14):
        harness.after(0.5)

    assert attempt.interruptions == [Interruption.SOFT_LIMIT] + [Interruption.HARD_LIMIT] * 3


def test_time_limits_count_from_the_start_and_not_while_a_task_waits(
    harness: HeartbeatHarness,
) -> None:
    (task,) = harness.hold(1, route=TaskRoute("sync", "mail.send", hard_timeout=5.0))
    harness.after(8)
    attempt = Noted()
    task.begin(attempt, harness.monotonic())

    harness.after(4.9)
    assert attempt.interruptions == []
    harness.after(0.2)

    assert attempt.interruptions == [Interruption.HARD_LIMIT]


def test_what_is_over_is_interrupted_no_more(harness: HeartbeatHarness) -> None:
    task, attempt = harness.run(1, hard_timeout=5.0)
    task.end()

    harness.after(6)

    assert attempt.interruptions == []
