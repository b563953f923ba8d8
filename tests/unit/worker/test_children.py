"""Children that cannot begin: their tasks go back, and are neither held nor burnt."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.client.app.app import App
from headrace.client.sending import Report
from headrace.client.worker import isolate
from headrace.client.worker.inflight import InflightTask
from headrace.client.worker.isolate import ChildProcess, Children
from headrace.client.worker.observing import Observer
from headrace.client.worker.settings import WorkerSettings
from headrace.domain.errors import HeadraceError
from tests.unit.worker.worker_harness import SOON, held


class FakeChild:
    """A child that runs nothing, but answers, or dies as it is told to."""

    def __init__(self, *, ready: bool = True, last_words: str = "", too_slow: bool = False) -> None:
        self.ready, self.last_words, self.too_slow = ready, last_words, too_slow
        self.fault: Exception | None = None
        self.killed = 0

    def is_ready(self, within: float, stopping: threading.Event) -> bool:
        assert within == 5
        return self.ready

    def say(self, message: tuple[Any, ...]) -> None:
        if self.fault is not None:
            raise self.fault
        if message[0] == "run":
            self._task = message[1]

    def hear(self) -> Any:
        task = self._task
        return ("report", Report(task_id=task.id, lease_id=task.lease.id, status="SUCCEEDED"))

    def reap(self) -> str:
        return "ended with exit code 1"

    def kill(self) -> None:
        self.killed += 1

    def end(self) -> None: ...


class ChildHarness:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reports: dict[str, Report | None] = {}
        self.ended = threading.Semaphore(0)
        self.fatal: list[Exception] = []
        self.births: Iterator[FakeChild | OSError] = iter(())
        monkeypatch.setattr(isolate, "ChildProcess", self._born)
        monkeypatch.setattr(isolate, "_PAUSE_SECONDS", 0.0)
        self.children = Children(
            App(),
            "shop:app",
            WorkerSettings.of(["mail"], concurrency=1, child_start_timeout=5),
            Observer(),
            self._ended,
            time.monotonic,
            fatal=self.fatal.append,
            died=lambda error: pytest.fail(str(error)),
        )

    def run(self, *tasks: InflightTask) -> list[Report | None]:
        for task in tasks:
            self.children.start(task)
        for _ in tasks:
            assert self.ended.acquire(timeout=SOON)
        self.children.stop()
        return [self.reports[task.task.id] for task in tasks]

    def _born(self, *_: str) -> FakeChild:
        child = next(self.births)
        if isinstance(child, OSError):
            raise child
        return child

    def _ended(self, task: InflightTask, report: Report | None) -> None:
        self.reports[task.task.id] = report
        self.ended.release()


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> ChildHarness:
    return ChildHarness(monkeypatch)


def test_a_task_that_no_process_can_be_started_for_goes_back_for_a_while(
    harness: ChildHarness,
) -> None:
    harness.births = iter([OSError(11, "no processes left"), FakeChild()])

    first, second = harness.run(held(1), held(2))

    assert first is not None
    assert (first.status, first.delay_in_seconds) == ("RELEASED", 5.0)
    assert second is not None
    assert second.status == "SUCCEEDED"
    assert harness.fatal == []


def test_a_child_that_dies_before_its_task_is_replaced_and_costs_it_nothing(
    harness: ChildHarness,
) -> None:
    harness.births = iter([FakeChild(ready=False), FakeChild(ready=False), FakeChild()])

    (report,) = harness.run(held(1))

    assert report is not None
    assert report.status == "SUCCEEDED"
    assert harness.fatal == []


def test_three_in_a_row_that_cannot_begin_end_the_worker_with_what_the_last_one_said(
    harness: ChildHarness,
) -> None:
    harness.births = iter([FakeChild(ready=False, last_words="ImportError: no shop")] * 3)

    (report,) = harness.run(held(1))

    assert report is not None
    assert report.status == "RELEASED"
    (error,) = harness.fatal
    assert isinstance(error, HeadraceError)
    assert "ended with exit code 1: ImportError: no shop" in str(error)


def test_a_task_whose_child_does_not_start_in_time_has_failed(
    harness: ChildHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.births = iter([FakeChild(ready=False, too_slow=True), FakeChild()])

    first, second = harness.run(held(1), held(2))

    assert first is not None
    assert first.status == "FAILED"
    assert first.error is not None
    assert (first.error.type, first.error.message) == (
        "ProcessNotStarted",
        "its child process took longer than 5 s to load the app and was killed",
    )
    assert second is not None
    assert second.status == "SUCCEEDED"
    assert "A child process took longer than 5 s to load the app" in caplog.text


def test_a_system_that_starts_no_process_for_long_ends_the_worker(
    harness: ChildHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolate, "_NO_PROCESS_SECONDS", 0.0)
    harness.births = iter([OSError(11, "no processes left")] * 2)

    harness.run(held(1), held(2))

    (error,) = harness.fatal
    assert "no child process could be started" in str(error)


def test_a_fault_beside_a_task_ends_it_and_replaces_its_child(harness: ChildHarness) -> None:
    broken = FakeChild()
    broken.fault = ValueError("cannot be pickled")
    harness.births = iter([broken, FakeChild()])

    first, second = harness.run(held(1), held(2))

    assert first is not None
    assert (first.status, first.error and first.error.type) == ("FAILED", "ValueError")
    assert second is not None
    assert second.status == "SUCCEEDED"
    assert broken.killed == 1


class Gone:
    """A process that has ended, as multiprocessing knows it."""

    pid = None
    exitcode = -40

    def join(self, timeout: float | None = None) -> None: ...

    def is_alive(self) -> bool:
        return False


class Pipe:
    def __init__(self, poll: Callable[[], bool]) -> None:
        self._poll = poll
        self.closed = False

    def poll(self, _timeout: float) -> bool:
        return self._poll()

    def recv(self) -> tuple[str]:
        return ("ready",)

    def close(self) -> None:
        self.closed = True


def gone(poll: Callable[[], bool] = lambda: False) -> ChildProcess:
    child = ChildProcess.__new__(ChildProcess)
    vars(child).update(process=Gone(), pipe=Pipe(poll), last_words="")
    return child


def test_a_signal_without_a_name_can_be_told_of_too() -> None:
    assert -Gone.exitcode not in set(signal.Signals)
    assert gone().reap() == "was killed by signal 40"


def test_a_child_that_is_gone_is_noticed_though_its_pipe_stays_open() -> None:
    with pytest.raises(EOFError):
        gone().hear()


def test_what_it_said_last_is_heard_all_the_same() -> None:
    answers = iter([False, True, True])
    assert gone(lambda: next(answers)).hear() == ("ready",)


def test_what_a_dead_child_leaves_behind_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    groups: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "killpg", lambda pid, number: groups.append((pid, number)))
    child = gone()
    vars(child.process)["pid"] = 4711

    child.reap()

    assert groups == [(4711, signal.SIGKILL)]
