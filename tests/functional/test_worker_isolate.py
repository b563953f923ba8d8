"""Handlers in child processes: what kills one is a failed attempt, and nothing else."""

import importlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headrace.client.app.app import App
from headrace.client.worker.inflight import CANCEL_SECONDS
from headrace.client.worker.worker import Worker
from headrace.domain.errors import HeadraceError, InvalidRequest
from tests.functional.workers import isolated
from tests.unit.worker.worker_harness import SOON, FakeService

pytestmark = pytest.mark.slow  # each starts a process or two


class IsolatedWorkerHarness:
    def __init__(self) -> None:
        self.service = FakeService(time.monotonic)
        self.worker: Worker | None = None
        self.thread = threading.Thread()
        self.ahead = 0.0  # seconds that the worker's clock has jumped

    def start(self, *, burst: bool = False, **settings: Any) -> Worker:
        settings = {"queues": ["mail"], "concurrency": 1, **settings}
        worker = Worker(
            isolated.app,
            isolate=True,
            service=self.service,
            monotonic=lambda: time.monotonic() + self.ahead,
            **settings,
        )
        self.worker = worker
        self.thread = threading.Thread(target=worker.run, kwargs={"burst": burst})
        self.thread.start()
        return worker

    def burst(self, **settings: Any) -> None:
        self.start(burst=True, **settings)
        self.thread.join(2 * SOON)
        assert not self.thread.is_alive()

    def cancel(self, task: str) -> None:
        """Cancel a task, and let a heartbeat be due."""
        assert self.worker is not None
        self.service.cancel(task)
        for held in self.worker.inflight.all():
            held.beaten_at = -1e9
        self.worker.threads["heartbeats"].wake()

    def outcome(self, task: str) -> tuple[str, str, str]:
        report = self.service.done[task]
        error = report.error
        return report.status, error.type if error else "", error.message if error else ""


@pytest.fixture
def harness() -> Iterator[IsolatedWorkerHarness]:
    harness = IsolatedWorkerHarness()
    yield harness
    if harness.worker is not None and harness.thread.is_alive():
        harness.worker.stop()
        harness.worker.stop()
        harness.thread.join(SOON)


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    """Whether a process has ended, though nobody may have asked how."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except FileNotFoundError:
        return True


def test_one_child_runs_one_task_after_the_other(harness: IsolatedWorkerHarness) -> None:
    ids = harness.service.put(*[["pid"]] * 5)

    harness.burst()

    pids = {harness.service.done[task].result for task in ids}
    assert len(pids) == 1
    assert pids != {os.getpid()}


def test_a_child_that_dies_is_a_failed_attempt_that_says_so_and_is_replaced(
    harness: IsolatedWorkerHarness,
) -> None:
    first, left, crashed, killed, last = harness.service.put(
        ["pid"], ["exit", 3], ["signal", "SIGSEGV"], ["signal", "SIGKILL"], ["pid"]
    )

    harness.burst()

    about = "the process that ran it "
    assert harness.outcome(left) == ("FAILED", "ProcessDied", about + "ended with exit code 3")
    assert harness.outcome(crashed) == ("FAILED", "ProcessDied", about + "was killed by SIGSEGV")
    assert harness.outcome(killed)[2] == about + "was killed by SIGKILL (out of memory?)"
    assert harness.service.done[first].result != harness.service.done[last].result


def test_what_handlers_raise_and_return_comes_out_as_without_isolation(
    harness: IsolatedWorkerHarness,
) -> None:
    raised, local = harness.service.put(["raise"], ["local"])

    harness.burst()

    assert harness.outcome(raised)[:2] == ("FAILED", "ZeroDivisionError")
    assert harness.service.done[local].result == {"here": 1}


def test_the_hard_limit_kills_a_handler_that_would_go_on_for_ever(
    harness: IsolatedWorkerHarness, tmp_path: Path
) -> None:
    note = str(tmp_path / "note")
    stuck, fine = harness.service.put(["stubborn", note], ["pid"], queue="limited")

    harness.burst(queues=["limited"])

    status, kind, message = harness.outcome(stuck)
    assert (status, kind) == ("FAILED", "TimeLimit")
    assert "0.6 seconds" in message
    assert harness.outcome(fine)[0] == "SUCCEEDED"


def test_the_soft_limit_reaches_a_call_into_c(harness: IsolatedWorkerHarness) -> None:
    (task,) = harness.service.put(["tidy"], queue="limited")

    harness.burst(queues=["limited"])

    assert harness.service.done[task].result == "tidied"


def test_async_handlers_run_in_children_too_and_their_limits_hold(
    harness: IsolatedWorkerHarness,
) -> None:
    quick, slow = harness.service.put(0, isolated.LONG, queue="async")

    harness.burst(queues=["async"])

    assert harness.service.done[quick].result != os.getpid()
    assert harness.service.done[slow].result == "tidied"


def test_progress_comes_through(harness: IsolatedWorkerHarness) -> None:
    (task,) = harness.service.put(["progress"])

    harness.burst()

    assert harness.service.done[task].result is False


def test_a_lost_lease_kills_the_child_and_its_children(
    harness: IsolatedWorkerHarness, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    harness.service.put(["sleep", str(note)])
    worker = harness.start()
    wait_until((tmp_path / "note.done").exists)
    pids = [int(pid) for pid in (tmp_path / "note.done").read_text().split()]

    harness.service.leases.clear()
    for held in worker.inflight.all():
        held.beaten_at = -1e9
    worker.threads["heartbeats"].wake()

    wait_until(lambda: all(is_gone(pid) for pid in pids))
    wait_until(lambda: not worker.inflight)
    assert harness.service.done == {}


def test_a_handler_whose_task_is_cancelled_is_told_and_its_child_goes_on(
    harness: IsolatedWorkerHarness, tmp_path: Path
) -> None:
    (before, task) = harness.service.put(["pid"], ["undo", str(tmp_path / "note")])
    worker = harness.start()
    wait_until((tmp_path / "note.begun").exists)

    harness.cancel(task)

    wait_until((tmp_path / "note.done").exists)
    wait_until(lambda: not worker.inflight)
    (after,) = harness.service.put(["pid"])
    harness.service.wait_for(after)
    assert (tmp_path / "note.done").read_text() == "True True"
    assert harness.service.done[after].result == harness.service.done[before].result
    assert task not in harness.service.done


def test_an_async_handler_in_a_child_is_told_too(
    harness: IsolatedWorkerHarness, tmp_path: Path
) -> None:
    (task,) = harness.service.put(str(tmp_path / "note"), queue="async-undone")
    worker = harness.start(queues=["async-undone"])
    wait_until((tmp_path / "note.begun").exists)

    harness.cancel(task)

    wait_until((tmp_path / "note.done").exists)
    wait_until(lambda: not worker.inflight)
    assert (tmp_path / "note.done").read_text() == "Cancelled"
    assert harness.service.done == {}


def test_a_child_whose_handler_goes_on_after_a_cancel_is_killed_in_the_end(
    harness: IsolatedWorkerHarness, tmp_path: Path
) -> None:
    (task,) = harness.service.put(["stubborn", str(tmp_path / "note")])
    worker = harness.start()
    wait_until((tmp_path / "note.begun").exists)
    pid = int((tmp_path / "note.begun").read_text())
    harness.cancel(task)
    wait_until((tmp_path / "note.done").exists)
    assert not is_gone(pid)

    harness.ahead += CANCEL_SECONDS

    wait_until(lambda: is_gone(pid))
    wait_until(lambda: not worker.inflight)
    (after,) = harness.service.put(["pid"])
    harness.service.wait_for(after)
    assert task not in harness.service.done


def test_stopping_kills_and_releases_what_does_not_end(
    harness: IsolatedWorkerHarness, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    (task,) = harness.service.put(["sleep", str(note)])
    worker = harness.start(shutdown_timeout=0)
    wait_until((tmp_path / "note.done").exists)
    pids = [int(pid) for pid in (tmp_path / "note.done").read_text().split()]

    worker.stop()
    harness.thread.join(SOON)

    assert harness.outcome(task)[0] == "RELEASED"
    assert all(is_gone(pid) for pid in pids)


def test_signals_sent_to_all_of_a_container_leave_children_to_their_worker(
    harness: IsolatedWorkerHarness,
) -> None:
    (first,) = harness.service.put(["pid"])
    harness.start()
    harness.service.wait_for(first)
    pid = harness.service.done[first].result
    assert isinstance(pid, int)

    os.kill(pid, signal.SIGTERM)
    os.kill(pid, signal.SIGINT)
    (second,) = harness.service.put(["pid"])
    harness.service.wait_for(second)

    assert harness.service.done[second].result == pid


def test_a_child_dead_of_a_signal_without_a_name_is_a_failed_attempt(
    harness: IsolatedWorkerHarness,
) -> None:
    killed, last = harness.service.put(["raise_signal", 40], ["pid"])

    harness.burst()

    assert harness.outcome(killed)[2].endswith("killed by signal 40")
    assert harness.outcome(last)[0] == "SUCCEEDED"


def test_a_child_that_leaves_a_fork_behind_is_noticed_and_the_fork_killed(
    harness: IsolatedWorkerHarness, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    killed, last = harness.service.put(["fork", str(note)], ["pid"])

    harness.burst()

    assert harness.outcome(killed)[2].startswith("the process that ran it was killed by SIGKILL")
    assert harness.outcome(last)[0] == "SUCCEEDED"
    wait_until(lambda: is_gone(int(note.read_text())))


def test_an_app_that_no_child_can_load_ends_the_worker_and_costs_no_attempt(
    harness: IsolatedWorkerHarness,
) -> None:
    (task,) = harness.service.put(["pid"])
    path = "tests.functional.workers.isolated:no_such_app"
    worker = Worker(
        isolated.app,
        isolate=True,
        service=harness.service,
        queues=["mail"],
        concurrency=1,
        app_path=path,
    )

    with pytest.raises(HeadraceError, match="ended with exit code 1: AttributeError"):
        worker.run()

    assert harness.service.done[task].status == "RELEASED"
    assert worker.prefetch.size == 0  # what never ran says nothing of how long tasks run


def test_exceptions_that_only_the_children_know_are_retried_or_rejected_by_class(
    harness: IsolatedWorkerHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_in_children.py").write_text(ONLY_IN_CHILDREN)
    monkeypatch.syspath_prepend(tmp_path)
    retried, rejected = harness.service.put("own", "other")
    worker = Worker(
        App(),
        isolate=True,
        service=harness.service,
        queues=["mail"],
        concurrency=1,
        app_path="only_in_children:app",
    )

    worker.run(burst=True)

    reports = [harness.service.done[task] for task in (retried, rejected)]
    assert [(each.retryable, each.delay_in_seconds) for each in reports] == [
        (True, 7),
        (False, None),
    ]
    assert harness.outcome(retried)[1] == "only_in_children.Own"
    assert "only_in_children" not in sys.modules


ONLY_IN_CHILDREN = """
from headrace import App

app = App()


class Own(Exception):
    pass


@app.handler(queue="mail", retry_on={Own: 7})
def handle(payload):
    raise Own if payload == "own" else ValueError
"""


def test_an_app_that_children_could_not_find_is_refused_at_once() -> None:
    with pytest.raises(InvalidRequest, match="variable of a module"):
        Worker(App(), queues=["mail"], isolate=True, service=FakeService(time.monotonic))


def test_a_handler_that_cancels_its_own_task_has_failed_here_too(
    harness: IsolatedWorkerHarness,
) -> None:
    waits, returns = harness.service.put("waits", "returns", queue="async-self")

    harness.burst(queues=["async-self"])

    assert harness.outcome(waits)[:2] == ("FAILED", "asyncio.exceptions.CancelledError")
    assert harness.service.done[returns].result == "returns"


def test_a_handler_puts_its_task_off_here_too(harness: IsolatedWorkerHarness) -> None:
    (task,) = harness.service.put(9.5, queue="snoozed")

    harness.burst(queues=["snoozed"])

    report = harness.service.done[task]
    assert (report.status, report.delay_in_seconds) == ("RELEASED", 9.5)


BLOCKED = """
import multiprocessing, os, time
if multiprocessing.parent_process() is not None:
    open(os.environ["STARTED"], "a").write("x")
    time.sleep(600)
from headrace import App, Worker
app = App()
@app.handler(queue="mail", timeout=0.5)
def load(payload):
    return payload
"""


@pytest.fixture
def blocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """An app whose module blocks when a child process imports it."""
    (tmp_path / "blocked_app.py").write_text(BLOCKED)
    monkeypatch.setenv("STARTED", str(tmp_path / "started"))
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("blocked_app")
    del sys.modules["blocked_app"]


def test_a_module_that_blocks_at_import_in_the_child_fails_attempts_and_ends_the_worker(
    blocked: ModuleType,
) -> None:
    service = FakeService(time.monotonic)
    ids = service.put(1, 2, 3)
    worker = Worker(
        blocked.app, service=service, isolate=True, concurrency=1, child_start_timeout=0.5
    )

    with pytest.raises(HeadraceError, match=r"took longer than 0\.5 s to load the app"):
        worker.run()

    errors = [service.done[task].error for task in ids]
    assert [error.type for error in errors if error] == ["ProcessNotStarted"] * 3
    assert worker.unreported_tasks == 0


def test_a_worker_stops_while_its_child_blocks_at_import(
    blocked: ModuleType, tmp_path: Path
) -> None:
    service = FakeService(time.monotonic)
    (task,) = service.put(1)
    worker = Worker(blocked.app, service=service, isolate=True, concurrency=1)
    thread = threading.Thread(target=worker.run)
    thread.start()
    wait_until((tmp_path / "started").exists)

    worker.stop()
    thread.join(SOON)

    assert not thread.is_alive()
    assert service.statuses() == {task: "RELEASED"}
    assert multiprocessing.active_children() == []


def test_a_child_that_reads_nothing_holds_up_neither_heartbeats_nor_the_stop(
    harness: IsolatedWorkerHarness,
) -> None:
    """Its pipe is full of a large task, and the rest of the worker must not wait for room."""
    (first,) = harness.service.put(["pid"])
    worker = harness.start(queues=["mail", "limited"], shutdown_timeout=0.1)
    harness.service.wait_for(first)
    (child,) = multiprocessing.active_children()
    assert child.pid is not None
    os.kill(child.pid, signal.SIGSTOP)
    payload = ["tidy", "x" * 200_000]  # more than a pipe holds
    (stuck,) = harness.service.put(payload, queue="limited")
    harness.service.wait_for(stuck)
    assert harness.outcome(stuck)[:2] == ("FAILED", "TimeLimit")  # in spite of the soft limit

    worker.stop()
    harness.thread.join(SOON)

    assert not harness.thread.is_alive()
