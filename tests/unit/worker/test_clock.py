"""The end of a lease by the monotonic clock, however wrong this machine's time is."""

from datetime import timedelta

import pytest

from headrace.client.worker.service import ServiceClock
from headrace.testing.clock import START


class Monotonic:
    """A monotonic clock that moves when told."""

    time = 1000.0

    def __call__(self) -> float:
        return self.time

    def forward(self, seconds: float) -> None:
        self.time += seconds


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def test_a_lease_ends_when_the_service_says_counted_from_when_it_was_asked() -> None:
    monotonic = Monotonic()
    clock = ServiceClock(monotonic)
    monotonic.forward(2)  # the answer took so long, and was made at some point in between

    clock.heard(START, sent_at=1000.0)

    assert clock.monotonic_at(START + seconds(30)) == pytest.approx(1030)


def test_a_service_whose_clock_was_set_is_believed() -> None:
    monotonic = Monotonic()
    clock = ServiceClock(monotonic)
    clock.heard(START, sent_at=1000.0)

    clock.heard(START + seconds(3600), sent_at=1000.0)

    assert clock.monotonic_at(START + seconds(3630)) == pytest.approx(1030)


def test_clocks_that_drift_apart_are_followed() -> None:
    monotonic = Monotonic()
    clock = ServiceClock(monotonic)
    clock.heard(START, sent_at=1000.0)
    monotonic.forward(10_000)

    clock.heard(START + seconds(9_995), sent_at=monotonic())

    assert clock.monotonic_at(START + seconds(10_025)) == pytest.approx(11_030, abs=0.1)
