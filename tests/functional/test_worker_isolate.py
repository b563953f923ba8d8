"""Handlers in child processes: what kills one is a failed attempt, and nothing else."""

import importlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headrace import Worker
from headrace.domain.task import State
from tests.functional.workers import isolated
from tests.unit.worker.worker_harness import SOON, WorkerHarness
from tests.waiting import until

pytestmark = pytest.mark.slow  # each starts a process or two

QUEUES = ("apart", "limited", "async", "async-self", "async-undone")


class IsolatedWorker(WorkerHarness):
    """A worker whose one handler at a time runs in a child process."""

    def __init__(self) -> None:
        super().__init__()
        self.app = isolated.app
        for queue in QUEUES:
            self.client.create_queue(queue)

    def start(self, **settings: Any) -> Worker:
        always = {"queues": ["mail", *QUEUES], "concurrency": 1, "lease_seconds": 1}
        return super().start(**{"isolate": True, **always, **settings})

    def ends(self) -> None:
        assert self.thread is not None
        self.thread.join(2 * SOON)
        assert not self.thread.is_alive()

    def result(self, task: str) -> Any:
        return self.client.get_task(task).result

    def error(self, task: str) -> str:
        return self.client.get_task(task).errors[-1].message


@pytest.fixture
def harness() -> Iterator[IsolatedWorker]:
    harness = IsolatedWorker()
    yield harness
    harness.close()


def is_gone(pid: int) -> bool:
    """Whether a process has ended, though nobody may have asked how."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except FileNotFoundError:
        return True


def noted(note: Path, ending: str) -> str:
    """Wait for what a handler writes down."""
    path = note.with_name(f"{note.name}.{ending}")
    until(path.exists, 2 * SOON)
    return path.read_text()


def test_a_child_that_dies_is_a_failed_attempt_that_says_so_and_is_replaced(
    harness: IsolatedWorker,
) -> None:
    first, left, crashed, killed, odd, last = harness.put(
        *(["pid"], ["exit", 3], ["signal", "SIGSEGV"], ["signal", "SIGKILL"]),
        *(["raise_signal", 40], ["pid"]),
    )

    harness.burst()

    about = "the process that ran it "
    assert harness.error(left) == about + "ended with exit code 3"
    assert harness.error(crashed) == about + "was killed by SIGSEGV"
    assert harness.error(killed) == about + "was killed by SIGKILL (out of memory?)"
    assert harness.error(odd) == about + "was killed by signal 40"
    assert harness.ending(odd) == "ProcessDied"
    assert harness.result(first) not in (harness.result(last), os.getpid())


def test_only_isolated_tasks_of_a_worker_with_threads_run_in_child_processes(
    harness: IsolatedWorker,
) -> None:
    (apart,) = harness.put(1, queue="apart")
    (here,) = harness.put(["pid"])

    harness.burst(isolate=False)

    assert harness.result(here) == os.getpid()
    pid, *started = harness.result(apart)
    assert (started, pid != os.getpid()) == ([pid], True)


def test_what_handlers_raise_and_return_comes_out_as_without_isolation(
    harness: IsolatedWorker,
) -> None:
    one, raised, local, shown, two = harness.put(
        ["pid"], ["raise"], ["local"], ["progress"], ["pid"]
    )
    waits, returns = harness.put("waits", "returns", queue="async-self")

    harness.burst()

    assert harness.ending(raised) == "ZeroDivisionError"
    assert harness.result(local) == {"here": 1}
    assert harness.result(shown) is False
    assert harness.result(one) == harness.result(two)  # one child runs one after the other
    assert harness.ending(waits) == "asyncio.exceptions.CancelledError"
    assert harness.result(returns) == "returns"


def test_time_limits_reach_calls_into_c_and_async_handlers_and_kill_what_goes_on(
    harness: IsolatedWorker, tmp_path: Path
) -> None:
    stuck, tidy = harness.put(["stubborn", str(tmp_path / "note")], ["tidy"], queue="limited")
    quick, slow = harness.put(0, isolated.LONG, queue="async")

    harness.burst()

    assert harness.ending(stuck) == "TimeLimit"
    assert "0.6 seconds" in harness.error(stuck)
    assert [harness.result(task) for task in (tidy, slow)] == ["tidied", "tidied"]
    assert harness.result(quick) != os.getpid()


def test_a_lost_lease_kills_the_child_and_its_children(
    harness: IsolatedWorker, tmp_path: Path
) -> None:
    harness.put(["sleep", str(tmp_path / "note")])
    harness.start()
    pids = [int(pid) for pid in noted(tmp_path / "note", "done").split()]

    harness.client.delete_queue("mail")

    until(lambda: all(is_gone(pid) for pid in pids))
    until(lambda: "ended: LOST" in harness.noting.all or "ended: CANCELLED" in harness.noting.all)


@pytest.mark.parametrize(
    ("queue", "payload", "seen"),
    [("mail", ["undo"], "True True"), ("async-undone", None, "Cancelled")],
)
def test_a_handler_whose_task_is_cancelled_is_told_and_its_child_goes_on(
    harness: IsolatedWorker, tmp_path: Path, queue: str, payload: list[str] | None, seen: str
) -> None:
    note = str(tmp_path / "note")
    (before,) = harness.put(["pid"])
    harness.start()
    harness.wait_for(before)
    (task,) = harness.put([*payload, note] if payload else note, queue=queue)
    noted(tmp_path / "note", "begun")

    harness.client.cancel_task(task)

    assert noted(tmp_path / "note", "done") == seen
    (after,) = harness.put(["pid"])
    harness.wait_for(after)
    assert harness.result(after) == harness.result(before)
    assert harness.client.get_task(task).dead_reason == "cancelled"


def test_a_child_whose_handler_goes_on_after_a_cancel_is_killed_in_the_end(
    harness: IsolatedWorker, tmp_path: Path
) -> None:
    (task,) = harness.put(["stubborn", str(tmp_path / "note")])
    harness.start()
    pid = int(noted(tmp_path / "note", "begun"))
    harness.client.cancel_task(task)
    noted(tmp_path / "note", "done")
    assert not is_gone(pid)

    harness.clock.forward(10)

    until(lambda: is_gone(pid))
    harness.wait_for(*harness.put(["pid"]))


def test_stopping_kills_and_releases_what_does_not_end(
    harness: IsolatedWorker, tmp_path: Path
) -> None:
    (task,) = harness.put(["sleep", str(tmp_path / "note")])
    harness.start(shutdown_timeout=0)
    pids = [int(pid) for pid in noted(tmp_path / "note", "done").split()]

    harness.stop()

    assert harness.ending(task) == "RELEASED"
    assert all(is_gone(pid) for pid in pids)


def test_a_child_that_leaves_a_fork_behind_is_noticed_and_the_fork_killed(
    harness: IsolatedWorker, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    killed, last = harness.put(["fork", str(note)], ["pid"])

    harness.burst()

    assert harness.error(killed).startswith("the process that ran it was killed by SIGKILL")
    assert harness.ending(last) == State.SUCCEEDED
    until(lambda: is_gone(int(note.read_text())))


def test_an_app_that_no_child_can_load_ends_the_worker_and_costs_no_attempt(
    harness: IsolatedWorker,
) -> None:
    (task,) = harness.put(["pid"])

    harness.start(app_path="tests.functional.workers.isolated:no_such_app")
    harness.ends()

    assert "ended with exit code 1: AppNotFound" in str(harness.raised[0])
    assert harness.ending(task) == "RELEASED"


BLOCKED = """
import multiprocessing, os, time
if multiprocessing.parent_process() is not None:
    open(os.environ["STARTED"], "a").write("x")
    time.sleep(600)
from headrace import App
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
    harness: IsolatedWorker, blocked: ModuleType
) -> None:
    harness.app = blocked.app
    ids = harness.put(1, 2, 3)

    harness.start(queues=["mail"], child_start_timeout=0.5)
    harness.ends()

    assert "took longer than 0.5 s to load the app" in str(harness.raised[0])
    assert [harness.ending(task) for task in ids] == ["ProcessNotStarted"] * 3


def test_a_worker_stops_while_its_child_blocks_at_import(
    harness: IsolatedWorker, blocked: ModuleType, tmp_path: Path
) -> None:
    harness.app = blocked.app
    (task,) = harness.put(1)
    harness.start(queues=["mail"])
    until((tmp_path / "started").exists)

    harness.stop()

    assert harness.ending(task) == "RELEASED"
    assert multiprocessing.active_children() == []


def test_a_child_that_reads_nothing_holds_up_neither_heartbeats_nor_the_stop(
    harness: IsolatedWorker,
) -> None:
    """Its pipe is full of a large task, and the rest of the worker must not wait for room."""
    (first,) = harness.put(["pid"])
    harness.start(shutdown_timeout=0.1)
    harness.wait_for(first)
    (child,) = multiprocessing.active_children()
    assert child.pid is not None
    os.kill(child.pid, signal.SIGSTOP)
    (stuck,) = harness.put(["tidy", "x" * 200_000], queue="limited")  # more than a pipe holds
    until(lambda: harness.client.get_task(stuck).errors)
    assert harness.ending(stuck) == "TimeLimit"  # in spite of the soft limit

    harness.stop()
