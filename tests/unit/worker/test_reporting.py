"""Reports: batched, kept while the service is away, dropped only when their lease is over.

Long, because each order of events around one report is a test of its own.
"""

import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import pytest

from headrace.client.sending import Report, SpawnedTask
from headrace.client.threads import UNTIL_WOKEN
from headrace.client.worker.inflight import InflightTask
from headrace.client.worker.reporting import Reporter
from headrace.domain.errors import (
    Forbidden,
    NotFound,
    PayloadTooLarge,
    Unauthenticated,
    Unavailable,
)
from headrace.wire.tasks import Reported
from tests.unit.worker.worker_harness import FakeService, Losses, Monotonic, dice, heard, held


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


class ReportingHarness:
    def __init__(self) -> None:
        self.monotonic = Monotonic()
        self.service = Choosy(self.monotonic)
        self.lost = Losses()
        self.idle = True
        self.settled: list[str] = []
        self.cancelled: list[str] = []
        self.reporter = Reporter(
            self.service,
            heard(self.monotonic),
            chance=dice(),
        )

    def add(self, *numbers: int, queue: str = "mail", **fields: Any) -> list[InflightTask]:
        tasks = [held(number, now=self.monotonic(), queue=queue) for number in numbers]
        self.service.lease(*tasks)
        for task in tasks:
            self.reporter.add(task, report(task, **fields))
        return tasks

    def step(self) -> float:
        for answer in self.reporter.send(idle=self.idle):
            if answer.cancelled:
                self.cancelled.append(answer.held.task.id)
            elif answer.dropped:
                self.lost(answer.held, answer.dropped)
            else:
                self.settled.append(answer.held.task.id)
        return self.reporter.rest(idle=self.idle)

    @property
    def batches(self) -> list[int]:
        return [len(reports) for _, reports in self.service.calls]


def report(task: InflightTask, status: Any = "SUCCEEDED", **fields: Any) -> Report:
    return Report(task_id=task.task.id, lease_id=task.task.lease.id, status=status, **fields)


@pytest.fixture
def harness() -> ReportingHarness:
    return ReportingHarness()


def test_a_report_goes_out_at_once_when_nothing_else_is_at_work(harness: ReportingHarness) -> None:
    harness.add(1)

    assert harness.step() == UNTIL_WOKEN
    assert harness.service.statuses() == {"task-1": "SUCCEEDED"}
    assert harness.settled == ["task-1"]
    assert not harness.reporter.unreported


def test_reports_wait_a_few_milliseconds_for_others_while_handlers_are_at_work(
    harness: ReportingHarness,
) -> None:
    harness.idle = False
    harness.add(1)

    assert 0 < harness.step() < 0.02
    harness.add(2)
    harness.monotonic.forward(0.02)
    harness.step()

    assert harness.batches == [2]


def test_twenty_five_reports_do_not_wait(harness: ReportingHarness) -> None:
    harness.idle = False
    harness.add(*range(30))

    harness.step()

    assert harness.batches == [25]
    assert len(harness.reporter) == 5


def test_each_queue_has_calls_of_its_own_and_the_oldest_report_goes_first(
    harness: ReportingHarness,
) -> None:
    harness.add(1, queue="mail")
    harness.add(2, queue="sms")
    harness.add(3, queue="mail")

    harness.step()
    harness.step()

    assert [
        (queue, [each.task_id for each in reports]) for queue, reports in harness.service.calls
    ] == [("mail", ["task-1", "task-3"]), ("sms", ["task-2"])]


def test_a_result_is_kept_and_reported_again_while_the_service_is_away(
    harness: ReportingHarness,
) -> None:
    harness.add(1, 2)
    harness.service.fault = Unavailable("away")
    waits = []
    for _ in range(8):
        waits.append(harness.step())
        harness.monotonic.forward(waits[-1])

    harness.service.fault = None
    harness.step()

    assert harness.service.statuses() == {"task-1": "SUCCEEDED", "task-2": "SUCCEEDED"}
    assert harness.lost.all == []
    assert waits[0] <= 0.1
    assert max(waits) <= 2.0


def test_it_is_not_asked_again_before_the_wait_is_over(harness: ReportingHarness) -> None:
    harness.add(1)
    harness.service.fault = Unavailable("away")
    harness.step()

    harness.step()

    assert len(harness.service.calls) == 1


def test_a_report_whose_answer_was_lost_is_repeated_and_counts_once(
    harness: ReportingHarness,
) -> None:
    harness.add(1)
    harness.service.lose_answers = True
    harness.monotonic.forward(harness.step())

    harness.service.lose_answers = False
    harness.step()

    assert harness.batches == [1, 1]
    assert harness.lost.all == []
    assert not harness.reporter.unreported


def test_a_result_is_dropped_when_its_lease_has_been_over_for_a_minute(
    harness: ReportingHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.add(1)
    harness.service.fault = Unavailable("away")
    harness.step()
    assert harness.reporter.is_retrying
    harness.monotonic.forward(88)
    harness.step()
    assert harness.lost.all == []

    harness.monotonic.forward(3)
    harness.step()

    ((task_id, why),) = harness.lost.all
    assert task_id == "task-1"
    assert "over before its report was taken" in why
    assert not harness.reporter.unreported
    assert "Reports are not taken, and kept" in caplog.text


def test_a_result_that_comes_after_its_lease_is_tried_all_the_same(
    harness: ReportingHarness,
) -> None:
    harness.add(1)
    harness.monotonic.forward(60)

    harness.step()

    assert harness.service.statuses() == {"task-1": "SUCCEEDED"}


def test_a_stale_lease_is_noted_and_raises_nothing(harness: ReportingHarness) -> None:
    harness.add(1, 2)
    del harness.service.leases["lease-1"]

    harness.step()

    assert harness.lost.all == [("task-1", "the service says STALE_LEASE")]
    assert harness.service.statuses() == {"task-2": "SUCCEEDED"}


def test_a_deleted_queue_costs_its_results_and_nothing_else(harness: ReportingHarness) -> None:
    harness.add(1)
    harness.service.fault = NotFound("no such queue")

    harness.step()

    assert harness.lost.all == [("task-1", "its queue is gone")]


def test_a_key_that_was_taken_back_keeps_results_waiting(harness: ReportingHarness) -> None:
    harness.add(1)
    harness.service.fault = Unauthenticated("not you")
    harness.monotonic.forward(harness.step())

    harness.service.fault = None
    harness.step()

    assert harness.service.statuses() == {"task-1": "SUCCEEDED"}


def test_a_result_that_cannot_be_sent_fails_its_own_task_and_none_of_the_others(
    harness: ReportingHarness,
) -> None:
    harness.add(1)
    harness.add(2, result="x" * 40_000)
    harness.add(3)

    harness.step()

    assert harness.service.statuses() == {
        "task-1": "SUCCEEDED",
        "task-2": "FAILED",
        "task-3": "SUCCEEDED",
    }
    refused = harness.service.done["task-2"]
    assert refused.error is not None
    assert "reports[1].result" in refused.error.message
    assert "32768" in refused.error.message
    assert not refused.retryable


def test_reports_that_are_too_large_only_together_are_sent_one_by_one(
    harness: ReportingHarness,
) -> None:
    class Narrow(FakeService):
        def report(self, queue: str, reports: Any, *, within: float) -> Any:
            if len(reports) > 1:
                raise PayloadTooLarge("the body is too large")
            return super().report(queue, reports, within=within)

    narrow = Narrow(harness.monotonic)
    narrow.leases = harness.service.leases
    harness.reporter = Reporter(
        narrow,
        heard(harness.monotonic),
        chance=dice(),
    )
    harness.add(1, 2, 3)

    harness.step()

    assert set(narrow.statuses().values()) == {"SUCCEEDED"}
    assert len(narrow.done) == 3


def test_a_release_that_is_refused_is_given_up(
    harness: ReportingHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    harness.add(1, status="RELEASED", result="x" * 40_000)

    harness.step()

    assert harness.lost.all == [("task-1", "the service refused its report")]


def test_a_move_that_the_stored_state_speaks_against_is_a_failed_attempt(
    harness: ReportingHarness,
) -> None:
    harness.service.refusals["MOVED"] = "INVALID"
    harness.add(1, status="MOVED", to_queue="no.such.queue")

    harness.step()
    harness.step()

    assert harness.service.statuses() == {"task-1": "FAILED"}
    assert harness.lost.all == []


def test_a_task_that_kept_nothing_and_is_gone_after_a_lost_answer_has_counted(
    harness: ReportingHarness,
) -> None:
    harness.add(1)
    harness.service.lose_answers = True
    harness.monotonic.forward(harness.step())
    harness.service.lose_answers = False
    harness.service.refusals["SUCCEEDED"] = "NOT_FOUND"

    harness.step()

    assert harness.lost.all == []
    assert not harness.reporter.unreported


def test_a_task_that_is_gone_at_the_first_try_was_cancelled_or_deleted(
    harness: ReportingHarness,
) -> None:
    harness.service.refusals["SUCCEEDED"] = "NOT_FOUND"
    harness.add(1)

    harness.step()

    assert (harness.cancelled, harness.lost.all) == (["task-1"], [])


def test_a_task_that_is_gone_after_its_lease_may_have_ended_in_any_way(
    harness: ReportingHarness,
) -> None:
    harness.service.refusals["SUCCEEDED"] = "NOT_FOUND"
    harness.add(1)
    harness.monotonic.forward(30.1)

    harness.step()

    assert harness.lost.all == [("task-1", "the service says NOT_FOUND")]


def test_who_has_ended_before_it_hears_of_a_cancel_reports_in_vain(
    harness: ReportingHarness,
) -> None:
    harness.add(1, 2)
    harness.service.cancel("task-1")

    harness.step()

    assert (harness.cancelled, harness.settled) == (["task-1"], ["task-2"])
    assert harness.lost.all == []
    assert not harness.reporter.unreported


def test_trouble_is_over_when_there_is_nothing_left_to_report(harness: ReportingHarness) -> None:
    harness.service.fault = Unavailable("away")
    harness.add(1)
    harness.step()
    assert harness.reporter.is_retrying

    harness.monotonic.forward(3600)
    harness.step()

    assert [task for task, _ in harness.lost.all] == ["task-1"]
    assert not harness.reporter.is_retrying  # so that the worker asks for tasks again


def test_a_queue_that_is_gone_after_an_outage_is_no_trouble_either(
    harness: ReportingHarness,
) -> None:
    harness.add(1)
    harness.service.fault = Unavailable("away")
    harness.monotonic.forward(harness.step())
    harness.service.fault = NotFound("no such queue")

    harness.step()

    assert not harness.reporter.is_retrying


def test_a_move_that_the_key_may_not_make_costs_its_own_task_only(
    harness: ReportingHarness,
) -> None:
    harness.service.forbidden = lambda report: report.status == "MOVED"
    harness.add(1)
    harness.add(2, status="MOVED", to_queue="billing")
    harness.add(3)

    harness.step()

    assert harness.service.statuses() == {
        "task-1": "SUCCEEDED",
        "task-2": "FAILED",
        "task-3": "SUCCEEDED",
    }
    refused = harness.service.done["task-2"]
    assert refused.error is not None
    assert "your key may not reach that queue" in refused.error.message
    assert not harness.reporter.unreported


def test_of_two_that_spawn_only_the_one_that_may_not_fails(harness: ReportingHarness) -> None:
    harness.service.forbidden = lambda report: any(each.queue == "secret" for each in report.spawn)
    harness.add(1, spawn=[SpawnedTask(queue="secret")])
    harness.add(2, spawn=[SpawnedTask(queue="mail")])

    harness.step()

    assert harness.service.statuses() == {"task-1": "FAILED", "task-2": "SUCCEEDED"}


def test_results_that_the_key_may_not_report_are_dropped_and_hold_up_nothing(
    harness: ReportingHarness,
) -> None:
    harness.service.fault = Forbidden("not yours")
    harness.add(1, 2)

    harness.step()

    assert [why for _, why in harness.lost.all] == ["the key may not report it: not yours"] * 2
    assert not harness.reporter.unreported
    assert not harness.reporter.is_retrying


def test_a_queue_whose_reports_are_not_taken_holds_up_no_other(harness: ReportingHarness) -> None:
    harness.service.away = {"mail"}
    harness.add(1, queue="mail")
    harness.add(2, queue="sms")

    assert harness.step() == 0
    harness.step()

    assert harness.service.statuses() == {"task-2": "SUCCEEDED"}
    assert len(harness.reporter) == 1


def test_what_cannot_be_sent_from_here_loses_none_of_the_others(
    harness: ReportingHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.service.unwritable = lambda report: report.task_id == "task-1"
    harness.add(1, 2, 3)

    for _ in range(5):
        harness.monotonic.forward(harness.step())

    assert harness.service.statuses() == {"task-2": "SUCCEEDED", "task-3": "SUCCEEDED"}
    assert "the codec has lost its key" in caplog.text
    assert len(harness.reporter) == 1
    assert not harness.reporter.is_retrying


def test_what_can_be_sent_again_later_is(harness: ReportingHarness) -> None:
    harness.service.unwritable = lambda _report: True
    harness.add(1)
    harness.step()
    harness.monotonic.forward(harness.step())

    harness.service.unwritable = lambda _report: False
    harness.step()

    assert harness.service.statuses() == {"task-1": "SUCCEEDED"}
    assert harness.lost.all == []


def test_what_never_can_be_sent_is_dropped_when_its_lease_is_long_over(
    harness: ReportingHarness,
) -> None:
    harness.service.unwritable = lambda _report: True
    harness.add(1)
    harness.step()
    harness.monotonic.forward(91)

    harness.step()

    assert [task_id for task_id, _ in harness.lost.all] == ["task-1"]
    assert not harness.reporter.unreported


def test_each_of_several_bad_results_fails_its_own_task(harness: ReportingHarness) -> None:
    harness.add(1, 2, result="x" * 40_000)
    harness.add(3)

    harness.step()

    assert harness.service.statuses() == {
        "task-1": "FAILED",
        "task-2": "FAILED",
        "task-3": "SUCCEEDED",
    }
    assert harness.lost.all == []


def test_a_fault_of_who_hears_the_answers_sends_no_report_again(harness: ReportingHarness) -> None:
    harness.add(1, 2)

    with closing(harness.reporter.send(idle=True)) as answers:
        next(answers)  # and the log raises something

    assert not harness.reporter.unreported
    assert harness.step() == UNTIL_WOKEN
    assert harness.batches == [2]


def test_a_report_that_is_sent_again_is_seen_at_any_time(harness: ReportingHarness) -> None:
    harness.add(*range(25))
    harness.service.fault = Unavailable("away")
    seen: set[int] = set()
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            seen.add(len(harness.reporter))

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # a worker that ends looks from another thread
    looking = threading.Thread(target=look)
    looking.start()
    try:
        for _ in range(1500):
            harness.reporter.hurry()
            harness.step()
    finally:
        over.set()
        looking.join()
        sys.setswitchinterval(usual)

    assert seen == {25}


def test_of_two_reports_that_come_at_once_one_brings_the_next_batch_forward(
    harness: ReportingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = held(1), held(2)
    brings_forward: list[bool] = []

    def add(task: InflightTask) -> None:
        brings_forward.append(harness.reporter.add(task, report(task)))

    other = threading.Thread(target=add, args=(second,))

    class Interrupted(deque[Any]):
        """Lets the other thread run as soon as something is in it."""

        def append(self, kept: Any) -> None:
            super().append(kept)
            if kept.held is first:
                other.start()
                other.join(0.05)

    monkeypatch.setattr("headrace.client.worker.reporting.deque", Interrupted)
    add(first)
    other.join()

    assert any(brings_forward)
