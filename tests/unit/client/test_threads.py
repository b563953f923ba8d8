"""A periodic thread takes one step after the other, in time, whatever a step does."""

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from headrace.client.threads import UNTIL_WOKEN, PeriodicThread, Step, every, signals_to

Hangup: TypeAlias = Callable[[Any], Any]

SOON = 10.0  # seconds until a test gives up
LOG = logging.getLogger(__name__)


def thread(step: Step, *, first_after: float = 0.0) -> PeriodicThread:
    return PeriodicThread("the chore", step, first_after=first_after, log=LOG, after_fault=0.001)


def ended(periodic: PeriodicThread) -> None:
    periodic.stop()
    assert periodic.join(SOON)


def test_the_first_step_comes_at_once() -> None:
    ran = threading.Event()
    periodic = thread(every(3600, ran.set))

    periodic.start()

    assert ran.wait(SOON)
    ended(periodic)


def test_a_first_step_that_is_to_come_later_is_left_out_when_it_ends_before() -> None:
    ran = threading.Event()

    with thread(every(0, ran.set), first_after=3600):
        pass

    assert not ran.is_set()


def test_a_step_that_fails_is_logged_and_the_next_one_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runs: list[int] = []
    again = threading.Event()

    def fail_once() -> None:
        runs.append(1)
        if len(runs) == 1:
            raise RuntimeError("the first run")
        again.set()

    periodic = thread(every(0.001, fail_once))
    periodic.start()

    assert again.wait(SOON)
    ended(periodic)
    assert "the chore failed" in caplog.text
    assert "the first run" in caplog.text


def test_a_step_that_rests_is_woken() -> None:
    steps = threading.Semaphore(0)

    def step() -> float:
        steps.release()
        return UNTIL_WOKEN

    periodic = thread(step)
    periodic.start()
    for _ in range(20):
        assert steps.acquire(timeout=SOON)
        periodic.wake()
    ended(periodic)


def test_a_step_without_a_next_one_is_the_last() -> None:
    steps: list[int] = []

    def step() -> float | None:
        steps.append(1)
        return 0.0 if len(steps) < 3 else None

    periodic = thread(step)
    periodic.start()

    assert periodic.join(SOON)
    assert len(steps) == 3


def test_steps_never_overlap() -> None:
    inside = threading.Semaphore()
    overlapped: list[bool] = []
    runs = threading.Semaphore(0)

    def run() -> None:
        overlapped.append(not inside.acquire(blocking=False))
        inside.release()
        runs.release()

    with thread(every(0, run)):
        for _ in range(20):
            assert runs.acquire(timeout=SOON)

    assert not any(overlapped)


def test_ending_waits_for_the_step_under_way_and_takes_no_other() -> None:
    entered, leave = threading.Event(), threading.Event()
    finished: list[bool] = []

    def run() -> None:
        entered.set()
        leave.wait(SOON)
        finished.append(True)

    periodic = thread(every(0, run))
    periodic.start()
    entered.wait(SOON)
    periodic.stop()
    assert not periodic.join(0)
    leave.set()

    assert periodic.join(SOON)
    assert finished == [True]


def test_ending_one_that_was_never_started_does_nothing() -> None:
    ended(thread(lambda: None))


@pytest.fixture
def hangup() -> Iterator[Hangup]:
    """What the program has set for SIGHUP, put back afterwards."""
    before = signal.getsignal(signal.SIGHUP)
    yield lambda handler: signal.signal(signal.SIGHUP, handler)
    signal.signal(signal.SIGHUP, before)


def test_a_terminal_that_closes_asks_once_however_often_that_is_said(hangup: Hangup) -> None:
    hangup(signal.SIG_DFL)
    asked: list[int] = []

    with signals_to(lambda: asked.append(1)):
        for _ in range(4):
            signal.raise_signal(signal.SIGHUP)
        assert len(asked) == 1
        signal.raise_signal(signal.SIGTERM)
        assert len(asked) == 2

    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


def test_under_nohup_a_terminal_may_close(hangup: Hangup) -> None:
    hangup(signal.SIG_IGN)
    asked: list[int] = []

    with signals_to(lambda: asked.append(1)):
        signal.raise_signal(signal.SIGHUP)

    assert asked == []


def test_a_program_may_have_a_use_of_its_own_for_a_hangup(hangup: Hangup) -> None:
    own: list[int] = []
    hangup(lambda number, _frame: own.append(number))

    with signals_to(lambda: own.append(0)):
        signal.raise_signal(signal.SIGHUP)

    assert own == [signal.SIGHUP]
