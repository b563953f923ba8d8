"""A periodic thread takes one step after the other, in time, whatever a step does."""

import logging
import signal
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from headrace.client.threads import PeriodicThread, Step, signals_to

Hangup: TypeAlias = Callable[[Any], Any]

LOG = logging.getLogger(__name__)


def thread(step: Step, *, first_after: float = 0.0) -> PeriodicThread:
    return PeriodicThread("the chore", step, first_after=first_after, log=LOG, after_fault=0.001)


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
