"""Reports: batched, kept while the service is away, dropped only when their lease is over.

Long, because each order of events around one report is a test of its own.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from headrace.client.models import Reported
from headrace.client.sending import Report, SpawnedTask
from headrace.client.worker.inflight import InflightTask
from headrace.client.worker.loop import UNTIL_WOKEN
from headrace.client.worker.reporting import Reporter
from headrace.domain.errors import (
    Forbidden,
    NotFound,
    PayloadTooLarge,
    Unauthenticated,
    Unavailable,
)
from tests.unit.sdk.worker_ground import FakeService, Losses, Monotonic, dice, heard, held


class Choosy(FakeService):
    """Refuses calls as a whole for one report in them, or for their queue."""

    def __init__(self, monotonic: Monotonic) -> None:
        super().__init__(monotonic)
        self.forbidden: Callable[[Report], bool] = lambda _report: False
        self.unwritable: Callable[[Report], bool] = lambda _report: False
        self.away: set[str] = set()

    def report(self, queue: str, reports: Sequence[Report], *, within: float) -> list[Reported]:
        if any(map(self.unwritable, reports)):
            raise RuntimeError("the codec has lost its key")
        if any(map(self.forbidden, reports)):
            raise Forbidden("your key may not reach that queue")
        if queue in self.away:
            raise Unavailable("away")
        return super().report(queue, reports, within=within)


class Ground:
    def __init__(self) -> None:
        self.monotonic = Monotonic()
        self.service = Choosy(self.monotonic)
        self.lost = Losses()
        self.idle = True
        self.settled: list[str] = []
        self.reporter = Reporter(
            self.service,
            heard(self.monotonic),
            idle=lambda: self.idle,
            settled=lambda task, *_: self.settled.append(task.task.id),
            dropped=self.lost,
            chance=dice(),
        )

    def add(self, *numbers: int, queue: str = "mail", **fields: Any) -> list[InflightTask]:
        tasks = [held(number, now=self.monotonic(), queue=queue) for number in numbers]
        self.service.lease(*tasks)
        for task in tasks:
            self.reporter.add(task, report(task, **fields))
        return tasks

    def step(self) -> float:
        return self.reporter.step()

    @property
    def batches(self) -> list[int]:
        return [len(reports) for _, reports in self.service.calls]


def report(task: InflightTask, status: Any = "SUCCEEDED", **fields: Any) -> Report:
    return Report(task_id=task.task.id, lease_id=task.task.lease.id, status=status, **fields)


@pytest.fixture
def ground() -> Ground:
    return Ground()


def test_a_report_goes_out_at_once_when_nothing_else_is_at_work(ground: Ground) -> None:
    ground.add(1)

    assert ground.step() == UNTIL_WOKEN
    assert ground.service.statuses() == {"task-1": "SUCCEEDED"}
    assert ground.settled == ["task-1"]
    assert not ground.reporter.unsaid


def test_reports_wait_a_few_milliseconds_for_others_while_handlers_are_at_work(
    ground: Ground,
) -> None:
    ground.idle = False
    ground.add(1)

    assert 0 < ground.step() < 0.02
    ground.add(2)
    ground.monotonic.forward(0.02)
    ground.step()

    assert ground.batches == [2]


def test_twenty_five_reports_do_not_wait(ground: Ground) -> None:
    ground.idle = False
    ground.add(*range(30))

    ground.step()

    assert ground.batches == [25]
    assert len(ground.reporter) == 5


def test_each_queue_has_calls_of_its_own_and_the_oldest_report_goes_first(ground: Ground) -> None:
    ground.add(1, queue="mail")
    ground.add(2, queue="sms")
    ground.add(3, queue="mail")

    ground.step()
    ground.step()

    assert [
        (queue, [each.task_id for each in reports]) for queue, reports in ground.service.calls
    ] == [("mail", ["task-1", "task-3"]), ("sms", ["task-2"])]


def test_a_result_is_kept_and_reported_again_while_the_service_is_away(ground: Ground) -> None:
    ground.add(1, 2)
    ground.service.fault = Unavailable("away")
    waits = []
    for _ in range(8):
        waits.append(ground.step())
        ground.monotonic.forward(waits[-1])

    ground.service.fault = None
    ground.step()

    assert ground.service.statuses() == {"task-1": "SUCCEEDED", "task-2": "SUCCEEDED"}
    assert ground.lost.all == []
    assert waits[0] <= 0.1
    assert max(waits) <= 2.0


def test_it_is_not_asked_again_before_the_wait_is_over(ground: Ground) -> None:
    ground.add(1)
    ground.service.fault = Unavailable("away")
    ground.step()

    ground.step()

    assert len(ground.service.calls) == 1


def test_a_report_whose_answer_was_lost_is_repeated_and_counts_once(ground: Ground) -> None:
    ground.add(1)
    ground.service.lose_answers = True
    ground.monotonic.forward(ground.step())

    ground.service.lose_answers = False
    ground.step()

    assert ground.batches == [1, 1]
    assert ground.lost.all == []
    assert not ground.reporter.unsaid


def test_a_result_is_dropped_when_its_lease_has_been_over_for_a_minute(
    ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    ground.add(1)
    ground.service.fault = Unavailable("away")
    ground.step()
    assert ground.reporter.in_trouble
    ground.monotonic.forward(88)
    ground.step()
    assert ground.lost.all == []

    ground.monotonic.forward(3)
    ground.step()

    ((task_id, why),) = ground.lost.all
    assert task_id == "task-1"
    assert "over before its report was taken" in why
    assert not ground.reporter.unsaid
    assert "Reports are not taken, and kept" in caplog.text


def test_a_result_that_comes_after_its_lease_is_tried_all_the_same(ground: Ground) -> None:
    ground.add(1)
    ground.monotonic.forward(60)

    ground.step()

    assert ground.service.statuses() == {"task-1": "SUCCEEDED"}


def test_a_stale_lease_is_noted_and_raises_nothing(ground: Ground) -> None:
    ground.add(1, 2)
    del ground.service.leases["lease-1"]

    ground.step()

    assert ground.lost.all == [("task-1", "the service says STALE_LEASE")]
    assert ground.service.statuses() == {"task-2": "SUCCEEDED"}


def test_a_deleted_queue_costs_its_results_and_nothing_else(ground: Ground) -> None:
    ground.add(1)
    ground.service.fault = NotFound("no such queue")

    ground.step()

    assert ground.lost.all == [("task-1", "its queue is gone")]


def test_a_key_that_was_taken_back_keeps_results_waiting(ground: Ground) -> None:
    ground.add(1)
    ground.service.fault = Unauthenticated("not you")
    ground.monotonic.forward(ground.step())

    ground.service.fault = None
    ground.step()

    assert ground.service.statuses() == {"task-1": "SUCCEEDED"}


def test_a_result_that_cannot_be_sent_fails_its_own_task_and_none_of_the_others(
    ground: Ground,
) -> None:
    ground.add(1)
    ground.add(2, result="x" * 40_000)
    ground.add(3)

    ground.step()

    assert ground.service.statuses() == {
        "task-1": "SUCCEEDED",
        "task-2": "FAILED",
        "task-3": "SUCCEEDED",
    }
    refused = ground.service.done["task-2"]
    assert refused.error is not None
    assert "reports[1].result" in refused.error.message
    assert "32768" in refused.error.message
    assert not refused.retryable


def test_reports_that_are_too_large_only_together_are_sent_one_by_one(ground: Ground) -> None:
    class Narrow(FakeService):
        def report(self, queue: str, reports: Any, *, within: float) -> Any:
            if len(reports) > 1:
                raise PayloadTooLarge("the body is too large")
            return super().report(queue, reports, within=within)

    narrow = Narrow(ground.monotonic)
    narrow.leases = ground.service.leases
    ground.reporter = Reporter(
        narrow,
        heard(ground.monotonic),
        idle=lambda: True,
        settled=lambda *_: None,
        dropped=ground.lost,
        chance=dice(),
    )
    ground.add(1, 2, 3)

    ground.step()

    assert set(narrow.statuses().values()) == {"SUCCEEDED"}
    assert len(narrow.done) == 3


def test_a_release_that_is_refused_is_given_up(
    ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    ground.add(1, status="RELEASED", result="x" * 40_000)

    ground.step()

    assert ground.lost.all == [("task-1", "the service refused its report")]


def test_a_move_that_the_stored_state_speaks_against_is_a_failed_attempt(ground: Ground) -> None:
    ground.service.refusals["MOVED"] = "INVALID"
    ground.add(1, status="MOVED", to_queue="no.such.queue")

    ground.step()
    ground.step()

    assert ground.service.statuses() == {"task-1": "FAILED"}
    assert ground.lost.all == []


def test_a_task_that_kept_nothing_and_is_gone_after_a_lost_answer_has_counted(
    ground: Ground,
) -> None:
    ground.add(1)
    ground.service.lose_answers = True
    ground.monotonic.forward(ground.step())
    ground.service.lose_answers = False
    ground.service.refusals["SUCCEEDED"] = "NOT_FOUND"

    ground.step()

    assert ground.lost.all == []
    assert not ground.reporter.unsaid


def test_a_task_that_is_gone_at_the_first_try_was_deleted(ground: Ground) -> None:
    ground.service.refusals["SUCCEEDED"] = "NOT_FOUND"
    ground.add(1)

    ground.step()

    assert ground.lost.all == [("task-1", "the service says NOT_FOUND")]


def test_trouble_is_over_when_there_is_nothing_left_to_report(ground: Ground) -> None:
    ground.service.fault = Unavailable("away")
    ground.add(1)
    ground.step()
    assert ground.reporter.in_trouble

    ground.monotonic.forward(3600)
    ground.step()

    assert [task for task, _ in ground.lost.all] == ["task-1"]
    assert not ground.reporter.in_trouble  # so that the worker asks for tasks again


def test_a_queue_that_is_gone_after_an_outage_is_no_trouble_either(ground: Ground) -> None:
    ground.add(1)
    ground.service.fault = Unavailable("away")
    ground.monotonic.forward(ground.step())
    ground.service.fault = NotFound("no such queue")

    ground.step()

    assert not ground.reporter.in_trouble


def test_a_move_that_the_key_may_not_make_costs_its_own_task_only(ground: Ground) -> None:
    ground.service.forbidden = lambda report: report.status == "MOVED"
    ground.add(1)
    ground.add(2, status="MOVED", to_queue="billing")
    ground.add(3)

    ground.step()

    assert ground.service.statuses() == {
        "task-1": "SUCCEEDED",
        "task-2": "FAILED",
        "task-3": "SUCCEEDED",
    }
    refused = ground.service.done["task-2"]
    assert refused.error is not None
    assert "your key may not reach that queue" in refused.error.message
    assert not ground.reporter.unsaid


def test_of_two_that_spawn_only_the_one_that_may_not_fails(ground: Ground) -> None:
    ground.service.forbidden = lambda report: any(each.queue == "secret" for each in report.spawn)
    ground.add(1, spawn=[SpawnedTask(queue="secret")])
    ground.add(2, spawn=[SpawnedTask(queue="mail")])

    ground.step()

    assert ground.service.statuses() == {"task-1": "FAILED", "task-2": "SUCCEEDED"}


def test_results_that_the_key_may_not_report_are_dropped_and_hold_up_nothing(
    ground: Ground,
) -> None:
    ground.service.fault = Forbidden("not yours")
    ground.add(1, 2)

    ground.step()

    assert [why for _, why in ground.lost.all] == ["the key may not report it: not yours"] * 2
    assert not ground.reporter.unsaid
    assert not ground.reporter.in_trouble


def test_a_queue_whose_reports_are_not_taken_holds_up_no_other(ground: Ground) -> None:
    ground.service.away = {"mail"}
    ground.add(1, queue="mail")
    ground.add(2, queue="sms")

    assert ground.step() == 0
    ground.step()

    assert ground.service.statuses() == {"task-2": "SUCCEEDED"}
    assert len(ground.reporter) == 1


def test_what_cannot_be_sent_from_here_loses_none_of_the_others(
    ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    ground.service.unwritable = lambda report: report.task_id == "task-1"
    ground.add(1, 2, 3)

    for _ in range(5):
        ground.monotonic.forward(ground.step())

    assert ground.service.statuses() == {"task-2": "SUCCEEDED", "task-3": "SUCCEEDED"}
    assert "the codec has lost its key" in caplog.text
    assert len(ground.reporter) == 1
    assert not ground.reporter.in_trouble


def test_what_can_be_sent_again_later_is(ground: Ground) -> None:
    ground.service.unwritable = lambda _report: True
    ground.add(1)
    ground.step()
    ground.monotonic.forward(ground.step())

    ground.service.unwritable = lambda _report: False
    ground.step()

    assert ground.service.statuses() == {"task-1": "SUCCEEDED"}
    assert ground.lost.all == []


def test_what_never_can_be_sent_is_dropped_when_its_lease_is_long_over(ground: Ground) -> None:
    ground.service.unwritable = lambda _report: True
    ground.add(1)
    ground.step()
    ground.monotonic.forward(91)

    ground.step()

    assert [task_id for task_id, _ in ground.lost.all] == ["task-1"]
    assert not ground.reporter.unsaid


def test_each_of_several_bad_results_fails_its_own_task(ground: Ground) -> None:
    ground.add(1, 2, result="x" * 40_000)
    ground.add(3)

    ground.step()

    assert ground.service.statuses() == {
        "task-1": "FAILED",
        "task-2": "FAILED",
        "task-3": "SUCCEEDED",
    }
    assert ground.lost.all == []
