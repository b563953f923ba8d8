"""Signals that ask a worker to stop."""

import signal
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from headrace.client.threads import signals_to

Hangup: TypeAlias = Callable[[Any], Any]


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


def test_a_hangup_that_the_program_ignores_or_handles_does_not_stop_the_worker(
    hangup: Hangup,
) -> None:
    asked: list[str] = []
    for handler in (signal.SIG_IGN, lambda _number, _frame: asked.append("program")):
        hangup(handler)
        with signals_to(lambda: asked.append("worker")):
            signal.raise_signal(signal.SIGHUP)

    assert asked == ["program"]
