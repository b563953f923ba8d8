"""Exceptions thrown into threads: they meet the handler, and nothing that comes after it."""

import threading
import time
from typing import Any

import pytest

from headrace.client.app.app import App
from headrace.client.app.execution import TaskRoute
from headrace.client.sending import Report
from headrace.client.worker import child
from headrace.client.worker.handlers import Threads
from headrace.client.worker.inflight import InflightTask, InflightTasks, Interruption
from headrace.client.worker.observing import Observer
from headrace.client.worker.service import seconds_awake
from tests.unit.worker.worker_harness import SOON, START, Monotonic, Noted, held, leased


class Ended:
    """Notes what has ended."""

    def __init__(self) -> None:
        self.reports: dict[str, Report | None] = {}
        self.event = threading.Semaphore(0)

    def __call__(self, task: InflightTask, report: Report | None) -> None:
        self.reports[task.task.id] = report
        self.event.release()

    def wait(self, times: int) -> None:
        for _ in range(times):
            assert self.event.acquire(timeout=SOON)


def test_a_thousand_interruptions_at_any_moment_lose_no_task_and_no_thread() -> None:
    app = App()
    app.handler(queue="mail")(lambda payload: sum(range(200)))
    ended = Ended()
    threads = Threads(
        app, 2, Observer(), ended, time.monotonic, died=lambda error: pytest.fail(str(error))
    )
    tasks = [held(number) for number in range(1000)]

    for number, task in enumerate(tasks):
        threads.start(task)
        for _ in range(number % 7 * 20):  # another moment each time
            pass
        task.interrupt(list(Interruption)[number % len(Interruption)])
    ended.wait(1000)
    threads.stop()

    assert len(ended.reports) == 1000
    statuses = {report.status for report in ended.reports.values() if report is not None}
    assert statuses <= {"SUCCEEDED", "RELEASED", "FAILED"}


def test_what_was_withdrawn_never_begins() -> None:
    task = held()

    assert task.withdraw()
    assert not task.begin(Noted(), 1.0)
    assert not task.withdraw()


def test_only_what_runs_can_be_abandoned_and_only_once() -> None:
    task = held()
    assert not task.abandon()
    task.begin(Noted(), 1.0)

    assert task.abandon()
    assert not task.abandon()
    assert task.lost


def test_what_has_ended_is_not_abandoned() -> None:
    task = held()
    task.begin(Noted(), 1.0)
    task.end()

    assert not task.abandon()
    assert not task.lost


def test_who_removes_a_task_learns_once_how_many_are_left() -> None:
    inflight = InflightTasks()
    tasks = [held(number) for number in range(4)]
    for task in tasks:
        inflight.add(task)

    left = [inflight.remove(task) for task in tasks for _ in range(2)]

    assert left == [3, None, 2, None, 1, None, 0, None]


def test_limits_begin_with_the_handler() -> None:
    task = held(route=TaskRoute("sync", "mail.send", soft_timeout=1, hard_timeout=2))
    before: list[Any] = [task.soft_at, task.hard_at]

    task.begin(Noted(), 50.0)

    assert before == [float("inf")] * 2
    assert (task.soft_at, task.hard_at) == (51.0, 52.0)


def test_who_asks_after_a_standstill_hears_that_the_lease_is_over() -> None:
    """Before anybody has noticed."""
    clock = Monotonic()
    task = InflightTask(
        leased(), TaskRoute("sync", "x"), now=clock(), lease_ends=clock() + 30, monotonic=clock
    )
    seen = [task.lost]
    clock.forward(30)
    seen.append(task.lost)
    task.prolong(task.lease_expires_at, now=clock(), lease_ends=clock() + 30)
    seen.append(task.lost)

    assert seen == [False, True, False]
    assert not task.lease_lost


def test_so_does_a_handler_in_a_child_process(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Monotonic()
    monkeypatch.setattr(child, "seconds_awake", clock)
    control = child.ChildControl(lambda _: None, START, 30.0)
    seen = []
    for seconds, prolonged in ((29.9, True), (9.9, False), (0.2, False)):
        clock.forward(seconds)
        seen.append(control.lost)
        if prolonged:
            control.prolonged(START, 10.0)

    assert seen == [False, False, True]
    assert not control.cancelled


def test_the_clock_of_leases_does_not_stand_still_while_the_machine_sleeps() -> None:
    named = getattr(time, "CLOCK_BOOTTIME", None)
    other = time.monotonic() if named is None else time.clock_gettime(named)
    assert 0 <= seconds_awake() - other < 1
