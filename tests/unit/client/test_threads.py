"""A periodic thread takes one step after the other, in time, whatever a step does."""

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from headrace.client.threads import PeriodicThread, Step, every, signals_to

Hangup: TypeAlias = Callable[[Any], Any]

SOON = 10.0  # seconds until a test gives up
LOG = logging.getLogger(__name__)


def thread(step: Step, *, first_after: float = 0.0) -> PeriodicThread:
    return PeriodicThread("the chore", step, first_after=first_after, log=LOG, after_fault=0.001)


def ended(periodic: PeriodicThread) -> None:
    periodic.stop()
    assert periodic.join(SOON)


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
