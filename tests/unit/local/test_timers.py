"""Timers run at once and then in time, one run at a time, whatever a run does."""

import threading

import pytest

from infra.local.timers import Timer

SOON = 10.0  # seconds until a test gives up


def test_the_first_run_comes_at_once() -> None:
    ran = threading.Event()
    timer = Timer("test", 3600, ran.set)

    timer.start()

    assert ran.wait(SOON)
    timer.stop()


def test_a_run_that_fails_is_logged_and_the_next_one_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runs: list[int] = []
    again = threading.Event()

    def fail_once() -> None:
        runs.append(1)
        if len(runs) == 1:
            raise RuntimeError("the first run")
        again.set()

    timer = Timer("the chore", 0.001, fail_once)
    timer.start()

    assert again.wait(SOON)
    timer.stop()
    assert "the chore failed" in caplog.text
    assert "the first run" in caplog.text


def test_runs_never_overlap() -> None:
    inside = threading.Semaphore()
    overlapped: list[bool] = []
    runs = threading.Semaphore(0)

    def run() -> None:
        overlapped.append(not inside.acquire(blocking=False))
        inside.release()
        runs.release()

    timer = Timer("test", 0, run)
    timer.start()
    for _ in range(20):
        assert runs.acquire(timeout=SOON)
    timer.stop()

    assert not any(overlapped)


def test_stopping_waits_for_the_run_under_way_and_starts_no_other() -> None:
    entered, leave = threading.Event(), threading.Event()
    finished: list[bool] = []

    def run() -> None:
        entered.set()
        leave.wait(SOON)
        finished.append(True)

    timer = Timer("test", 0, run)
    timer.start()
    entered.wait(SOON)
    stopper = threading.Thread(target=timer.stop)
    stopper.start()
    leave.set()
    stopper.join(SOON)

    count = len(finished)
    assert count >= 1
    timer.stop()
    assert len(finished) == count


def test_stopping_one_that_was_never_started_does_nothing() -> None:
    Timer("test", 1, lambda: None).stop()
